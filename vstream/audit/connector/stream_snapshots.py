"""
The consistent snapshot: the last sequence to read of each stream, fixed before reading begins.

Write streams are asked before the streams that source them: so a message that a read
stream lacks below its own bound was in the write stream before the read stream was asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final

from vstream.audit.connector import direct_get
from vstream.audit.connector.client import Client, api_request, connect, parse_api_answer
from vstream.audit.connector.values import ABSENT, CONSUMER, DIRECT, Access, ReadSnapshot, SourceCursor, StreamRef
from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import error_codes
from vstream.jetstream.answers import convert_malformed_errors, is_from_leader, require_config, require_text
from vstream.topology.stream_config import UNTIL_KEY, source_name

_TAKING = frozenset({"write", "origin"})
"""Roles of streams that clients publish to."""
_BY_LIMITS = "limits"
_LIMITED = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject", "first_seq")
_FLAGS = ("allow_msg_ttl", "allow_rollup_hdrs", "allow_msg_counter")
_BATCHES_SINCE = (2, 11)
SKEW_NS: Final = 1_000_000_000
"""Clock difference between machines below which a time proves nothing, in nanoseconds."""
MAX_SKEW_NS: Final = 5 * SKEW_NS
"""Clock difference, in nanoseconds, that a read of a period allows for between two servers: it costs a few messages more."""


def take_snapshots(
    stream_refs: Sequence[StreamRef], access: Mapping[str, Access], *, path: str | None = None
) -> list[ReadSnapshot]:
    """
    A snapshot of each stream of *stream_refs*, in the same order. The snapshot of a stream that cannot be asked or read has an error.

    If *path* is None, each stream gets the fastest path that it allows. Raises VstreamError only
    if nothing could be tried: a secret is missing, or a server refuses the connection.
    """
    snapshots_by_stream: dict[StreamRef, ReadSnapshot] = {}
    lost: dict[str, str] = {}
    for (_, region), group in groupby(sorted(stream_refs, key=_asking_order), key=_asking_order):
        streams = list(group)
        # Who does not answer is waited for once, not for each kind of stream.
        if region not in lost:
            try:
                snapshots_by_stream |= zip(streams, _ask_region(streams, access[region], path), strict=True)
                continue
            except NotPermittedError:
                raise
            except NotReachableError as error:
                lost[region] = error.message
        for stream in streams:
            why = lost[region]
            snapshots_by_stream[stream] = ReadSnapshot(stream_ref=stream, snapshot_ns=time.time_ns(), error=why)
    return [snapshots_by_stream[item] for item in stream_refs]


def is_any_answered(streams: Sequence[StreamRef], access: Access) -> bool:
    """Whether *access* reaches the leader of any of *streams*, all in one place, or an answer that it does not exist."""
    try:
        return any(item.error in {None, ABSENT} and item.is_led for item in _ask_region(streams, access, None))
    except NotReachableError:
        return False


def _asking_order(stream: StreamRef) -> tuple[bool, str]:
    return stream.role not in _TAKING, stream.region


def _ask_region(streams: Sequence[StreamRef], access: Access, path: str | None) -> list[ReadSnapshot]:
    """Snapshots of the streams of one region, over one connection. Raises NotReachableError without a connection."""
    subjects = [f"{access.with_prefix_of(item.stream).api_prefix}.STREAM.INFO.{item.name}" for item in streams]
    with connect(access) as client:
        has_leader = path is None and _has_meta_leader(client, access.with_prefix_of(streams[0].stream))
        asked_at = time.time_ns()
        answers = client.request_many([(subject, b"") for subject in subjects])
        version = client.server_version
    snapshots = []
    for entry, subject, answer in zip(streams, subjects, answers, strict=True):
        try:
            if isinstance(answer, VstreamError):
                raise answer
            with convert_malformed_errors(subject):
                info = parse_api_answer(answer, subject)
                snapshots.append(_parse_snapshot(entry, info, asked_at, version, path, has_leader=has_leader))
        except VstreamError as error:
            is_absent = isinstance(error, ServerError) and error.err_code == error_codes.STREAM_NOT_FOUND
            why = ABSENT if is_absent else error.message
            snapshots.append(ReadSnapshot(stream_ref=entry, snapshot_ns=asked_at, server_version=version, error=why))
    return snapshots


def _parse_snapshot(
    stream: StreamRef, info: Mapping[str, Any], asked_at: int, version: str, path: str | None, *, has_leader: bool
) -> ReadSnapshot:
    state, config = info["state"], require_config(info.get("config"), f"$JS.API.STREAM.INFO.{stream.stream}")
    chosen, problem = choose_path(config, version, path, has_leader=has_leader)
    has_batches = path is None and choose_path(config, version, DIRECT, has_leader=has_leader)[1] is None
    limits = find_limits(config)
    sources = []
    for item in info.get("sources") or ():
        sources.append(SourceCursor(origin=source_name(item, stream.stream), last_seq=_last_sourced(item, version)))
    # A region that was given up is sourced no more, but messages that it had sent before are still expected here.
    ends = {key.removeprefix(UNTIL_KEY): seq for key, seq in limits.items() if key.startswith(UNTIL_KEY)}
    sources += [SourceCursor(origin=origin, last_seq=seq) for origin, seq in ends.items()]
    return ReadSnapshot(
        stream_ref=stream,
        snapshot_ns=_read_answer_time(info.get("ts"), asked_at),
        first_seq=int(state["first_seq"]),
        last_seq=int(state["last_seq"]),
        messages=int(state["messages"]),
        num_deleted=int(state.get("num_deleted") or 0),
        bytes=int(state["bytes"]),
        server_version=version,
        path=chosen,
        sources=tuple(sources),
        limits=limits,
        created=None if (created := info.get("created")) is None else require_text(created),
        last_ts=None if (last_ts := state.get("last_ts")) is None else require_text(last_ts),
        is_restored=bool(state["messages"]) and _is_older(state.get("first_ts"), created),
        mirror=source_name(mirror, stream.stream) if (mirror := config.get("mirror")) else None,
        transform=_transform(config.get("subject_transform")),
        has_batches=has_batches,
        is_led=is_from_leader(info),
        error=problem if state["messages"] else None,
    )


def find_limits(config: Mapping[str, Any]) -> dict[str, int]:
    """The limits in *config* that are set (unset ones are 0 or -1), where it began and ended, and the duplicate window, 0 for none."""
    limits = {name: int(config[name]) for name in _LIMITED if int(config.get(name) or 0) > 0}
    if config.get("retention", _BY_LIMITS) != _BY_LIMITS:
        limits["retention"] = 1
    ends = (config.get("metadata") or {}).items()
    limits |= {key: int(seq) for key, seq in ends if key.startswith(UNTIL_KEY) and str(seq).isdecimal()}
    window = int(config.get("duplicate_window") or 0)
    return limits | {name: 1 for name in _FLAGS if config.get(name)} | {"duplicate_window": window}


def _is_older(first_at: object, created: object) -> bool:
    """Whether a stream's first message is older than the stream."""
    if first_at is None or created is None:
        return False
    skew = timedelta(microseconds=SKEW_NS / 1000)
    return datetime.fromisoformat(require_text(first_at)) + skew < datetime.fromisoformat(require_text(created))


