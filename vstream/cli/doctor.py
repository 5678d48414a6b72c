"""`vstream doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vstream.cli import options, server_configs
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.lazy_group import load_late, refuse_named
from vstream.cli.views import console
from vstream.cli.views import doctor as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import progress_bar
from vstream.health.doctor.examine import Health
from vstream.health.pipeline import diagnose
from vstream.servers.bundles import provide_bundle
from vstream.servers.find_servers import find_and_trust_servers


def command(
    context: typer.Context,
    file: options.TopologyFile = options.DEFAULT_FILE,
    timeout: options.Timeout = 10,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
    files: options.ConfigsDirectory = None,
    support: Annotated[
        Path | None,
        typer.Option("--bundle", help="Instead: write what others need to help you to this directory or .tar.gz."),
    ] = None,
) -> None:
    """
    Find what is wrong with the live system, with evidence, and say what to do. Changes nothing.

    Finds what servers do not report: layouts that double messages on the running version,
    sources that are dead or have skipped messages with `lag: 0`, write streams that have lost
    their end, servers with other mapping rules than their siblings or than their file says,
    streams in the wrong cluster, replicas that cannot write. `vstream lint --explain CODE` says more.

    Exits with 0 if all is healthy, with 1 if there are errors or warnings, and with 3 if there
    are none but a region, a server or a file could not be read.

    `--bundle` collects the topology, rendered files, status, diagnosis, plan and servers' answers. Passwords, tokens, keys
    and signed tokens are taken out. Subjects, names of streams and addresses stay: read it before you send it. No message
    is in it. What could not be read is named in `manifest.json`, with the reason.

    Examples: `vstream doctor`, `vstream doctor acme.yaml --format json`, `vstream doctor acme.yaml --configs /srv/nats`,
    `vstream doctor acme.yaml --bundle acme.tar.gz`
    """
    checked = options.check_topology_file(file)
    topology = checked.require()
    if support is not None:
        refuse_named(context, "has no effect with --bundle", "output_format", "files")
        load_late("vstream.cli.doctor_bundle").collect_bundle(topology, checked.text, support, lab, templates, timeout)
        return
    servers = find_and_trust_servers(topology, lab)
    config_files = server_configs.read_configs(topology, servers, files)
    bundle = provide_bundle(topology, servers, templates)
    with progress_bar() as progress:
        progress.add_task(f"asking {servers.description}", total=None)
        diagnosis = run(diagnose(topology, servers.endpoints, bundle, config_files, timeout=timeout))
    if output_format == "json":
        print_json("doctor", diagnosis.as_dict())
    else:
        console.print_note(servers.describe_with(topology))
        console.print_lines(view.render_diagnosis(diagnosis))
    exit_unless_yes(is_no=diagnosis.health is Health.UNHEALTHY, is_unknown=diagnosis.health is Health.UNKNOWN)
