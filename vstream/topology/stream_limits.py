"""By which settings servers remove messages of a stream, and which ones: who finds a message missing asks here what excuses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_MESSAGES: Final = "max_msgs"
MAX_BYTES: Final = "max_bytes"
MAX_AGE: Final = "max_age"
"""In nanoseconds."""
SIZES: Final = frozenset({MAX_MESSAGES, MAX_BYTES})
"""A full stream removes its oldest messages; with `discard: new` it takes no more, and removes none."""
OLDEST_FIRST: Final = SIZES | {MAX_AGE}
"""They remove the oldest messages of a stream, and none before an older one."""
PER_SUBJECT: Final = "max_msgs_per_subject"
"""It removes the oldest messages of a subject, wherever those are in the stream."""
GROWTH_LIMITS: Final = OLDEST_FIRST | {PER_SUBJECT}
"""They keep a stream from growing for ever."""
MESSAGE_TTL: Final = "allow_msg_ttl"
"""A message may say when it goes."""
ROLLUPS: Final = "allow_rollup_hdrs"
"""A message may remove all older ones of its subject, or of the stream."""
REPLACING: Final = frozenset({PER_SUBJECT, ROLLUPS})
"""By them, newer messages remove older ones."""
RETENTION: Final = "retention"
"""Unless it is `limits`, consumers remove what they have processed."""
REMOVING: Final = GROWTH_LIMITS | {MESSAGE_TTL, ROLLUPS, RETENTION}
"""All of them: what is missing of a stream that has none of them is lost, or somebody deleted it."""


def read_limit(fields: Mapping[str, Any], name: str) -> int:
    """The limit, or flag, *name* among the *fields* of a stream; 0 if it limits nothing: servers take -1, 0 and null for that."""
    value = fields.get(name)
    return max(0, value) if isinstance(value, int) else 0


def read_limits(fields: Mapping[str, Any]) -> dict[str, int]:
    """What of `REMOVING` is set in the *fields* of a stream, with its value; 1 for what has no number."""
    limits = {name: limit for name in sorted(REMOVING) if (limit := read_limit(fields, name))}
    return limits if (fields.get(RETENTION) or "limits") == "limits" else {**limits, RETENTION: 1}
