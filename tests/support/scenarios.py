"""Scenario texts for tests, and the topology that they are about."""

from __future__ import annotations

from tests.support.topologies import concise
from vstream.lint.parse_scenario import ParsedScenario, parse_scenario
from vstream.scenario.model import Scenario

ACME = b"""\
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 3}, central: {servers: 3}, east: {servers: 3}}
streams:
  foo: {subjects: [foo.>], write: {max_age: 1h}}
  bar: {subjects: ["bar.*", baz], regions: [west, east], write: {max_age: 1h}}
"""
ONE_REGION = b"""\
version: 1
name: single
server_version: "2.12"
regions: {west: {servers: 3}}
streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}
"""
DASHES = b"""\
version: 1
name: dashes
server_version: "2.12"
regions: {us: {servers: 1}, us-east: {servers: 1}, east-west: {servers: 1}, west: {servers: 1}}
streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}
"""
MODELS = b"""\
version: 1
name: models
server_version: "2.12"
regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}
stretch: {members: all}
streams:
  foo: {subjects: [foo.>], write: {max_age: 1h}}
  ledger: {subjects: [ledger.>], consistency: ordered, write: {max_age: 1h}}
  stock: {subjects: [stock.>], consistency: stretch}
  prices: {subjects: [prices.>], consistency: homed, home: east}
"""
NO_STREAMS = ACME[: ACME.index(b"streams:")]
FILES = {
    "acme.yaml": ACME,
    "one.yaml": ONE_REGION,
    "dashes.yaml": DASHES,
    "models.yaml": MODELS,
    "empty.yaml": NO_STREAMS,
    "wrong.yaml": ACME + b"connect: {wst: {context: x}}\n",
}
HEAD = "scenario: 1\nname: s\ntopology: acme.yaml\n"
STEPS = "steps:\n  - wait: 5s\n"


def read(name: str) -> bytes:
    """The topologies that scenarios of tests may name."""
    if name not in FILES:
        raise FileNotFoundError(2, "No such file or directory", name)
    return FILES[name]


def load_text(text: str, file: str = "s.yaml") -> ParsedScenario:
    """*text*, loaded."""
    return parse_scenario(text.encode(), file, read)


def scenario(text: str) -> Scenario:
    """What *text* means, with the lines before it that every scenario needs."""
    return load_text(HEAD + text).require()


def problems(text: str) -> str:
    """What is wrong with *text*."""
    return concise(load_text(text).diagnostics)