def _read_answer_time(told: object, asked_at: int) -> int:
    """When the stream's leader answered, by its clock, which also gives messages their times; ours may be wrong."""
    return asked_at if told is None else round(datetime.fromisoformat(require_text(told)).timestamp() * 10**6) * 1000


def _transform(transform: Mapping[str, Any] | None) -> tuple[str, str] | None:
    return (str(transform.get("src", "")), str(transform.get("dest", ""))) if transform else None


def choose_path(
    config: Mapping[str, Any], version: str, path: str | None, *, has_leader: bool
) -> tuple[str | None, str | None]:
    """
    The path for a stream with *config*, or None and the reason why no path works.

    *has_leader* (there is a meta leader) matters only if *path* is None.
    """
    is_kept = config.get("retention", _BY_LIMITS) == _BY_LIMITS
    minor = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    problems: dict[str, str | None] = {CONSUMER: None, DIRECT: None}
    if not is_kept:
        problems[CONSUMER] = f"reading by a consumer would remove messages: its retention is {config['retention']}"
    if not config.get("allow_direct"):
        problems[DIRECT] = "its allow_direct is off"
    elif minor < _BATCHES_SINCE:
        problems[DIRECT] = f"Direct Get has no batches in nats-server {version}"
    if path is not None:
        return (None, problems[path]) if problems[path] else (path, None)
    if has_leader and not problems[CONSUMER]:
        return CONSUMER, None
    if not problems[DIRECT]:
        return DIRECT, None
    return None, f"{problems[CONSUMER] or 'the meta leader does not answer'}, and {problems[DIRECT]}"


