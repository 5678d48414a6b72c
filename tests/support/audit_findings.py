"""Where each kind of finding of an audit is provoked that the histories of `audit_histories` do not have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vstream.audit.finding_kinds import FindingKind

_BY_FILE = {
    "tests/audit/test_captures.py": (
        FindingKind.NOTHING,
        FindingKind.UNFINISHED,
        FindingKind.ACKED_LOST,
        FindingKind.OVERWRITTEN,
        FindingKind.UNPUBLISHED,
        FindingKind.REFUSED_STORED,
        FindingKind.MISORDERED,
    ),
    "tests/audit/test_real.py": (FindingKind.UNREADABLE,),
    "tests/audit/test_judging.py": (
        FindingKind.INCOMPLETE,
        FindingKind.SHARED_ID_OTHER,
        FindingKind.SHARED_ID_SAME,
        FindingKind.DIVERGED_KEYS,
        FindingKind.CONFLICTS,
        FindingKind.CLOCKS,
    ),
    "tests/audit/test_live.py": (
        FindingKind.ABSENT,
        FindingKind.CANARIES,
        FindingKind.CANARIES_LATE,
        FindingKind.CANARIES_OR_LOST,
    ),
}
PROVOKED_IN: Mapping[FindingKind, str] = MappingProxyType(
    {kind: file for file, kinds in _BY_FILE.items() for kind in kinds}
)
