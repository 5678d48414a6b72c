"""Topology texts for tests, and how their findings are written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vstream.findings import Finding

HEAD = 'version: 1\nname: acme\nserver_version: "2.12"\n'
"""Three lines that every topology needs."""

REGIONS = "regions: {west: {servers: 3}, east: {servers: 3}}\n"

EVERY_MODEL = """\
stretch: {members: all}
streams:
  sensors: {subjects: [sensors.>], write: {max_age: 1h}}
  ledger: {subjects: [ledger.>], consistency: ordered, write: {max_age: 1h}}
  stock: {subjects: [stock.>], consistency: stretch}
  prices: {subjects: [prices.>], consistency: homed, home: east}
"""
"""A stream of each consistency model, for three regions."""


def begin_topology(name: str, version: str = "2.12", /, **servers: int) -> str:
    """The lines that every topology needs, with so many *servers* in each region: `begin_topology("acme", west=3, east=1)`."""
    regions = ", ".join(f"{region}: {{servers: {count}}}" for region, count in servers.items())
    return f'version: 1\nname: {name}\nserver_version: "{version}"\nregions: {{{regions}}}\n'


def one_region(url: str) -> str:
    """Topology `acme` with stream `foo` in one region, which is reached at *url*."""
    return (
        begin_topology("acme", west=1)
        + f'connect: {{west: {{urls: ["{url}"]}}}}\nstreams: {{foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}}}\n'
    )


def concise(findings: Iterable[Finding]) -> str:
    """Everything of findings but the snippet: one line each, and the hint below."""
    lines = []
    for finding in findings:
        assert finding.span is not None
        lines.append(
            f"{finding.span.line}:{finding.span.column}: {finding.severity.value} {finding.code}: {finding.message}"
        )
        if finding.hint:
            lines.append(f"    hint: {finding.hint}")
    return "".join(f"{line}\n" for line in lines)


def many_streams(count: int) -> bytes:
    """A topology of *count* streams in three regions."""
    streams = "".join(
        f"  s{number}:\n    subjects: [s{number}.>]\n    canary: s{number}._canary.*\n"
        "    write: {max_age: 1h}\n    read: {max_msgs_per_subject: 5, max_age: 30d}\n"
        for number in range(count)
    )
    return f"{begin_topology('acme', west=1, central=1, east=1)}streams:\n{streams}".encode()
