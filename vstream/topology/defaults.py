"""What settings of streams and consumers are, unless the topology says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vstream.syntax.document import Json
from vstream.topology.fields import MIN_AGE_NS
from vstream.topology.model import DEDUPE_OFF_SINCE, Role, ServerVersion

STREAM: Final[Mapping[str, Json]] = {
    "retention": "limits",
    "storage": "file",
    "max_age": 0,
    "max_bytes": -1,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "max_consumers": -1,
    "discard": "old",
    "compression": "none",
    # Direct Get is the only read that works in a region that lost the meta leader.
    "allow_direct": True,
    "allow_rollup_hdrs": False,
    "deny_delete": False,
    "deny_purge": False,
}
"""Of every stream. How many replicas it has, and for how long it deduplicates, depends on more."""
ACK_WAIT_NS = 30 * 10**9
MAX_ACK_PENDING = 1_000
"""What servers fill in, unless a stream or an account says otherwise (server/consumer.go, setConsumerConfigDefaults)."""
_TWO_MINUTES_NS = 120 * 10**9
_SURVIVES_ONE = 3
"""Replicas: the fewest of which one can be lost without stopping."""
_SURVIVES_TWO = 5
"""The same for two."""


def choose_region_replicas(servers: int) -> int:
    """Enough copies to survive the loss of a server, where the smallest of a stream's regions has so many *servers*."""
    return _SURVIVES_ONE if servers >= _SURVIVES_ONE else 1


def choose_stretch_replicas(members: int, *, before: int) -> int:
    """
    Enough copies to survive the loss of one or two regions, of a stretch cluster that had so many members *before*.

    Where some were lost with their regions, each of the *members* that are left has a copy.
    """
    return min(members, next((number for number in (_SURVIVES_TWO, _SURVIVES_ONE) if before >= number), 1))


def choose_duplicate_window(role: Role, server_version: ServerVersion, *, max_age: int) -> int:
    """
    The window in nanoseconds; *max_age*, too.

    A stream that sources must not deduplicate: of two messages with one id, from two
    regions, each region would keep the one that it saw first, and they would never
    agree again.
    """
    if role in {Role.READ, Role.ORDER}:
        return 0 if server_version >= DEDUPE_OFF_SINCE else MIN_AGE_NS
    return choose_published_window(max_age)


def choose_published_window(max_age: int) -> int:
    """The same where clients publish, as servers choose it (server/stream.go, checkStreamCfg)."""
    return min(_TWO_MINUTES_NS, max_age or _TWO_MINUTES_NS)
