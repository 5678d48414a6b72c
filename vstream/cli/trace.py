"""`vstream trace`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.map import load_workspace, simulate_publish
from vstream.cli.servers import find_servers
from vstream.cli.views import console
from vstream.cli.views import trace as view
from vstream.cli.views.json_output import print_json
from vstream.errors import UnknownNameError
from vstream.probe.trace import expect_publish, trace_publish
from vstream.subjects.algebra import is_literal
from vstream.topology.physical import client_account


def command(
    subject: Annotated[str, typer.Argument(help="The subject that a client publishes to, without wildcards.")],
    topology: options.TopologyFile = options.DEFAULT_FILE,
    region: Annotated[list[str] | None, typer.Option("--region", "-r", help="Only from this region.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until every server has answered.", min=0.1, max=60)] = 3,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Show where servers take a publish, beside what `vstream map` expects. Nothing is stored or delivered.

    One publish through every address of each region. Each server that sees it says what it does: maps it, hands it to
    another server or account, would store it. A trace ends at an account whose export lacks `allow_trace`.

    Exits with 1 where something differs, and with 3 where something cannot be known or a server is older than 2.11.

    Examples: `vstream trace foo.a --region west`, `vstream trace orders.1 acme.yaml --format json`
    """
    if not is_literal(subject):
        message = f"`{subject}` is not a subject that one can publish to: no wildcards, spaces or empty tokens"
        raise typer.BadParameter(message, param_hint="SUBJECT")
    workspace = load_workspace([str(topology)])
    loaded = workspace.topology or options.load_topology(topology).require()
    names = [place.name for place in loaded.regions]
    for name in region or ():
        if name not in names:
            raise UnknownNameError(f"there is no region `{name}`", hint=f"there are {', '.join(names)}")
    where = find_servers(loaded, lab)
    expected = []
    for name in region or names:
        account = client_account(loaded, name) if loaded.has_accounts else None
        expected.append(expect_publish(loaded, name, subject, simulate_publish(subject, workspace, name, account)))
    traces = run(trace_publish(subject, expected, where.endpoints, timeout=timeout))
    if output == "json":
        print_json("trace", view.as_dict(loaded.name, subject, expected, traces))
    else:
        console.print_note(f"{loaded.name} on {where.description}")
        for line in view.text(subject, expected, traces):
            console.stdout().print(line)
    if any(trace.is_expected is False for trace in traces):
        raise typer.Exit(NO)
    if any(trace.is_expected is None for trace in traces):
        raise typer.Exit(FAILED)
