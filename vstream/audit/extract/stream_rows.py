"""Rows of the table `streams`: what each stream was when it was read, and which of its limits may explain a difference."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Final

from vstream.audit.connector.values import ReadSnapshot
from vstream.audit.tables.stream_settings import CAPTURE, HAS_HOLES, LOST_OLDEST, SUDDEN, is_origin
from vstream.topology.stream_limits import REMOVING, SIZES

_MAX_MESSAGE_BYTES: Final = 64 * 1024**2
"""The most bytes of a message that servers allow."""
_ALPHABET: Final = digits + ascii_uppercase + ascii_lowercase
_NAME_LENGTH: Final = 8


def make_stream_row(
    snapshot: ReadSnapshot, read_in_ns: int = 0, arrivals: int = 0, later: ReadSnapshot | None = None
) -> tuple[Any, ...]:
    """Convert *snapshot* to a row of `schema.STREAMS`; its messages were read by *read_in_ns* after it, as was *later*."""
    ref = snapshot.stream_ref
    state = (
        (snapshot.first_seq, snapshot.last_seq, snapshot.messages, snapshot.num_deleted)
        if snapshot.error is None
        else (None,) * 4
    )
    times = snapshot.snapshot_ns, snapshot.snapshot_ns + read_in_ns
    sources = [(cursor.origin, cursor.last_seq) for cursor in snapshot.sources]
    limits = None if snapshot.limits is None else _limits_in_reach(snapshot, snapshot.limits, later or snapshot)
    told = (
        snapshot.server_version,
        snapshot.path,
        snapshot.error,
        sources,
        limits,
        _identity(snapshot),
        snapshot.mirror,
        snapshot.transform,
    )
    return ref.virtual, ref.stream, ref.region, ref.role, *state, *times, arrivals, *told


def _limits_in_reach(snapshot: ReadSnapshot, limits: Mapping[str, int], later: ReadSnapshot) -> dict[str, int]:
    """*limits* of *snapshot* without those that *later* had removed nothing of it, and with what they have begun to remove."""
    if later is not snapshot:
        # Who follows has read only what *later* still has: what came after the snapshot may have removed the first ones.
        number = limits.get("max_msgs", later.last_seq)
        is_by_number = max(0, snapshot.last_seq - number) < snapshot.first_seq - 1 <= later.last_seq - number
        has_lost = later.first_seq > max(1, snapshot.first_seq) or is_by_number
        began = {HAS_HOLES: later.last_seq > later.messages, LOST_OLDEST: has_lost}
        limits = {**limits, **{name: 1 for name, has_begun in began.items() if has_begun}}
    if snapshot.path == CAPTURE or not SUDDEN.isdisjoint(limits):
        return dict(limits)
    # It never had so many messages, is not a quarter full, or is a later part, with older messages still before it.
    reached = {"max_msgs": later.last_seq, "max_bytes": 4 * later.bytes + _MAX_MESSAGE_BYTES}
    if later.first_seq < snapshot.first_seq and later.messages and not is_origin(snapshot.stream_ref):
        reached = dict.fromkeys(SIZES, 0)
    elif _is_raised(snapshot, limits, later):
        del reached["max_msgs"]
    return {name: limit for name, limit in limits.items() if name not in reached or limit < reached[name]}


def _is_raised(snapshot: ReadSnapshot, limits: Mapping[str, int], later: ReadSnapshot) -> bool:
    """Whether `max_msgs` alone may have removed the first messages of *snapshot* when it was smaller; a mirror may begin late."""
    is_alone = REMOVING & limits.keys() == {"max_msgs"} and snapshot.mirror is None
    return is_alone and snapshot.first_seq == later.first_seq > limits.get("first_seq", 1)


def _identity(snapshot: ReadSnapshot) -> str | None:
    """The stream's identity; empty if restored from a backup: readers then see a new stream with old messages."""
    if snapshot.is_restored:
        return ""
    return identity_of(snapshot.created) if snapshot.created else None


def identity_of(created: str) -> str:
    """
    The identity that servers since 2.15 write into headers, computed from the *created* time of STREAM.INFO.

    Source: `server/stream.go` (identity), `server/events.go` (getHash).
    """
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in sha256(created.encode()).digest()[:_NAME_LENGTH])
