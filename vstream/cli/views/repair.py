"""The steps and the result of a repair: of messages, of sourcing, and of the meta group."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from vstream.cli.views import console
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.formatting import format_count, summarize_names
from vstream.health.live.rescue import MetaGroup, ResyncAfterRescue
from vstream.health.live.resync_readers import ResyncedStream, ResyncResult
from vstream.health.live.resync_watch import ResyncCheck
from vstream.health.repair.contents import ContentRepairs, RepairedContents
from vstream.health.repair.pipeline import RepairEnd, RepairKind, RepairResult
from vstream.health.repair.sourcing import (
    Refill,
    RepairedSourcing,
    SourcingRepairs,
    Standstill,
    format_sequences,
)
from vstream.health.resync_policy import ResyncAction


class RepairView:
    """Prints each stage of a repair, unless the output is JSON, and shows its progress."""

    def __init__(self, progress: Progress, *, is_text: bool) -> None:
        self._progress = progress
        self._is_text = is_text
        self._tasks: dict[str, TaskID] = {}
        """Of this stage, by names of streams."""

    def found_sourcing(self, repairs: SourcingRepairs) -> None:
        """What is wrong with how streams take from each other."""
        self._print(render_sourcing(repairs))

    def repaired_sourcing(self, repaired: RepairedSourcing) -> None:
        """What was done about it."""
        self._print(render_repaired_sourcing(repaired))

    def found_contents(self, repairs: ContentRepairs) -> None:
        """What is wrong with what streams hold."""
        self._print(render_contents(repairs))

    def repaired_contents(self, repaired: RepairedContents) -> None:
        """What was done about it."""
        self._print(render_repaired_contents(repaired))

    def show_progress(self, name: str, done: int, total: int) -> None:
        """How many messages of a stream were read or written."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=None)
        self._progress.update(self._tasks[name], completed=done, total=total or None)

    def _print(self, lines: Iterable[Text]) -> None:
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks.clear()
        if self._is_text:
            console.print_lines(lines)


def render_sourcing(repairs: SourcingRepairs) -> Iterator[Text]:
    """What is wrong with how streams take from each other, and what to do about it."""
    for leftover in repairs.leftovers:
        used = f", sourced by {summarize_names(list(leftover.readers))}" if leftover.readers else ""
        if leftover.is_running:
            yield _render_line(
                "running ", "bold cyan", leftover.stream, f"{used}: used by a repair that is still running; wait for it"
            )
        else:
            yield _render_line("clear   ", "bold yellow", leftover.stream, f"{used}: left by an interrupted repair")
    for standstill in repairs.standstills:
        yield _render_plan("resync  ", standstill, standstill.reader, f": {standstill.detail}")
        yield Text(f"        {standstill.obstacle or 'make its leader step down: the next leader retries at once'}")
    for refill in repairs.refills:
        yield from _render_refill(refill)
    for pair in (*repairs.unknown, *repairs.silent):
        yield _render_line(
            f"{pair.state.value:8}",
            "bold cyan",
            f"{pair.origin} → {pair.reader}",
            f": {pair.detail}; bring back servers that are down, then check again",
        )


def _render_refill(refill: Refill) -> Iterator[Text]:
    lost = refill.lost
    yield _render_plan(
        "refill  ",
        refill,
        lost.origin,
        f" in {lost.place}: it ends at {lost.last:,}, and {', '.join(lost.readers)} have sourced up to {lost.last_taken:,}",
    )
    if refill.obstacle:
        yield Text(f"        {refill.obstacle}")
        return
    readers = ", ".join(dict.fromkeys(held.reader for held in refill.messages))
    held = f", from {readers}" if refill.messages else ""
    yield Text(f"        publish {len(refill.messages):,} messages again{held}, with their old sequences")
    if refill.absent:
        yield Text(
            f"        and an empty one on `{refill.filler}` for {format_sequences(refill.absent)}, which no reader has"
        )