def _has_meta_leader(client: Client, access: Access) -> bool:
    """Whether consumers can be created: the request for account information needs the same leader."""
    try:
        api_request(client, access, "INFO")
    except NotPermittedError:
        raise
    except (ServerError, NoRespondersError, NotReachableError):
        return False
    return True


def _last_sourced(source: Mapping[str, Any], version: str) -> int | None:
    """The last sourced sequence; servers from 2.15 on report it, but omit a 0."""
    if "seq" in source:
        return int(source["seq"])
    minor = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return 0 if minor >= (2, 15) else None


def ask_for_period(
    snapshot: ReadSnapshot, access: Access, *, since_ns: int | None = None, until_ns: int | None = None
) -> ReadSnapshot:
    """The part of *snapshot* stored from *since_ns* to *until_ns*, in nanoseconds since 1970, and MAX_SKEW_NS around that."""
    if not snapshot.is_readable or (since_ns is None and until_ns is None):
        return snapshot
    first = last = None
    with connect(access) as client:
        if since_ns is not None:
            first = _find_sequence_at(client, access, snapshot, max(0, since_ns - MAX_SKEW_NS))
        if until_ns is not None:
            last = _find_sequence_at(client, access, snapshot, max(0, until_ns + 1 + MAX_SKEW_NS)) - 1
    return snapshot.clip(first=first, last=last)


def _find_sequence_at(client: Client, access: Access, snapshot: ReadSnapshot, moment_ns: int) -> int:
    """Like `find_sequence_by_consumer`, without a consumer where no meta leader creates one."""
    if snapshot.path == CONSUMER:
        try:
            return find_sequence_by_consumer(
                client, access.with_prefix_of(snapshot.stream_ref.stream), snapshot.stream_ref.name, moment_ns
            )
        except (NotReachableError, ServerError):
            # The meta leader may be gone since the snapshot, in a region that has just been cut off.
            if not snapshot.has_batches:
                raise
    return direct_get.find_sequence_at(client, access, snapshot, moment_ns)


def find_sequence_by_consumer(client: Client, access: Access, stream: str, moment_ns: int) -> int:
    """
    The sequence of the first message that *stream* stored at *moment_ns* or later; one above the last if none.

    Creates a consumer to find it, and removes it: that works on every version.
    """
    name = f"vstream-audit-at-{moment_ns:x}-{time.time_ns() & 0xFFFFFF:x}"
    subject = f"CONSUMER.CREATE.{stream}.{name}"
    seconds, rest = divmod(moment_ns, 10**9)
    config = {
        "name": name,
        "deliver_policy": "by_start_time",
        "opt_start_time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09}Z",
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 5 * 10**9,
    }
    created = api_request(client, access, subject, {"stream_name": stream, "config": config})
    client.request_many([(f"{access.api_prefix}.CONSUMER.DELETE.{stream}.{name}", json.dumps({}).encode())])
    with convert_malformed_errors(subject):
        return int(created["delivered"]["stream_seq"]) + 1
