"""Faults, what they will do and what proves that they are active, as text and as plain data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.chaos.blast_radius import GroupEffect, Impact, Quorum, RegionEffect, SideEffect
from vstream.chaos.inject import HealResult
from vstream.chaos.journal import OpenFault
from vstream.chaos.rolling_restart import RestartResult
from vstream.cli.views import console
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.formatting import format_count
from vstream.health.refresh import Verb

if TYPE_CHECKING:
    from vstream.health.live.refresh import RefreshLook
    from vstream.health.live.resync import ResyncedStream, ResyncResult

_STYLE = {Quorum.KEPT: "green", Quorum.PERHAPS: "bold yellow", Quorum.LOST: "bold red"}


def impact_lines(impact: Impact) -> Iterator[Text]:
    """A line for each region that misses a server, for each side, the stretch cluster, the meta group, and each loss; or one."""
    lines = list(_lines(impact))
    yield from lines or [Text("  every server, and every link")]


def _lines(impact: Impact) -> Iterator[Text]:
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
    for loss in impact.losses:
        yield Text(f"  {loss}", style="bold red")


def _leader(impact: Impact, side: SideEffect) -> tuple[str, str]:
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
        "losses": list(impact.losses),
        "refusals": list(impact.refusals),
    }


def _side_as_dict(side: SideEffect) -> dict[str, Any]:
    return {"regions": list(side.regions), "servers": side.servers, "meta": side.has_meta_majority}


def _region_as_dict(region: RegionEffect) -> dict[str, Any]:
    return {
        "region": region.region,
        "servers": region.servers,
        "left": region.left,
        "write_streams": region.streams,
        "without_quorum": region.without,
        "quorum": region.quorum.value,
    }


def _group_as_dict(group: GroupEffect) -> dict[str, Any]:
    return {"peers": group.peers, "left": group.left, "majority": group.has_majority}


def fault_table(states: Sequence[tuple[OpenFault, bool]]) -> Table:
    """Open faults, each with whether anything of it is left."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("id", "fault", "where", "since", "now"):
        table.add_column(heading)
    for fault, is_over in states:
        style = "dim" if is_over else "bold red"
        age = int((datetime.now(UTC) - fault.since).total_seconds())
        table.add_row(
            fault.id, fault.command, fault.fault.where, f"{age} s ago", Text(_state(fault, is_over), style=style)
        )
    return table


def _state(fault: OpenFault, is_over: bool) -> str:
    if is_over:
        return "ended"
    return "active" if fault.is_confirmed else "not confirmed"


def fault_as_dict(fault: OpenFault) -> dict[str, Any]:
    """A fault as plain JSON data."""
    return {
        "id": fault.id,
        "asked": fault.command,
        "kind": fault.fault.kind,
        "servers": list(fault.fault.counted_as_lost),
        "where": fault.fault.where,
        "since": fault.since.isoformat(),
        "confirmed": fault.is_confirmed,
    }


def seconds(result: HealResult) -> float | None:
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


def resync(result: ResyncResult) -> Table:
    """One row for each read stream."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("stream", "place", "stepped down", "sources active", "caught up", ""):
        table.add_column(heading)
    for stream in result.streams:
        table.add_row(
            stream.stream,
            stream.region,
            "yes" if stream.is_stepped_down else "no",
            _show_seconds(stream.active),
            _show_seconds(stream.caught_up),
            stream.note or "",
        )
    return table


class RefreshPrinter:
    """What `repair sources --watch` does and waits for, each line once for as long as it stays the same."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._shown: tuple[str, ...] | None = None

    def show(self, look: RefreshLook) -> None:
        """Print what has changed since the last look; every refresh is new."""
        lines = [f"{decision.verb.value} {decision.stream}: {decision.reason}" for decision in look.decisions]
        if look.problem is not None:
            lines.append(f"problem: {look.problem}")
        waits = tuple(f"{decision.verb.value} {decision.stream}" for decision in look.decisions)
        key = (*waits, look.problem or "")
        if key == self._shown and not any(decision.verb is Verb.REFRESH for decision in look.decisions):
            return
        if self._is_json:
            print_json("resync-watch", refresh_as_dict(look), layout=JsonLayout.LINE)
        else:
            for line in lines or ["nothing stands still"]:
                console.stdout().print(f"{datetime.now(UTC):%H:%M:%S} {line}")
        sys.stdout.flush()
        self._shown = key


def refresh_as_dict(look: RefreshLook) -> dict[str, Any]:
    """One look as plain JSON data."""
    decisions = []
    for decision in look.decisions:
        decisions.append(
            {
                "stream": decision.stream,
                "place": decision.place,
                "action": decision.verb.value,
                "reason": decision.reason,
            }
        )
    return {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "streams": decisions, "problem": look.problem}


def resync_as_dict(result: ResyncResult) -> dict[str, Any]:
    """What a resync has done, as plain JSON data."""
    return {
        "complete": result.is_complete,
        "waited_seconds": round(result.waited, 3),
        "streams": [_resynced_as_dict(stream) for stream in result.streams],
    }


def _resynced_as_dict(stream: ResyncedStream) -> dict[str, Any]:
    return {
        "stream": stream.stream,
        "region": stream.region,
        "stepped_down": stream.is_stepped_down,
        "active_seconds": None if stream.active is None else round(stream.active, 3),
        "caught_up_seconds": None if stream.caught_up is None else round(stream.caught_up, 3),
        "note": stream.note,
    }


def _show_seconds(seconds: float | None) -> Text:
    return Text("✗ not yet", style="bold red") if seconds is None else Text(f"✓ {seconds:.1f} s", style="green")
