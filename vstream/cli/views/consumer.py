"""Text and JSON for `vstream consumer`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from vstream.cli.views import console
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.health.live.consumer_position import ConsumerMove
from vstream.health.live.consumer_sync import SyncedConsumer
from vstream.plan import consumer_failover
from vstream.plan.consumer_failover import Position


def render_position(position: Position, when: str) -> Iterator[Text]:
    """How far a consumer was, *when*, in each origin."""
    origins = ", ".join(f"{name} {seq:,}" for name, seq in position.origins.items())
    yield Text.assemble((position.consumer, "bold"), f" in {position.region}, {when}: position {origins}")
    for name in position.unknown:
        yield Text.assemble(
            ("  ? ", "yellow"), f"no earlier message of `{name}` was found: all its messages are delivered again"
        )


def render_failover(move: ConsumerMove) -> Iterator[Text]:
    """Where it was, where that is in the other region, and what comes again."""
    position, start, consumer = move.position, move.start, move.existing
    yield from render_position(position, f"as of {position.at}" if move.is_recorded else "now")
    verb = "replaces" if consumer else "makes"
    yield Text.assemble(
        f"  {verb} ",
        (move.config.name, "bold"),
        f", beginning with sequence {start.seq:,}: {start.remaining:,} messages",
    )
    if consumer is not None and consumer.delivered:
        yield Text(
            f"      it was at {consumer.ack_floor:,} ({consumer.unacknowledged:,} not acknowledged); that position is dropped"
        )
    yield Text.assemble("  delivered again: at least ", (f"{start.redelivered:,}", "bold"))
    if position.beyond:
        yield Text(f"      and {position.beyond:,} that were acknowledged out of order")
    if position.unacknowledged:
        yield Text(f"      and up to {position.unacknowledged:,} that were delivered and not acknowledged")
    if move.is_recorded:
        since = start.remaining - start.redelivered
        yield Text(f"      and what was acknowledged since then: at most {since:,}, all that is there by now")
    yield Text("  skipped: nothing")


class SyncPrinter:
    """Prints what `consumer sync` has kept; with *is_watching*, what changed since the last look, in a line of JSON each."""

    def __init__(self, *, is_json: bool, is_watching: bool) -> None:
        self._is_json = is_json
        self._is_watching = is_watching
        self._shown: set[str] = set()

    def show(self, synced: tuple[SyncedConsumer, ...]) -> None:
        """Print one look."""
        lines = [_describe_synced(item) for item in synced]
        if self._is_watching and self._shown == {*lines}:
            return
        if self._is_json:
            layout = JsonLayout.LINE if self._is_watching else JsonLayout.INDENTED
            print_json("consumer-sync", {"consumers": [_synced_as_dict(item) for item in synced]}, layout=layout)
        else:
            for line in lines or ["the topology has no consumers"]:
                if line not in self._shown:
                    console.stdout().print(line)
        sys.stdout.flush()
        self._shown = {*lines}


def _describe_synced(synced: SyncedConsumer) -> str:
    durable, position = synced.durable, synced.position
    parts = list(synced.problems)
    if position is not None:
        reached = ", ".join(f"{name} {seq:,}" for name, seq in position.origins.items())
        parts = [reached, f"kept in {', '.join(synced.kept_in) or 'no other region'}", *parts]
    return f"{durable.virtual} > {durable.name} in {durable.region}: {'; '.join(parts)}"


def _synced_as_dict(synced: SyncedConsumer) -> dict[str, Any]:
    return {
        "stream": synced.durable.virtual,
        "consumer": synced.durable.name,
        "region": synced.durable.region,
        "position": None if synced.position is None else consumer_failover.as_dict(synced.position),
        "kept_in": list(synced.kept_in),
        "problems": list(synced.problems),
    }


def failover_as_dict(move: ConsumerMove, to: str, pending: int | None, *, is_done: bool) -> dict[str, object]:
    """What `consumer failover` will do, or has done."""
    position, start = move.position, move.start
    return {
        "position": consumer_failover.as_dict(position),
        "to": to,
        "consumer": move.config.name,
        "replaces": move.existing is not None,
        "start": start.seq,
        "seen_twice": start.redelivered,
        "seen_twice_at_most": move.seen_twice_at_most,
        "ahead": start.remaining,
        "done": is_done,
        "pending": pending,
    }
