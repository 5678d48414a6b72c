"""`vstream plan --drift`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from vstream.cli import server_configs
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import console, finding_text
from vstream.cli.views import plan as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import show_steps
from vstream.formatting import format_count
from vstream.health.doctor.examine import doctor_findings_as_dicts
from vstream.health.drift import DriftReport, find_drift
from vstream.plan import saved
from vstream.servers.find_servers import find_and_trust_servers
from vstream.topology.model import Topology


def check_drift(
    topology: Topology, lab: str | None, templates: Path | None, *, timeout: float, files: Path | None, is_json: bool
) -> None:
    """
    Print what differs between *topology* and its servers, and exit with 1 if anything does.

    Compares streams field by field, the mapping rules and accounts that each server has loaded, the clusters that
    streams live in, the members of the meta group, versions, feature flags, and configuration files with what their
    servers have loaded. *timeout*: seconds for each server. *files*: a directory with configuration files. Exits with
    3 if no difference was found but not everything could be compared. Raises VstreamError.
    """
    servers = find_and_trust_servers(topology, lab)
    config_files = server_configs.read_configs(topology, servers, files)
    with show_steps() as show:
        drift = run(find_drift(topology, servers, templates, config_files, timeout=timeout, on_progress=show))
    if is_json:
        print_json("plan-drift", _as_dict(drift))
    else:
        console.print_note(servers.describe_with(topology))
        _print_drift(drift)
    exit_unless_yes(is_no=drift.has_drifted, is_unknown=drift.is_partial)


def _as_dict(drift: DriftReport) -> dict[str, Any]:
    unread = [finding for finding in drift.unknown if finding.code == "VD413"]
    return {
        "topology": drift.diagnosis.topology,
        "drift": drift.has_drifted,
        "is_partial": drift.is_partial,
        "plan": saved.to_dict(drift.planned.plan),
        "findings": doctor_findings_as_dicts(drift.different),
        "unknown": doctor_findings_as_dicts(drift.unknown),
        "configs_compared": drift.diagnosis.configs,
        "configs_unread": [{"server": finding.about, "problem": finding.evidence} for finding in unread],
    }


def _print_drift(drift: DriftReport) -> None:
    plan, diagnosis = drift.planned.plan, drift.diagnosis
    if not plan.is_empty:
        console.print_lines(view.render_plan(plan))
    for finding in (*drift.different, *drift.unknown):
        console.print_lines(finding_text.render_finding(finding))
    if plan.is_empty:  # else the plan has said it
        console.print_lines(Text.assemble(("  ? ", "yellow"), sentence) for sentence in view.list_unknowns(plan))
    verdict = "NO DRIFT"
    if drift.has_drifted:
        verdict = "DRIFT"
    elif drift.is_partial:
        verdict = "UNKNOWN: no difference was found, but not everything could be compared"
    configs_compared = format_count(diagnosis.configs, "configuration file")
    with_files = f", {configs_compared} with what was loaded" if diagnosis.configs else ""
    streams = {stream.config.name for stream in drift.planned.request.bundle.streams}
    streams -= {blocked.name for blocked in plan.unanswered_items}
    console.stdout().print(
        f"{verdict}: {len(streams):,} streams and the rules of {diagnosis.servers} servers compared{with_files}"
    )
