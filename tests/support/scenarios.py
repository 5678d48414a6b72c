"""Scenario texts for tests, and the topology that they are about."""

from __future__ import annotations

from tests.support.topologies import EVERY_MODEL, begin_topology, concise
from vstream.lint.check_scenario import CheckedScenario, check_scenario
from vstream.scenario.model import Scenario

ACME = (
    begin_topology("acme", west=3, central=3, east=3)
    + """\
streams:
  foo: {subjects: [foo.>], write: {max_age: 1h}}
  bar: {subjects: ["bar.*", baz], regions: [west, east], write: {max_age: 1h}}
"""
).encode()
ONE_REGION = (begin_topology("single", west=3) + "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n").encode()
DASHES = b"""\
version: 1
name: dashes
server_version: "2.12"
regions: {us: {servers: 1}, us-east: {servers: 1}, east-west: {servers: 1}, west: {servers: 1}}
streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}
"""
MODELS = (begin_topology("models", west=1, central=1, east=1) + EVERY_MODEL).encode()
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


def load_text(text: str, file: str = "s.yaml") -> CheckedScenario:
    """*text*, loaded."""
    return check_scenario(text.encode(), file, read)


def scenario(text: str) -> Scenario:
    """What *text* means, with the lines before it that every scenario needs."""
    return load_text(HEAD + text).require()


def problems(text: str) -> str:
    """What is wrong with *text*."""
    return concise(load_text(text).findings)
