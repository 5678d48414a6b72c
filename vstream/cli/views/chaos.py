"""Faults, what they will do and what proves that they are active, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.chaos.blast_radius import GroupEffect, Impact, PartitionSide, Quorum, RegionEffect
from vstream.chaos.inject import HealResult, InjectionResult, RestartResult
from vstream.chaos.journal import OpenFault
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.formatting import format_count

_STYLE = {Quorum.KEPT: "green", Quorum.PERHAPS: "bold yellow", Quorum.LOST: "bold red"}


class FaultReport:
    """Tells what the fault *command* does, as it happens; or with *is_json*, all of it at the end."""

    def __init__(self, command: str, *, is_json: bool) -> None:
        self._command = command
        self._is_json = is_json
        self._output: dict[str, Any] = {}

    def print_impact(self, impact: Impact) -> None:
        """What it will leave; once, where servers are taken one after the other."""
        self._output.setdefault("command", self._command)
        effects = impact_as_dict(impact)
        if self._output.get("effects") == effects:
            return
        self._output["effects"] = effects
        console.print_note(f"{self._command} will leave:")
        for line in render_impact(impact):
            console.stderr().print(line)

    def print_injected(self, injected: InjectionResult) -> None:
        """What proves it."""
        if injected.restarted:
            return  # each was printed
        entry = injected.entry
        fault = None if entry is None else fault_as_dict(entry)
        self._output.update(command=self._command, evidence=injected.evidence, fault=fault)
        if not self._is_json:
            console.stdout().print(injected.evidence if entry is None else f"{entry.id}: {injected.evidence}")

    def print_healed(self, healed: HealResult) -> None:
        """How long it took until all was healthy."""
        self._output["healthy_after_seconds"] = healthy_after_seconds(healed)
        if not self._is_json:
            console.stdout().print(heal_line(healed))

    def print_restarted(self, restarted: RestartResult) -> None:
        """One server of a rolling restart."""
        self._output.setdefault("restarted", []).append(
            {
                "server": restarted.server,
                "version": restarted.version,
                "stopping_seconds": restarted.stopping,
                "recovering_seconds": restarted.recovering,
            }
        )
        if not self._is_json:
            console.stdout().print(restart_line(restarted))

    def finish(self) -> None:
        """Print the JSON, also of what was interrupted."""
        if self._is_json:
            print_json("chaos-fault", self._output)


def render_impact(impact: Impact) -> Iterator[Text]:
    """A line for each region that misses a server, for each side, the stretch cluster, the meta group, and each loss; or one."""
    lines = list(_render_lines(impact))
    yield from lines or [Text("  every server, and every link")]


def _render_lines(impact: Impact) -> Iterator[Text]:
    for region in impact.regions:
        if region.left == region.servers:
            continue
        streams = format_count(region.streams, "write stream")
        words = {
            Quorum.KEPT: f"{streams} can store",
            Quorum.PERHAPS: f"{region.without} of {streams} may be unable to store, depending on where their replicas are",
            Quorum.LOST: f"{region.without} of {streams} cannot store",
        }
        yield Text.assemble(
            f"  {region.region}: {region.left} of {region.servers} servers left, ",
            (words[region.quorum], _STYLE[region.quorum]),
        )
    if len(impact.sides) > 1:
        for side in impact.sides:
            servers = format_count(side.servers, "server")
            yield Text.assemble(f"  on one side: {', '.join(side.regions)}, {servers}, ", _leader(impact, side))
    if impact.stretch is not None:
        yield _group("stretch cluster", impact.stretch)
    if impact.meta is not None:
        yield _group("meta group", impact.meta)
    for name in impact.apart:
        yield Text.assemble(f"  {name}: no hub, ", ("nothing is copied to or from it", "bold yellow"))
    for loss in impact.permanent_losses:
        yield Text(f"  {loss}", style="bold red")


def _leader(impact: Impact, side: PartitionSide) -> tuple[str, str]:
    if impact.meta is None:
        return "a meta leader in each region", "green"
    return ("meta leader possible", "green") if side.has_meta_majority else ("no meta leader", "bold red")


def _group(name: str, group: GroupEffect) -> Text:
    verdict = ("keeps its majority", "green") if group.has_majority else ("no majority, no leader", "bold red")
    return Text.assemble(f"  {name}: {group.left} of {group.peers} servers left, ", verdict)


def impact_as_dict(impact: Impact) -> dict[str, Any]:
    """What a fault will take away, as plain JSON data."""
    return {
        "regions": [_region_as_dict(region) for region in impact.regions],
        "meta": None if impact.meta is None else _group_as_dict(impact.meta),
        "stretch": None if impact.stretch is None else _group_as_dict(impact.stretch),
        "sides": [_side_as_dict(side) for side in impact.sides],
        "without_hub": list(impact.apart),
        "losses": list(impact.permanent_losses),
        "refusals": list(impact.refusals),
    }


def _side_as_dict(side: PartitionSide) -> dict[str, Any]:
    return {"regions": list(side.regions), "servers": side.servers, "meta": side.has_meta_majority}


def _region_as_dict(region: RegionEffect) -> dict[str, Any]:
    return {
        "region": region.region,
        "servers": region.servers,
        "remaining": region.left,
        "write_streams": region.streams,
        "without_quorum": region.without,
        "quorum": region.quorum.value,
    }


def _group_as_dict(group: GroupEffect) -> dict[str, Any]:
    return {"peers": group.peers, "remaining": group.left, "majority": group.has_majority}


def render_faults(states: Sequence[tuple[OpenFault, bool]]) -> Table:
    """Open faults, each with whether anything of it is left."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("id", "fault", "where", "since", "now"):
        table.add_column(heading)
    for fault, is_over in states:
        style = "dim" if is_over else "bold red"
        age = int((datetime.now(UTC) - fault.since).total_seconds())
        table.add_row(
            fault.id,
            fault.command,
            fault.fault.target_text,
            f"{age} s ago",
            Text(_format_state(fault, is_over), style=style),
        )
    return table


def _format_state(fault: OpenFault, is_over: bool) -> str:
    if is_over:
        return "ended"
    return "active" if fault.is_confirmed else "not confirmed"


def fault_as_dict(fault: OpenFault) -> dict[str, Any]:
    """A fault as plain JSON data."""
    return {
        "id": fault.id,
        "command": fault.command,
        "kind": fault.fault.kind,
        "servers": list(fault.fault.affected_servers),
        "where": fault.fault.target_text,
        "since": fault.since.isoformat(),
        "confirmed": fault.is_confirmed,
    }


def healthy_after_seconds(result: HealResult) -> float | None:
    """How long it took, for programs."""
    return None if result.seconds is None else round(result.seconds, 3)


def heal_line(result: HealResult) -> str:
    """What was healed, in one line."""
    if not result.faults:
        return "no open faults"
    undone = ", ".join(f"{fault.id} ({fault.command})" for fault in result.faults)
    if result.seconds is None:
        return f"undone: {undone}; no server of the lab runs (`vstream lab up` starts them)"
    return f"healed {undone}: servers healthy after {result.seconds:.1f} s; streams may still catch up (`vstream status`), and `vstream repair sources` speeds that up"


def restart_line(restarted: RestartResult) -> str:
    """What a rolling restart has done, in one line."""
    return (
        f"{restarted.server}: ended in {restarted.stopping:.1f} s, healthy {restarted.recovering:.1f} s later, "
        f"runs {restarted.version}"
    )
