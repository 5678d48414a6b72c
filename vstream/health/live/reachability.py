"""What a client in a region can reach: the JetStream API, origins in other regions, and whoever listens for a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from vstream.errors import VstreamError
from vstream.health.snapshot import RegionSnapshot, StreamSnapshot
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import api_error
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
    control, reached = await asyncio.gather(
        _find_leader_problem(connection, patience),
        asyncio.gather(*(_find_origin_problem(JetStreamAdmin(connection), origin, patience) for origin in away)),
    )
    return RegionSnapshot(name=name, problem=problem, control=control, origins=dict(zip(away, reached, strict=True)))


async def _find_leader_problem(connection: Connection, patience: float) -> str | None:
    """Why the meta leader does not answer, None if it does."""
    try:
        refusal = api_error(await connection.request_json(_INFO_SUBJECT, timeout=patience), _INFO_SUBJECT)
    except VstreamError as error:
        return error.message
    return None if refusal is None else refusal.description


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
