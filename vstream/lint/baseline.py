"""
What stays the same of a finding when lines move: fingerprints, and a baseline of findings that are not reported.

A finding is known by its file, its code and its message, and by how often a file has it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from vstream.errors import VstreamError
from vstream.findings import Finding
from vstream.lint.selection import AS_NAMED, Anchor, is_always_reported
from vstream.syntax.document import object_or_empty
from vstream.value_class import value_class

_LINE: Final = re.compile(r"\bline \d[\d,]*")


class FindingKey(NamedTuple):
    """What stays the same of a finding: two of one kind in one file have the same key."""

    file: str
    code: str
    message: str


def finding_key(finding: Finding, anchor: Anchor) -> FindingKey:
    """The key of *finding*, with its file relative to *anchor*."""
    file = anchor.relative(finding.span.file) if finding.span else ""
    return FindingKey(file, finding.code, _LINE.sub("line …", finding.message))


def fingerprints(findings: Iterable[Finding], anchor: Anchor) -> list[str]:
    """A fingerprint of each finding, all different: hexadecimal, 64 digits."""
    seen: Counter[FindingKey] = Counter()
    digests = []
    for finding in findings:
        key = finding_key(finding, anchor)
        seen[key] += 1
        text = "\n".join((key.code, key.file, key.message, str(seen[key])))
        digests.append(hashlib.sha256(text.encode(errors="replace")).hexdigest())
    return digests


@value_class
class Baseline:
    """Findings that are not reported: how many of each key, with files relative to *anchor*."""

    counts: Mapping[FindingKey, int]
    anchor: Anchor = AS_NAMED

    def split(self, findings: Sequence[Finding]) -> tuple[tuple[Finding, ...], dict[FindingKey, int]]:
        """The findings that are new, and the entries that none of *findings* has, with how many are missing."""
        remaining = dict(self.counts)
        new = []
        for finding in findings:
            key = finding_key(finding, self.anchor)
            # What says that a file cannot be read is never old: without it, silence would mean nothing.
            if is_always_reported(finding.code) or not remaining.get(key):
                new.append(finding)
            else:
                remaining[key] -= 1
        return tuple(new), {key: count for key, count in remaining.items() if count}

    def update(self, findings: Iterable[Finding], staying: Iterable[FindingKey]) -> Baseline:
        """The baseline of *findings*, with the old entries *staying*: those that were not looked for."""
        counts = Counter({key: self.counts[key] for key in staying})
        counts.update(finding_key(finding, self.anchor) for finding in findings if not is_always_reported(finding.code))
        return Baseline(counts=counts, anchor=self.anchor)

    @property
    def size(self) -> int:
        """How many findings it has."""
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """The entries as JSON data, sorted."""
        return {"findings": [{**key._asdict(), "count": count} for key, count in sorted(self.counts.items())]}


def parse_baseline(text: str, file: str, anchor: Anchor) -> Baseline:
    """The baseline that *text* is. Raises VstreamError."""
    hint = "write it again with `--write-baseline`"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise VstreamError(f"{file}{place}: not JSON, so not a baseline", hint=hint) from None
    entries = object_or_empty(document).get("findings")
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise VstreamError(f"{file}: not a baseline of `vstream lint`", hint=hint)
    counts: Counter[FindingKey] = Counter()
    for entry in entries:
        counts[FindingKey(entry["file"], entry["code"], entry["message"])] += entry["count"]
    return Baseline(counts=counts, anchor=anchor)


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in FindingKey._fields):
        return False
    count = entry.get("count")
    return isinstance(count, int) and not isinstance(count, bool) and count > 0
