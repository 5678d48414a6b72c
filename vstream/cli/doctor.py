"""`vstream doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import configs, options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import Servers, build_bundle, find_servers
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.health.doctor.configs import ConfigFile
    from vstream.health.doctor.examine import Diagnosis
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Topology


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
    What is wrong with the live system, with evidence, and what to do. Writes nothing.

    Finds what servers do not report: layouts that double messages on the version that
    runs, sources that are dead or have skipped messages with `lag: 0`, write streams that
    have lost their end, servers with other mapping rules than their siblings or than their
    file says, streams in the wrong cluster, replicas that cannot write. Exits with 1 if there
    are errors or warnings. `vstream explain CODE` says more of each.

    Examples: `vstream doctor`, `vstream doctor acme.yaml --format json`, `vstream doctor acme.yaml --configs /srv/nats`
    """
    from vstream.cli.views import (  # noqa: PLC0415
        checkup,
        console,
    )

    wanted = options.load_topology(topology).require()
    where = find_servers(wanted, lab)
    known = configs.read(wanted, where, files)
    found = run(_examine(wanted, where, deadline, build_bundle(wanted, where, templates), known))
    if output == "json":
        print_json("doctor", found.as_dict())
    else:
        console.print_note(f"{wanted.name} on {where.description}")
        for line in checkup.text(found):
            console.stdout().print(line)
    if not found.is_healthy:
        raise typer.Exit(NO)


async def _examine(
    topology: Topology, where: Servers, deadline: float, bundle: Bundle, files: Mapping[str, ConfigFile]
) -> Diagnosis:
    from vstream.health.doctor.examine import examine  # noqa: PLC0415
    from vstream.health.live.collect import collect_snapshot  # noqa: PLC0415

    facts = await collect_snapshot(topology, where.endpoints, deadline=deadline, is_deep=True)
    return examine(topology, bundle, facts, files)
