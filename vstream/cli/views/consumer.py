"""Kept positions of consumers in words and as JSON."""

from __future__ import annotations

import sys
from typing import Any

from vstream.cli.views import console
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.health.live.consumer_sync import SyncedConsumer
from vstream.plan import consumer_failover


class SyncPrinter:
    """Prints what `consumer sync` has kept; with *is_watching*, what changed since the last look, in a line of JSON each."""

    def __init__(self, *, is_json: bool, is_watching: bool) -> None:
        self._is_json = is_json
        self._is_watching = is_watching
        self._shown: set[str] = set()

    def show(self, synced: tuple[SyncedConsumer, ...]) -> None:
        """Print one look."""
        lines = [_describe(item) for item in synced]
        if self._is_watching and self._shown == {*lines}:
            return
        if self._is_json:
            layout = JsonLayout.LINE if self._is_watching else JsonLayout.INDENTED
            print_json("consumer-sync", {"consumers": [_as_dict(item) for item in synced]}, layout=layout)
        else:
            for line in lines or ["the topology has no consumers"]:
                if line not in self._shown:
                    console.stdout().print(line)
        sys.stdout.flush()
        self._shown = {*lines}


def _describe(synced: SyncedConsumer) -> str:
    durable, position = synced.durable, synced.position
    parts = list(synced.problems)
    if position is not None:
        reached = ", ".join(f"{name} {seq:,}" for name, seq in position.origins.items())
        parts = [reached, f"kept in {', '.join(synced.kept_in) or 'no other region'}", *parts]
    return f"{durable.virtual} > {durable.name} in {durable.region}: {'; '.join(parts)}"


def _as_dict(synced: SyncedConsumer) -> dict[str, Any]:
    return {
        "stream": synced.durable.virtual,
        "consumer": synced.durable.name,
        "region": synced.durable.region,
        "position": None if synced.position is None else consumer_failover.as_dict(synced.position),
        "kept_in": list(synced.kept_in),
        "problems": list(synced.problems),
    }
