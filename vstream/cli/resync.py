"""`vstream resync`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.fault_command import Format
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.exit_codes import NO
from vstream.cli.views.json_output import print_json


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    timeout: Annotated[float, typer.Option(help="Seconds, before and again after the step-downs.", min=1)] = 120,
    wait_only: Annotated[bool, typer.Option("--wait-only", help="Step nothing down: only measure.")] = False,
    output: Format = "text",
    lab: options.LabName = None,
) -> None:
    """
    After an outage: wait for gateways and the meta leader, then make every read stream source again at once.

    A stream that has lost a source tries again after 10 s, then later and later. Its
    next leader asks at once, so each read stream's leader steps down. Exits with 1
    unless every read stream has everything in time.

    Examples: `vstream resync`, `vstream resync acme.yaml --wait-only`
    """
    from vstream.cli.views import chaos as view  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.health.live.resync import resync  # noqa: PLC0415

    wanted = options.load_topology(topology).require()
    result = run(resync(wanted, find_target_servers(wanted, lab), timeout=timeout, step_down=not wait_only))
    if output == "json":
        print_json("resync", view.resync_as_dict(result))
    else:
        console.print_note(f"gateways and leaders were there after {result.waited:.1f} s")
        console.stdout().print(view.resync(result))
    if not result.is_complete:
        raise typer.Exit(NO)
