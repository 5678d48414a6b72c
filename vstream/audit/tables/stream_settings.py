"""
What the limits and the role of a stream mean to an audit.

*stream* is a `values.ReadSnapshot` or a row of `schema.STREAMS`: both have the same fields.
"""

from __future__ import annotations

from typing import Any, Final

from vstream.topology.model import Role
from vstream.topology.stream_limits import MAX_MESSAGES, MESSAGE_TTL, REMOVING, RETENTION, ROLLUPS

SUDDEN: Final = frozenset({RETENTION, MESSAGE_TTL, ROLLUPS})
"""Settings that remove messages from streams of any size."""
LOST_OLDEST: Final = "lost_oldest"
"""Among the limits: after the snapshot, these have removed the oldest messages."""
HAS_HOLES: Final = "has_holes"
"""Among the limits: after the snapshot, these have removed messages."""

CAPTURE: Final = "capture"
"""The path of streams read from a capture."""


def is_origin(stream: Any) -> bool:
    """Whether clients publish to *stream*."""
    return stream.role in {Role.WRITE.value, Role.ORIGIN.value}


def find_first_kept(stream: Any) -> int | None:
    """
    The first sequence that the `max_msgs` of *stream* leaves there.

    None if other settings may have removed messages, too, or more were removed after the snapshot.
    """
    limits = stream.limits or {}
    if stream.error is not None or REMOVING & limits.keys() != {MAX_MESSAGES} or LOST_OLDEST in limits:
        return None
    return int(max(stream.last_seq - limits[MAX_MESSAGES] + 1, limits.get("first_seq", 1)))
