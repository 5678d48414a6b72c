"""What a client in a region can reach: the JetStream API, origins in other regions, and whoever listens for a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from vstream.errors import VstreamError
from vstream.health.snapshot import AccountUsage, RegionSnapshot, StreamSnapshot
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import api_error, convert_malformed_errors
from vstream.jetstream.connection import Connection
from vstream.topology import naming, physical
from vstream.topology.model import Topology

_INFO_SUBJECT = "$JS.API.INFO"
_MAX_SUBSCRIPTIONS = 100_000
"""Of an account on one server. They cost it 5 µs each, and 180 bytes; where there are more, nobody looks."""


async def observe_region(
    topology: Topology, name: str, connection: Connection | None, problem: str | None, deadline: float
) -> RegionSnapshot:
    """What region *name* answers over its *connection* before *deadline*, on the monotonic clock."""
    if connection is None:
        return RegionSnapshot(name=name, problem=problem)
    patience = max(0.05, deadline - time.monotonic())
    streams = [stream for stream in topology.streams if stream.origin_settings and name in stream.regions]
    away = [physical.write_stream_in(stream, name) for stream in streams]
    (control, usage), reached = await asyncio.gather(
        _ask_leader(connection, patience),
        asyncio.gather(*(_find_origin_problem(JetStreamAdmin(connection), origin, patience) for origin in away)),
    )
    origins = dict(zip(away, reached, strict=True))
    return RegionSnapshot(name=name, problem=problem, control=control, account_usage=usage, origins=origins)


async def _ask_leader(connection: Connection, patience: float) -> tuple[str | None, tuple[AccountUsage, ...]]:
    """Why the meta leader does not answer, None if it does; and what it says that the account stores."""
    try:
        answer = await connection.request_json(_INFO_SUBJECT, timeout=patience)
        if (refusal := api_error(answer, _INFO_SUBJECT)) is not None:
            return refusal.description, ()
        with convert_malformed_errors(_INFO_SUBJECT):
            return None, _parse_account_usage(answer)
    except VstreamError as error:
        return error.message, ()


def _parse_account_usage(answer: Mapping[str, Any]) -> tuple[AccountUsage, ...]:
    """Each limit of the account in *answer*. Operator mode may have one for each number of replicas."""
    usages = []
    for part in (answer.get("tiers") or {"": answer}).values():
        for storage, name in (("file", "storage"), ("memory", "memory")):
            limit = int((part.get("limits") or {}).get(f"max_{name}", -1))
            if limit > 0:  # 0 forbids it, and -1 limits nothing
                usages.append(AccountUsage(storage=storage, used=int(part.get(name, 0)), limit=limit))
    return tuple(usages)


async def _find_origin_problem(admin: JetStreamAdmin, name: str, patience: float) -> str | None:
    try:
        await admin.info(name, timeout=patience)
    except VstreamError as error:
        return error.message
    return None


async def find_unsubscribed(
    url: str, account: str, streams: Iterable[StreamSnapshot], timeout: float
) -> dict[str, tuple[str, ...]]:
    """By stream of *streams*, the subjects that the server at *url*, which leads it, is not subscribed to, as far as it tells."""
    try:
        subscribed = await monitoring.list_subscribed_subjects(url, account, _MAX_SUBSCRIPTIONS, timeout)
    except VstreamError:
        return {}  # that it does not answer is a finding of its own
    missing = {}
    for stream in streams:
        missing[stream.name] = tuple(subject for subject in _listens_on(stream) if subject not in subscribed)
    return {name: subjects for name, subjects in missing.items() if subjects}


def _listens_on(stream: StreamSnapshot) -> Iterable[str]:
    config = stream.config or {}
    subjects = config.get("subjects")
    yield from map(str, subjects) if isinstance(subjects, list) else ()
    if config.get("allow_direct"):
        yield naming.api_subject("DIRECT.GET", str(config["name"]))
