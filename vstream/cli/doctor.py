"""`vstream doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import configs, options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import FAILED, NO, OK
from vstream.cli.servers import build_bundle, find_servers
from vstream.cli.views import checkup, console
from vstream.cli.views.json_output import print_json
from vstream.health.doctor.examine import Health
from vstream.health.pipeline import diagnose

_EXIT_CODES = {Health.HEALTHY: OK, Health.UNHEALTHY: NO, Health.UNKNOWN: FAILED}


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which what has not answered is reported as silent.", min=0.5, max=300)
    ] = 10,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
    files: configs.ConfigsDirectory = None,
) -> None:
    """
    Find what is wrong with the live system, with evidence, and say what to do. Changes nothing.

    Finds what servers do not report: layouts that double messages on the running version,
    sources that are dead or have skipped messages with `lag: 0`, write streams that have lost
    their end, servers with other mapping rules than their siblings or than their file says,
    streams in the wrong cluster, replicas that cannot write. `vstream explain CODE` says more.

    Exits with 0 if all is healthy, with 1 if there are errors or warnings, and with 3 if there
    are none but a region, a server or a file could not be read.

    Examples: `vstream doctor`, `vstream doctor acme.yaml --format json`, `vstream doctor acme.yaml --configs /srv/nats`
    """
    loaded = options.load_topology(topology).require()
    servers = find_servers(loaded, lab)
    config_files = configs.read_configs(loaded, servers, files)
    bundle = build_bundle(loaded, servers, templates)
    diagnosis = run(diagnose(loaded, servers.endpoints, bundle, config_files, deadline=deadline))
    if output == "json":
        print_json("doctor", diagnosis.as_dict())
    else:
        console.print_note(f"{loaded.name} on {servers.description}")
        for line in checkup.text(diagnosis):
            console.stdout().print(line)
    raise typer.Exit(_EXIT_CODES[diagnosis.health])
