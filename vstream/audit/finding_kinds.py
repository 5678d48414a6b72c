"""The kinds of findings of an audit: the names that tables, codes and rules share. Does not import Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class FindingKind(StrEnum):
    """
    What is found, as the column `kind` of `differences` says it, or the name of another table. `codes` has their manual.

    Reports list findings in this order.
    """

    NOTHING = "nothing"
    UNREADABLE = "unreadable"
    INCOMPLETE = "incomplete"
    ROW_TWICE = "row-twice"
    UNFINISHED = "unfinished"
    ABSENT = "absent"
    LOST_PREFIX = "lost-prefix"
    LOST_MIDDLE = "lost-middle"
    LOST_TAIL = "lost-tail"
    EXPIRED = "expired"
    LATE = "late"
    PENDING = "pending"
    REMOVED = "removed"
    NOT_AT_ORIGIN = "not-at-origin"
    ACKED_LOST = "acked-lost"
    DELETED_EVERYWHERE = "deleted-everywhere"
    REMOVED_EARLY = "removed-early"
    CANARIES = "canaries"
    CANARIES_LATE = "canaries-late"
    CANARIES_OR_LOST = "canaries-or-lost"
    DUPLICATED = "duplicated"
    FOREIGN = "foreign"
    ROLLED_BACK = "rolled-back"
    REUSED = "reused"
    PAYLOAD = "payload"
    SUBJECT = "subject"
    OVERWRITTEN = "overwritten"
    UNPUBLISHED = "unpublished"
    REFUSED_STORED = "refused-stored"
    REORDERED = "reordered"
    MISORDERED = "misordered"
    PUT_BACK = "put-back"
    DIVERGED_KEYS = "diverged-keys"
    CONFLICTS = "conflicts"
    DEDUPLICATED = "deduplicated"
    DISPLACED = "displaced"
    SHARED_ID_OTHER = "shared-id-other"
    SHARED_ID_SAME = "shared-id-same"
    CLOCKS = "clocks"


MISSING: Final = frozenset(
    {
        FindingKind.LOST_PREFIX,
        FindingKind.LOST_MIDDLE,
        FindingKind.LOST_TAIL,
        FindingKind.EXPIRED,
        FindingKind.LATE,
        FindingKind.DISPLACED,
    }
)
"""Kinds of differences in which a reader lacks a message that it should have."""
RANGED: Final = frozenset(
    {FindingKind.EXPIRED, FindingKind.DELETED_EVERYWHERE, FindingKind.CANARIES, FindingKind.CANARIES_OR_LOST}
)
"""Kinds of differences whose rows describe a range of messages."""
