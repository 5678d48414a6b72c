"""`vstream import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.lab import find as labs
from vstream.cli.views.json_output import print_json
from vstream.errors import LabError, VstreamError
from vstream.files import save_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.plan.importing.topology import ImportedTopology
    from vstream.topology.model import Endpoint

Said = dict[str, object]
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
    lab: Annotated[str | None, typer.Option("--lab", help="Import what runs in this lab.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The topology's name; by default that of the streams' owner.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
    output: Annotated[Literal["text", "json"], typer.Option("--format", help="text or json.")] = "text",
    timeout: Annotated[float, typer.Option(help="Seconds for each server.", min=0.5, max=300)] = 5,
) -> None:
    """
    Write a topology from what runs. Changes nothing on the servers.

    Reads the streams, durables and loaded mappings of one account, and says them as a topology: virtual streams that
    vstream made, and those that somebody laid out by hand, the published recipe included. What a topology cannot say is
    listed, and stands in the file as comments. Exits with 1 if the file has to be completed before it is valid.

    Examples: `vstream import --lab acme found.yaml`,
    `vstream import --context sc-west --context sc-east --monitor http://w1:8222 --monitor http://e1:8222`,
    `vstream import - --server nats://w1.example.net --monitor http://w1.example.net:8222`

    Then: `vstream validate`, `vstream plan --adopt all`.
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import importing as view  # noqa: PLC0415
    from vstream.plan.importing.topology import import_topology  # noqa: PLC0415
    from vstream.plan.live.discover import discover  # noqa: PLC0415

    is_stdout = file == _STDOUT
    if is_stdout and output == "json":
        raise typer.BadParameter("the topology itself goes to standard output", param_hint="--format")
    if not (is_stdout or force) and file.exists():
        raise VstreamError(f"{file} exists", hint="`--force` overwrites it")
    login = {"creds": creds, "nkey": nkey, "user": user, "password_env": password_env}
    ways, the_lab = _ways(server or [], context or [], {key: one for key, one in login.items() if one}, lab)
    _check(name or "x", {label: one for label, one in ways.items() if the_lab is None}, monitor or [])
    found = run(discover(_endpoints(ways), monitor or [], lab=the_lab, timeout=timeout))
    written = import_topology(found, name=name, file=str(file))
    if is_stdout:
        typer.echo(written.text, nl=False)
    else:
        save_output(file, written.text)
    if output == "json":
        print_json("import", _as_dict(written, file))
    else:
        show = console.stderr() if is_stdout else console.stdout()
        for line in view.text(written):
            show.print(line)
    if written.plan is None:
        if not is_stdout:
            console.print_note(f"{file} is written, and is not valid yet: `vstream validate {file}` says why")
        raise typer.Exit(NO)
    if not is_stdout:
        console.print_note(f"{file} is written; next: vstream plan {file}{' --adopt all' if written.adopts else ''}")


def _as_dict(written: ImportedTopology, file: Path) -> dict[str, object]:
    from vstream.plan import saved  # noqa: PLC0415

    plan = None if written.plan is None else saved.to_dict(written.plan)
    return {"file": str(file), **written.as_dict(), "plan": plan}


def _ways(
    servers: Sequence[str], contexts: Sequence[str], login: Mapping[str, str], lab_name: str | None
) -> tuple[Mapping[str, Said | Endpoint], str | None]:
    """How the servers that are meant are reached, by what each way is called, and the lab that they are of."""
    from vstream.lab import lab  # noqa: PLC0415

    if login and not servers:
        raise typer.BadParameter("it says who connects to `--server`, and there is none", param_hint=f"--{min(login)}")
    if servers or contexts:
        if lab_name is not None:
            raise typer.BadParameter("a lab's servers are known: name no others", param_hint="--lab")
        named: dict[str, Said | Endpoint] = {url: {"urls": [url], **login} for url in servers}
        return {**named, **{one: {"context": one} for one in contexts}}, None
    the_lab = labs.the_lab(lab_name) if lab_name or lab.names() else None
    if the_lab is None:
        raise VstreamError(
            "nothing says which servers are meant, and there is no lab",
            hint="`--context NAME` or `--server ADDRESS`, one of each region, and `--monitor ADDRESS` of every server",
        )
    if not lab.is_running(the_lab):
        raise LabError(f"lab `{the_lab}` is not running", hint=f"`vstream lab up --lab {the_lab}` starts it")
    return lab.endpoints(the_lab), the_lab


def _check(name: str, ways: Mapping[str, Said | Endpoint], monitors: Sequence[str]) -> None:
    """Raises BadParameter for what the topology could not say, with its own words."""
    from vstream.lint.load_topology import load  # noqa: PLC0415

    regions = {f"r{number}": one for number, one in enumerate(ways.values())}
    connect = {
        region: {**one, **({"monitor": list(monitors)} if monitors else {})}
        for region, one in regions.items()
        if isinstance(one, dict)
    }
    mini = {
        "version": 1,
        "name": name,
        "server_version": "2.10",
        "regions": {region: {"servers": 1} for region in regions} or {"x": {"servers": 1}},
        "connect": connect,
    }
    for one in load(json.dumps(mini).encode(), "options").diagnostics:
        if one.is_error:
            raise typer.BadParameter(f"{one.message}{f' ({one.hint})' if one.hint else ''}")


def _endpoints(ways: Mapping[str, Said | Endpoint]) -> list[tuple[str, Endpoint]]:
    from vstream.topology.model import Endpoint  # noqa: PLC0415

    def endpoint(said: Said) -> Endpoint:
        return Endpoint(**{key: tuple(one) if isinstance(one, list) else one for key, one in said.items()})  # type: ignore[arg-type]

    return [(label, endpoint(one) if isinstance(one, dict) else one) for label, one in ways.items()]