def render_contents(repairs: ContentRepairs) -> Iterator[Text]:
    """What is missing and what is there twice, and what could not be read."""
    for replay in repairs.replays:
        if replay.count:
            yield _render_line(
                "replay  ",
                "bold yellow",
                replay.reader,
                f" in {replay.place}: it lacks {format_count(replay.count, 'message')} of {replay.origin}, {replay.sequences.describe()}",
            )
            yield Text(f"        add them at its end, from {summarize_names(sorted(replay.by_holder))}")
        for reason, sequences in sorted(replay.irreparable.items()):
            yield _render_line(
                "stays   ", "bold cyan", replay.reader, f" lacks {sequences.describe()} of {replay.origin}: {reason}"
            )
    for reused in repairs.reused:
        yield _render_line(
            "blocked ",
            "bold red",
            reused.reader,
            f" in {reused.place}: {reused.origin} has stored other messages than it took, at {reused.sequences.describe()}",
        )
        yield Text(
            f"        {reused.origin} used these sequences again after a loss: neither has what the other has there. Publish "
            f"what only {reused.origin} has again, under other message ids; then delete it there"
        )
    for duplicates in repairs.duplicates:
        if duplicates.count:
            first = duplicates.examples[0]
            yield _render_line(
                "delete  ",
                "bold yellow",
                duplicates.reader,
                f" in {duplicates.place}: it holds copies of {format_count(duplicates.count, 'message')}",
            )
            yield Text(
                f"        as {first.origin} {first.origin_seq:,}, at {first.kept_seq:,} and again at {first.deleted_seq:,}: one stays"
            )
        for reason, number in sorted(duplicates.differing.items()):
            example = next((pair for pair in duplicates.differing_examples if pair.difference == reason), None)
            shown = f", as at {example.kept_seq:,} and {example.deleted_seq:,}" if example else ""
            yield _render_line(
                "stays   ",
                "bold cyan",
                duplicates.reader,
                f": {format_count(number, 'message')} with the origin and sequence of another{shown}, but {reason}",
            )
    for name, reason in sorted(repairs.unread.items()):
        yield _render_line("unread  ", "bold red", name, f": {reason}")


def render_repaired_sourcing(repaired: RepairedSourcing) -> Iterator[Text]:
    """What was done about how streams take from each other."""
    for leftover in repaired.cleared:
        yield _render_line("cleared  ", "bold green", leftover.stream, "")
    for standstill in repaired.resynced:
        origins = summarize_names(list(standstill.origins))
        yield _render_line("resynced ", "bold green", standstill.reader, f": it sources {origins} again")
    for refill in repaired.refilled:
        number = refill.lost.last_taken - refill.lost.last
        yield _render_line(
            "refilled ", "bold green", refill.lost.origin, f": {number:,} messages, to {refill.lost.last_taken:,}"
        )


def render_repaired_contents(repaired: RepairedContents) -> Iterator[Text]:
    """What was put in and deleted."""
    for replay in repaired.replayed:
        messages = format_count(replay.count, "message")
        yield _render_line("replayed ", "bold green", replay.reader, f": {messages} of {replay.origin}")
    for duplicates in repaired.deleted:
        yield _render_line(
            "deleted  ", "bold green", duplicates.reader, f": {format_count(duplicates.count, 'message')}"
        )


def render_end(result: RepairResult) -> Iterator[Text]:
    """What is still open, or that there was nothing to repair."""
    for line in result.still_open:
        yield Text.assemble(("open     ", "bold red"), line)
    if result.outcome is RepairEnd.HEALTHY:
        kinds = ", ".join(kind.value for kind in RepairKind if kind in result.request.kinds)
        yield Text(f"Nothing to repair (checked: {kinds}).", style="bold green")


def _render_plan(verb: str, planned: Standstill | Refill, name: str, rest: str) -> Text:
    if planned.obstacle:
        return _render_line("blocked ", "bold red", name, rest)
    return _render_line(verb, "bold yellow", name, rest)


def _render_line(verb: str, style: str, name: str, rest: str) -> Text:
    return Text.assemble((verb, style), (name, "bold"), rest)


