"""`vstream init` from what runs on servers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import console
from vstream.cli.views import init_import as view
from vstream.cli.views.json_output import print_json
from vstream.errors import LabError
from vstream.files import save_output
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.readiness import trust_monitors
from vstream.lab.status import is_running
from vstream.lint.check_topology import check_topology
from vstream.plan import saved
from vstream.plan.importing.topology import import_topology
from vstream.plan.live.discover import discover
from vstream.topology.model import Endpoint


def write_topology_of_servers(
    file: Path,
    connects: Mapping[str, dict[str, object]],
    lab: str | None,
    *,
    monitors: Sequence[str],
    name: str | None,
    is_json: bool,
    timeout: float,
) -> None:
    """
    Write a topology *file* from what runs on servers: those of the running *lab*, or of *connects* by their labels.

    `-` is the standard output. *connects*: as `connect` of a topology says it. *monitors*: monitoring addresses, from which
    loaded mapping rules are read. *name*: the topology's; by default that of the streams' owner. *timeout*: seconds for each
    server. Exits with 1 if the file is not valid yet. Raises VstreamError, and BadParameter for what a topology could not say.
    """
    is_stdout = str(file) == "-"
    if is_stdout and is_json:
        raise typer.BadParameter("`-` already writes the topology to standard output", param_hint="--format")
    _require_sayable(name or "x", connects, monitors)
    endpoints = [(label, _make_endpoint(connect)) for label, connect in connects.items()]
    if lab is not None:
        if not is_running(lab):
            raise LabError(f"lab `{lab}` is not running", hint=f"`vstream lab up --lab {lab}` starts it")
        trust_monitors(list_addresses(lab))
        endpoints = list(list_endpoints(lab).items())
    discovered = run(discover(endpoints, monitors, lab=lab, timeout=timeout))
    imported = import_topology(discovered, name=name, file=str(file))
    if is_stdout:
        typer.echo(imported.text, nl=False)
    else:
        save_output(file, imported.text)
    if is_json:
        plan = None if imported.plan is None else saved.to_dict(imported.plan)
        print_json("import", {"file": str(file), **imported.as_dict(), "plan": plan})
    else:
        out = console.stderr() if is_stdout else console.stdout()
        for line in view.render_import(imported):
            out.print(line)
    if not is_stdout:
        next_step = f"next: vstream plan {shlex.quote(str(file))}{' --adopt all' if imported.adopts else ''}"
        if imported.plan is None:
            next_step = f"it is not valid yet: `vstream validate {file}` says why"
        console.print_note(f"{file} is written; {next_step}")
    exit_unless_yes(is_no=imported.plan is None)


def _require_sayable(name: str, connects: Mapping[str, dict[str, object]], monitors: Sequence[str]) -> None:
    """Raises BadParameter for what a topology could not say, in the words of the topology's own check."""
    monitor: dict[str, object] = {"monitor": list(monitors)} if monitors else {}
    regions = {f"r{number}": connect for number, connect in enumerate(connects.values())}
    document = {
        "version": 1,
        "name": name,
        "server_version": "2.10",
        "regions": {region: {"servers": 1} for region in regions or ["x"]},
        "connect": {region: {**connect, **monitor} for region, connect in regions.items()},
    }
    for finding in check_topology(json.dumps(document).encode(), "options").findings:
        if finding.is_error:
            raise typer.BadParameter(f"{finding.message}{f' ({finding.hint})' if finding.hint else ''}")


def _make_endpoint(connect: Mapping[str, object]) -> Endpoint:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in connect.items()}
    return Endpoint(**fields)  # type: ignore[arg-type]
