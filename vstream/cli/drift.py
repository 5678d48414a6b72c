"""`vstream plan --drift`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import typer
from rich.text import Text

from vstream.cli import configs
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO, UNKNOWN
from vstream.cli.plan import Planned, plan_servers
from vstream.cli.views import console, diagnostics
from vstream.cli.views import plan as view
from vstream.cli.views.json_output import print_json
from vstream.diagnostics import Finding
from vstream.formatting import format_count
from vstream.health.doctor.check import Drift
from vstream.health.doctor.examine import Diagnosis, examine, findings_as_dicts
from vstream.health.live.collect import collect_snapshot
from vstream.lab.find_servers import find_servers
from vstream.plan import saved
from vstream.topology.model import Topology


def check_drift(
    topology: Topology,
    lab: str | None,
    templates: Path | None,
    *,
    deadline: float,
    files: Path | None,
    is_json: bool,
) -> None:
    """
    Print what differs between *topology* and its servers, and exit with 1 if anything does.

    Compares streams field by field, the mapping rules and accounts that each server has loaded, the clusters that
    streams live in, the members of the meta group, versions, feature flags, and configuration files with what their
    servers have loaded. *deadline*: seconds for each server. *files*: a directory with configuration files. Exits with
    3 if no difference was found but not everything could be compared. Raises VstreamError.
    """
    planned, diagnosis = run(_compare(topology, lab, templates, deadline, files))
    different = diagnosis.select_drift(Drift.DIFFERENCE)
    unknown = diagnosis.select_drift(Drift.UNKNOWN)
    plan = planned.plan
    is_drift = plan.differs or bool(different)
    is_partial = bool(unknown or plan.unread_servers or plan.unreachable or not (plan.differs or plan.is_empty))
    if is_json:
        unread = [finding for finding in unknown if finding.code == "VD413"]
        print_json(
            "plan-drift",
            {
                "topology": topology.name,
                "drift": is_drift,
                "is_partial": is_partial,
                "plan": saved.to_dict(plan),
                "findings": findings_as_dicts(different),
                "unknown": findings_as_dicts(unknown),
                "configs_compared": diagnosis.configs,
                "configs_unread": [{"server": finding.about, "problem": finding.evidence} for finding in unread],
            },
        )
    else:
        console.print_note(f"{topology.name} on {planned.where.description}")
        _show(planned, diagnosis, (*different, *unknown), is_drift=is_drift, is_partial=is_partial)
    if is_drift:
        raise typer.Exit(NO)
    if is_partial:
        raise typer.Exit(UNKNOWN)


def _show(
    planned: Planned, diagnosis: Diagnosis, findings: tuple[Finding, ...], *, is_drift: bool, is_partial: bool
) -> None:
    if not planned.plan.is_empty:
        console.print_lines(view.text(planned.plan))
    for finding in findings:
        console.print_lines(diagnostics.finding_lines(finding))
    if planned.plan.is_empty:  # else the plan has said it
        console.print_lines(
            Text.assemble(("  ? ", "yellow"), sentence) for sentence in view.unknown_sentences(planned.plan)
        )
    verdict = "NO DRIFT"
    if is_drift:
        verdict = "DRIFT"
    elif is_partial:
        verdict = "UNKNOWN: no difference was found, but not everything could be compared"
    configs_compared = format_count(diagnosis.configs, "configuration file")
    with_files = f", {configs_compared} with what was loaded" if diagnosis.configs else ""
    streams = {stream.config.name for stream in planned.request.bundle.streams}.difference(
        planned.plan.names_without_answer
    )
    console.stdout().print(
        f"{verdict}: {len(streams):,} streams and the rules of {diagnosis.servers} servers compared{with_files}"
    )


async def _compare(
    topology: Topology, lab: str | None, templates: Path | None, deadline: float, files: Path | None
) -> tuple[Planned, Diagnosis]:
    servers = find_servers(topology, lab)
    config_files = configs.read_configs(topology, servers, files)
    planned, snapshot = await asyncio.gather(
        plan_servers(topology, lab, templates),
        collect_snapshot(topology, servers.endpoints, deadline=deadline, is_deep=True),
    )
    return planned, examine(topology, planned.request.bundle, snapshot, config_files)
