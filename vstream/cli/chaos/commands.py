"""`vstream chaos`: inject and heal faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from vstream.chaos import inject, journal, target_servers
from vstream.chaos.faults.pause import Pause
from vstream.chaos.journal import OpenFault
from vstream.chaos.target_servers import TargetServers
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.fault_command import HEAL_TIMEOUT, Timeout, fault_command
from vstream.cli.lab.find import the_lab
from vstream.cli.views import chaos as view
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import show_progress
from vstream.errors import UnknownNameError
from vstream.lab.state import lab_directory
from vstream.scenario.faults import FAULTS

app = typer.Typer(
    help="Inject faults into a lab: each is announced first, confirmed, and undone by name. "
    "On servers that are not a lab only leaders can be moved.",
    no_args_is_help=True,
)
for _declared in FAULTS.values():
    app.command(_declared.name)(fault_command(_declared))


@app.command("resume")
def resume(
    target: Annotated[str | None, typer.Argument(help="What was paused; all, if left out.")] = None,
    timeout: Timeout = HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: options.TextOrJson = "text",
) -> None:
    """
    Resume paused servers, and wait until all are healthy.

    Examples: `vstream chaos resume west-1`, `vstream chaos resume`
    """
    pauses = [fault for fault in _open_faults(lab)[1] if isinstance(fault.fault, Pause)]
    ids = tuple(fault.id for fault in pauses if target is None or fault.command == f"pause {target}")
    if not ids and target is not None:
        paused = ", ".join(fault.command.removeprefix("pause ") for fault in pauses)
        raise UnknownNameError(f"`{target}` is not paused", hint=f"paused: {paused}" if paused else "nothing is paused")
    _heal(lab, ids, timeout, output)


@app.command("status")
def status(lab: options.LabName = None, output: options.TextOrJson = "text") -> None:
    """
    List the open faults of a lab.

    Example: `vstream chaos status --format json`
    """
    target, open_faults = _open_faults(lab)
    states = [(fault, fault.fault.is_over(target, fault.id)) for fault in open_faults]
    if output == "json":
        print_json("chaos-status", {"faults": [{**view.fault_as_dict(fault), "over": over} for fault, over in states]})
    elif states:
        console.stdout().print(view.fault_table(states))
    else:
        console.print_note("no open faults")


@app.command("heal")
def heal(
    fault: Annotated[
        str | None, typer.Argument(help="The id of a fault; all, if left out.", metavar="[FAULT-ID]")
    ] = None,
    timeout: Timeout = HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: options.TextOrJson = "text",
) -> None:
    """
    Undo one open fault, or all, even after vstream was killed, and wait until all servers are healthy.

    Examples: `vstream chaos heal`, `vstream chaos heal f2`
    """
    _heal(lab, None if fault is None else (fault,), timeout, output)


def _heal(lab: str | None, ids: Sequence[str] | None, timeout: float, output: str) -> None:
    target, _ = _open_faults(lab)
    with show_progress() as show:
        healed = run(inject.heal(target, ids, timeout=timeout, on_progress=show))
    if output == "json":
        undone = [view.fault_as_dict(fault) for fault in healed.faults]
        print_json("chaos-heal", {"healed": undone, "healthy_after_seconds": view.seconds(healed)})
    else:
        console.stdout().print(view.heal_line(healed))


def _open_faults(lab: str | None) -> tuple[TargetServers, Sequence[OpenFault]]:
    """The lab that is meant, and what its journal says: healing needs no topology."""
    name = the_lab(lab)
    book = journal.read(lab_directory(name))
    return target_servers.of_lab(name), () if book is None else book.faults
