"""`vstream import`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.lab import find as labs
from vstream.cli.views import console
from vstream.cli.views import plan as plan_view
from vstream.cli.views.json_output import print_json
from vstream.errors import LabError, VstreamError
from vstream.files import save_output
from vstream.lab import lab as running_labs
from vstream.lint.load_topology import load
from vstream.plan import saved
from vstream.plan.importing.topology import ImportedTopology, import_topology
from vstream.plan.live.discover import discover
from vstream.topology.model import Endpoint

Connect = dict[str, object]
"""How servers are reached, as `connect` of a topology says it."""

_STDOUT = Path("-")


def command(
    file: Annotated[Path, typer.Argument(help="The file to write; `-` writes to standard output.")] = (
        options.DEFAULT_FILE
    ),
    server: Annotated[
        list[str] | None,
        typer.Option("--server", help="A server's address, such as nats://w1.example.net; name one of each region."),
    ] = None,
    context: Annotated[
        list[str] | None, typer.Option("--context", help="A nats CLI context; name one of each region.")
    ] = None,
    monitor: Annotated[
        list[str] | None,
        typer.Option(
            "--monitor",
            help="A server's monitoring address, such as http://w1.example.net:8222; name every server's: "
            "nothing else says which mapping rules it has loaded.",
        ),
    ] = None,
    creds: Annotated[str | None, typer.Option("--creds", help="A credentials file, for `--server`.")] = None,
    nkey: Annotated[str | None, typer.Option("--nkey", help="A file with an nkey seed, for `--server`.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="A user name, for `--server`.")] = None,
    password_env: Annotated[
        str | None, typer.Option("--password-env", help="The environment variable that holds its password.")
    ] = None,
    lab: Annotated[
        str | None, typer.Option("--lab", help="Import what runs in this lab.", envvar="VSTREAM_LAB")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The topology's name; by default that of the streams' owner.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
    output: options.TextOrJson = "text",
    timeout: Annotated[float, typer.Option(help="Seconds for each server.", min=0.5, max=300)] = 5,
) -> None:
    """
    Write a topology from what runs. Changes nothing on the servers.

    Reads the streams, durables and loaded mappings of one account, and writes them as a topology: virtual streams
    that vstream made, and those made by hand, the published recipe included. What a topology cannot express is
    listed, and is in the file as comments. Exits with 1 if the file has to be completed before it is valid.

    Examples: `vstream import --lab acme found.yaml`,
    `vstream import --context sc-west --context sc-east --monitor http://w1:8222 --monitor http://e1:8222`,
    `vstream import - --server nats://w1.example.net --monitor http://w1.example.net:8222`

    Then: `vstream validate`, `vstream plan --adopt all`.
    """
    is_stdout = file == _STDOUT
    if is_stdout and output == "json":
        raise typer.BadParameter("`-` already writes the topology to standard output", param_hint="--format")
    if not (is_stdout or force) and file.exists():
        raise VstreamError(f"{file} exists", hint="`--force` overwrites it")
    login = {"creds": creds, "nkey": nkey, "user": user, "password_env": password_env}
    stated = {option: text for option, text in login.items() if text}
    if server or context:
        lab_name, endpoints = None, _stated_endpoints(server or [], context or [], stated, monitor or [], name)
        if lab not in {None, os.environ.get("VSTREAM_LAB")}:
            raise typer.BadParameter("a lab's servers are known: name no others", param_hint="--lab")
    else:
        _check_connects(name or "x", {}, [])
        lab_name, endpoints = _lab_endpoints(lab, stated)
    discovered = run(discover(endpoints, monitor or [], lab=lab_name, timeout=timeout))
    imported = import_topology(discovered, name=name, file=str(file))
    if is_stdout:
        typer.echo(imported.text, nl=False)
    else:
        save_output(file, imported.text)
    if output == "json":
        print_json("import", _as_dict(imported, file))
    else:
        _print_result(imported, is_stdout=is_stdout)
    if not is_stdout:
        _print_next_step(imported, file)
    if imported.plan is None:
        raise typer.Exit(NO)


def _print_next_step(imported: ImportedTopology, file: Path) -> None:
    next_step = f"next: vstream plan {file}{' --adopt all' if imported.adopts else ''}"
    if imported.plan is None:
        next_step = f"it is not valid yet: `vstream validate {file}` says why"
    console.print_note(f"{file} is written; {next_step}")


def _print_result(imported: ImportedTopology, *, is_stdout: bool) -> None:
    out = console.stderr() if is_stdout else console.stdout()
    for line in describe_import(imported):
        out.print(line)


def _as_dict(imported: ImportedTopology, file: Path) -> dict[str, object]:
    plan = None if imported.plan is None else saved.to_dict(imported.plan)
    return {"file": str(file), **imported.as_dict(), "plan": plan}


def _stated_endpoints(
    servers: Sequence[str],
    contexts: Sequence[str],
    login: Mapping[str, str],
    monitors: Sequence[str],
    topology_name: str | None,
) -> list[tuple[str, Endpoint]]:
    """The servers that options name, each with its label. Raises BadParameter if they contradict each other."""
    if login and not servers:
        option = f"--{min(login).replace('_', '-')}"
        raise typer.BadParameter("it requires `--server`", param_hint=option)
    connects: dict[str, Connect] = {url: {"urls": [url], **login} for url in servers}
    connects |= {context: {"context": context} for context in contexts}
    _check_connects(topology_name or "x", connects, monitors)
    return [(label, _endpoint(connect)) for label, connect in connects.items()]


def _lab_endpoints(lab_name: str | None, login: Mapping[str, str]) -> tuple[str, list[tuple[str, Endpoint]]]:
    """The lab that is meant, and its servers by region."""
    if login:
        option = f"--{min(login).replace('_', '-')}"
        raise typer.BadParameter("it requires `--server`", param_hint=option)
    if not lab_name and not running_labs.names():
        raise VstreamError(
            "no servers given, and no lab is running",
            hint="`--context NAME` or `--server ADDRESS`, one of each region, and `--monitor ADDRESS` of every server",
        )
    name = labs.the_lab(lab_name)
    if not running_labs.is_running(name):
        raise LabError(f"lab `{name}` is not running", hint=f"`vstream lab up --lab {name}` starts it")
    return name, list(running_labs.endpoints(name).items())


def _check_connects(name: str, connects: Mapping[str, Connect], monitors: Sequence[str]) -> None:
    """Raises BadParameter for what a topology could not say, in the words of the topology's own check."""
    monitor: Connect = {"monitor": list(monitors)} if monitors else {}
    regions = {f"r{number}": connect for number, connect in enumerate(connects.values())}
    document = {
        "version": 1,
        "name": name,
        "server_version": "2.10",
        "regions": {region: {"servers": 1} for region in regions or ["x"]},
        "connect": {region: {**connect, **monitor} for region, connect in regions.items()},
    }
    for finding in load(json.dumps(document).encode(), "options").diagnostics:
        if finding.is_error:
            raise typer.BadParameter(f"{finding.message}{f' ({finding.hint})' if finding.hint else ''}")


