"""`vstream drift`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import configs, options, plan
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import find_servers
from vstream.cli.views.json_output import print_json
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from pathlib import Path

    from vstream.health.doctor.examine import Diagnosis
    from vstream.topology.model import Topology

_CODES = frozenset({"VD407", "VD408", "VD409", "VD410", "VD411", "VD412", "VD501", "VD507"})
"""What of a doctor's findings is a difference from the topology, or between servers, that a plan does not show."""
_UNREAD = "VD413"


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    deadline: Annotated[float, typer.Option(help="Seconds for each server.", min=0.5, max=300)] = 10,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
    files: configs.ConfigsDirectory = None,
) -> None:
    """
    Whether the servers are still what the topology says, for cron. Changes nothing.

    Streams field by field, the mapping rules and accounts that each server has loaded, the clusters
    that streams live in, the members of the meta group, versions, feature flags, and configuration
    files that are not what their servers have loaded. Exits with 0 if there is no difference, with 1
    if there is, with 3 if that cannot be known.

    Examples: `vstream drift`, `vstream drift acme.yaml --format json`, `vstream drift acme.yaml --configs /srv/nats`
    """
    from vstream.cli.views import (  # noqa: PLC0415
        console,
        diagnostics,
    )
    from vstream.cli.views import plan as view  # noqa: PLC0415
    from vstream.plan import saved  # noqa: PLC0415

    wanted = options.load_topology(topology).require()
    planned, examined = run(_compare(wanted, lab, templates, deadline, files))
    different = replace(examined, findings=tuple(one for one in examined.findings if one.code in _CODES))
    unread = tuple(one for one in examined.findings if one.code == _UNREAD)
    is_drift = not planned.plan.is_empty or bool(different.findings)
    if output == "json":
        print_json(
            "drift",
            {
                "topology": wanted.name,
                "drift": is_drift,
                "plan": saved.to_dict(planned.plan),
                "findings": different.as_dict()["findings"],
                "configs_compared": examined.configs,
                "configs_unread": [{"server": one.about, "problem": one.evidence} for one in unread],
            },
        )
    else:
        out = console.stdout()
        console.print_note(f"{wanted.name} on {planned.where.description}")
        if not planned.plan.is_empty:
            for line in view.text(planned.plan):
                out.print(line)
        for one in different.findings:
            for text in diagnostics.finding_lines(one):
                out.print(text)
        is_partial = bool(planned.plan.unread_servers or unread)
        verdict = "DRIFT" if is_drift else "NO DRIFT SEEN" if is_partial else "NO DRIFT"
        many = "" if examined.configs == 1 else "s"
        with_files = f", {examined.configs} configuration file{many} with what was loaded" if examined.configs else ""
        out.print(
            f"{verdict}: {len(planned.request.bundle.streams):,} streams and the rules of {examined.servers} servers compared{with_files}",
            soft_wrap=True,
        )
    if is_drift:
        raise typer.Exit(NO)
    if planned.plan.unread_servers:
        raise VstreamError(
            f"what these servers have loaded is not known: {', '.join(planned.plan.unread_servers)}",
            hint="start them, or give their monitoring addresses as `monitor` under `connect`",
        )
    if unread:
        raise VstreamError(
            f"{len(unread)} configuration files could not be compared: {unread[0].about}: {unread[0].evidence}",
            hint="`vstream explain VD413`",
        )


async def _compare(
    topology: Topology, lab: str | None, templates: Path | None, deadline: float, files: Path | None
) -> tuple[plan.Planned, Diagnosis]:
    from vstream.health.doctor.examine import examine  # noqa: PLC0415
    from vstream.health.live.collect import collect_snapshot  # noqa: PLC0415

    where = find_servers(topology, lab)
    known = configs.read(topology, where, files)
    planned, facts = await asyncio.gather(
        plan.plan_servers(topology, lab, templates),
        collect_snapshot(topology, where.endpoints, deadline=deadline, is_deep=True),
    )
    return planned, examine(topology, planned.request.bundle, facts, known)
