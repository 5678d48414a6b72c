"""Topology texts for tests, and how their diagnostics are written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vstream.diagnostics import Finding

HEAD = 'version: 1\nname: acme\nserver_version: "2.12"\n'
"""Three lines that every topology needs."""

REGIONS = "regions: {west: {servers: 3}, east: {servers: 3}}\n"


def concise(diagnostics: Iterable[Finding]) -> str:
    """Everything of diagnostics but the snippet: one line each, and the hint below."""
    lines = []
    for diagnostic in diagnostics:
        assert diagnostic.span is not None
        lines.append(
            f"{diagnostic.span.line}:{diagnostic.span.column}: {diagnostic.severity.value} {diagnostic.code}: {diagnostic.message}"
        )
        if diagnostic.hint:
            lines.append(f"    hint: {diagnostic.hint}")
    return "".join(f"{line}\n" for line in lines)


def many_streams(count: int) -> bytes:
    """A topology of *count* streams in three regions."""
    streams = "".join(
        f"  s{number}:\n    subjects: [s{number}.>]\n    canary: s{number}._canary.*\n"
        "    write: {max_age: 1h}\n    read: {max_msgs_per_subject: 5, max_age: 30d}\n"
        for number in range(count)
    )
    regions = "regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}\n"
    return f"{HEAD}{regions}streams:\n{streams}".encode()
