"""`vstream map --trace`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.map import read_workspace
from vstream.cli.views import console
from vstream.cli.views import trace as view
from vstream.cli.views.json_output import print_json
from vstream.lint.publishing_client import require_client
from vstream.probe.trace import expect_publish, trace_publish
from vstream.servers.find_servers import find_and_trust_servers
from vstream.topology.physical import client_account


def print_trace(
    subject: str, files: Sequence[str], regions: Sequence[str], lab: str | None, *, timeout: float, is_json: bool
) -> None:
    """
    Show where servers of the topology in *files* take a publish to the literal *subject*, beside what is expected.

    One publish through every address of each region, or of each of *regions*; nothing is stored or delivered.
    *timeout*: seconds until every server has answered. Exits with 1 where something differs, and with 3 where something
    cannot be known or a server is older than 2.11. Raises VstreamError, and BadParameter for several files.
    """
    if len(files) > 1:
        raise typer.BadParameter("name one topology", param_hint="FILES")
    workspace = read_workspace(files)
    topology = workspace.topology or options.check_topology_file(Path(files[0])).require()
    names = options.choose_regions(topology, regions)
    servers = find_and_trust_servers(topology, lab)
    expected = []
    for name in names:
        account = client_account(topology, name) if topology.has_accounts else None
        simulation = require_client(workspace, name, account).publish(subject)
        expected.append(expect_publish(topology, name, subject, simulation))
    traces = run(trace_publish(subject, expected, servers.endpoints, timeout=timeout))
    if is_json:
        print_json("trace", view.as_dict(topology.name, subject, expected, traces))
    else:
        console.print_note(servers.describe_with(topology))
        console.print_lines(view.render(subject, expected, traces))
    answers = {trace.is_expected for trace in traces}
    exit_unless_yes(is_no=False in answers, is_unknown=None in answers)