def _endpoint(connect: Connect) -> Endpoint:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in connect.items()}
    return Endpoint(**fields)  # type: ignore[arg-type]


_MOST = 20
"""Leftovers that are shown: the file has all."""


def describe_import(found: ImportedTopology) -> Iterator[Text]:
    """What the topology says, what it does not, and what a plan would change."""
    models = Counter(found.streams.values())
    kinds = ", ".join(f"{number:,} {model}" for model, number in sorted(models.items())) or "none"
    yield Text.assemble(
        (found.name, "bold"),
        f": in {', '.join(found.regions)}; virtual streams: {kinds}; naming: {found.naming}",
    )
    if found.leftovers:
        yield Text("")
        yield Text("not described by the topology:")
        for leftover in found.leftovers[:_MOST]:
            yield Text.assemble(("  · ", "blue"), f"{leftover.kind} ", (leftover.name, "bold"), f": {leftover.text}")
            if leftover.do:
                yield Text.assemble(("      do: ", "cyan"), leftover.do)
        if len(found.leftovers) > _MOST:
            yield Text(f"  and {len(found.leftovers) - _MOST:,} more: the file and `--format json` have them all")
    yield Text("")
    if found.plan is None:
        return
    adopt = " --adopt all" if found.adopts else ""
    yield Text(f"what `vstream plan{adopt}` makes of it:")
    yield from plan_view.text(found.plan)
