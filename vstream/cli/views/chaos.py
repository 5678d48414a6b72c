"""Faults, what they will do and what shows that they bite, as text and as plain data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.chaos.blast_radius import Quorum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vstream.chaos.blast_radius import GroupEffect, Impact, SideEffect
    from vstream.chaos.inject import HealResult
    from vstream.chaos.journal import OpenFault
    from vstream.chaos.rolling_restart import RestartResult
    from vstream.health.live.resync import ResyncResult

_STYLE = {Quorum.KEPT: "green", Quorum.PERHAPS: "bold yellow", Quorum.LOST: "bold red"}


def blast(effects: Impact) -> Iterator[Text]:
    """A line for each region that misses a server, for each side, the stretch cluster, the meta group, and each loss; or one."""
    lines = list(_lines(effects))
    yield from lines or [Text("  every server, and every link")]


def _lines(effects: Impact) -> Iterator[Text]:
    for one in effects.regions:
        if one.left == one.servers:
            continue
        streams = f"{one.streams} write stream{'' if one.streams == 1 else 's'}"
        words = {
            Quorum.KEPT: f"{streams} can store",
            Quorum.PERHAPS: f"{one.without} of {streams} may be unable to store, which depends on the replicas' places",
            Quorum.LOST: f"{one.without} of {streams} cannot store",
        }
        yield Text.assemble(
            f"  {one.region}: {one.left} of {one.servers} servers left, ", (words[one.quorum], _STYLE[one.quorum])
        )
    if len(effects.sides) > 1:
        for side in effects.sides:
            servers = f"{side.servers} server{'' if side.servers == 1 else 's'}"
            yield Text.assemble(f"  on one side: {', '.join(side.regions)}, {servers}, ", _leader(effects, side))
    if effects.stretch is not None:
        yield _group("stretch cluster", effects.stretch)
    if effects.meta is not None:
        yield _group("meta group", effects.meta)
    for region in effects.apart:
        yield Text.assemble(f"  {region}: no hub, ", ("nothing is copied from there or to there", "bold yellow"))
    for loss in effects.losses:
        yield Text(f"  {loss}", style="bold red")


def _leader(effects: Impact, side: SideEffect) -> tuple[str, str]:
    if effects.meta is None:
        return "a meta leader in each region", "green"
    return ("meta leader possible", "green") if side.has_meta_majority else ("no meta leader", "bold red")


def _group(name: str, group: GroupEffect) -> Text:
    verdict = ("keeps its majority", "green") if group.has_majority else ("no majority, no leader", "bold red")
    return Text.assemble(f"  {name}: {group.left} of {group.peers} servers left, ", verdict)


def blast_as_dict(effects: Impact) -> dict[str, Any]:
    """The same as plain JSON data."""
    return {
        "regions": [
            {
                "region": one.region,
                "servers": one.servers,
                "left": one.left,
                "write_streams": one.streams,
                "without_quorum": one.without,
                "quorum": one.quorum.value,
            }
            for one in effects.regions
        ],
        "meta": None if effects.meta is None else _group_as_dict(effects.meta),
        "stretch": None if effects.stretch is None else _group_as_dict(effects.stretch),
        "sides": [
            {"regions": list(one.regions), "servers": one.servers, "meta": one.has_meta_majority}
            for one in effects.sides
        ],
        "without_hub": list(effects.apart),
        "losses": list(effects.losses),
        "refusals": list(effects.refusals),
    }


def _group_as_dict(group: GroupEffect) -> dict[str, Any]:
    return {"peers": group.peers, "left": group.left, "majority": group.has_majority}


def faults(found: Sequence[tuple[OpenFault, bool]]) -> Table:
    """Open faults, each with whether anything of it is left."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("id", "fault", "where", "since", "now"):
        table.add_column(heading)
    for one, is_over in found:
        now = "over" if is_over else "bites" if one.is_confirmed else "not confirmed"
        style = "dim" if is_over else "bold red"
        seconds = int((datetime.now(UTC) - one.since).total_seconds())
        table.add_row(one.id, one.asked, one.fault.where, f"{seconds} s ago", Text(now, style=style))
    return table


def fault_as_dict(one: OpenFault) -> dict[str, Any]:
    """A fault as plain JSON data."""
    return {
        "id": one.id,
        "asked": one.asked,
        "kind": one.fault.kind,
        "servers": list(one.fault.servers),
        "where": one.fault.where,
        "since": one.since.isoformat(),
        "confirmed": one.is_confirmed,
    }


def seconds(result: HealResult) -> float | None:
    """How long it took, for programs."""
    return None if result.seconds is None else round(result.seconds, 3)


def healed(result: HealResult) -> str:
    """One line."""
    if not result.faults:
        return "nothing is open"
    undone = ", ".join(f"{one.id} ({one.asked})" for one in result.faults)
    if result.seconds is None:
        return f"undone: {undone}; no server of the lab runs (`vstream lab up` starts them)"
    return f"healed {undone}: healthy after {result.seconds:.1f} s"


def restarted(one: RestartResult) -> str:
    """One line."""
    return f"{one.server}: ended in {one.stopping:.1f} s, healthy {one.recovering:.1f} s later, runs {one.version}"


def resync(result: ResyncResult) -> Table:
    """One row for each read stream."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("stream", "place", "stepped down", "sources active", "caught up", ""):
        table.add_column(heading)
    for one in result.streams:
        table.add_row(
            one.stream,
            one.region,
            "yes" if one.is_stepped_down else "no",
            _after(one.active),
            _after(one.caught_up),
            one.note or "",
        )
    return table


def resync_as_dict(result: ResyncResult) -> dict[str, Any]:
    """The same as plain JSON data."""
    return {
        "complete": result.is_complete,
        "waited_seconds": round(result.waited, 3),
        "streams": [
            {
                "stream": one.stream,
                "region": one.region,
                "stepped_down": one.is_stepped_down,
                "active_seconds": None if one.active is None else round(one.active, 3),
                "caught_up_seconds": None if one.caught_up is None else round(one.caught_up, 3),
                "note": one.note,
            }
            for one in result.streams
        ],
    }


def _after(seconds: float | None) -> Text:
    return Text("✗ not yet", style="bold red") if seconds is None else Text(f"✓ {seconds:.1f} s", style="green")