def render_groups(groups: Sequence[MetaGroup]) -> Iterator[Text]:
    """Who is alive and who is dead, and what will be done."""
    for group in groups:
        yield Text(f"meta group of {group.name}: {len(group.members)} servers, majority {group.majority}", style="bold")
        for server in group.members:
            if server in group.alive:
                yield Text.assemble(("  ✓ ", "green"), f"{server} answers ({group.alive[server]})")
            else:
                yield Text.assemble(("  ✗ ", "bold red"), f"{server} is seen by nobody")
        yield from (Text.assemble(("  ? ", "bold yellow"), sentence) for sentence in group.unknown)
        yield from _describe_plan(group)


def _describe_plan(group: MetaGroup) -> Iterator[Text]:
    if group.refusal is not None:
        yield Text(f"  nothing to do: {group.refusal}", style="bold")
        missing = group.majority - len(group.alive)
        if group.leader is None and missing > 0:
            yield Text(
                f"  Start {missing} of {', '.join(group.dead)}, with their disks: then the group elects a leader."
            )
        return
    if group.unknown:
        yield Text("  Which of its servers are dead is not known.", style="bold yellow")
        return
    if not group.is_going_on:
        yield Text(f"  → {len(group.alive)} servers go on with {len(group.alive)} votes: `META.RESCUE`")
        yield Text(
            "  A server that is cut off looks dead, and what it accepts contradicts the others for ever. "
            "Make sure that the dead servers are off."
        )
        missing = group.majority - len(group.alive)
        yield Text(f"  Better, if it can be done: start {missing} of them, with their disks.")
    yield from (Text(f"  → forget {server}") for server in group.to_remove)
    yield Text("  → resync every read stream")


def describe_resync_after_rescue(resynced: ResyncAfterRescue) -> Iterator[str]:
    """What is left to do where not all read streams were resynced."""
    if resynced.dead_regions:
        regions = " --also ".join(resynced.dead_regions)
        yield f"Dead: {', '.join(resynced.dead_regions)}. Go on with `vstream region failover {regions}`."
    if resynced.problem:
        yield f"Not all read streams were resynced: {resynced.problem}. `vstream repair sources` tries again."


def rescue_as_dict(topology: str, groups: Sequence[MetaGroup], *, is_done: bool) -> dict[str, Any]:
    """Everything that was known before, and whether something was done."""
    return {"topology": topology, "groups": [_group_as_dict(group) for group in groups], "done": is_done}


def _group_as_dict(group: MetaGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "majority": group.majority,
        "alive": dict(group.alive),
        "dead": list(group.dead),
        "unknown": list(group.unknown),
        "leader": group.leader,
        "refused": group.refusal,
        "remove": list(group.to_remove) if group.refusal is None else [],
    }


def resync_table(result: ResyncResult) -> Table:
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


class ResyncPrinter:
    """What `repair sources --watch` does and waits for, each line once for as long as it stays the same."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._shown: tuple[str, ...] | None = None

    def show(self, look: ResyncCheck) -> None:
        """Print what has changed since the last look; every resync is new."""
        lines = [f"{decision.action.value} {decision.stream}: {decision.reason}" for decision in look.decisions]
        if look.problem is not None:
            lines.append(f"problem: {look.problem}")
        waits = tuple(f"{decision.action.value} {decision.stream}" for decision in look.decisions)
        key = (*waits, look.problem or "")
        if key == self._shown and not any(decision.action is ResyncAction.RESYNC for decision in look.decisions):
            return
        if self._is_json:
            print_json("resync-watch", check_as_dict(look), layout=JsonLayout.LINE)
        else:
            for line in lines or ["nothing stands still"]:
                console.stdout().print(f"{datetime.now(UTC):%H:%M:%S} {line}")
        sys.stdout.flush()
        self._shown = key


def check_as_dict(look: ResyncCheck) -> dict[str, Any]:
    """One look as plain JSON data."""
    decisions = []
    for decision in look.decisions:
        row = {"stream": decision.stream, "place": decision.place, "action": decision.action.value}
        decisions.append({**row, "reason": decision.reason})
    return {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "streams": decisions, "problem": look.problem}


def resync_as_dict(result: ResyncResult) -> dict[str, Any]:
    """What a resync of all read streams has done, as plain JSON data."""
    return {
        "complete": not result.behind,
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
