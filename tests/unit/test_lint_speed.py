"""How the time of the linter grows; `scripts/bench --lint` compares it with nats-server."""

from __future__ import annotations

import gc
from math import log2
from time import process_time

from tests.support.lint_inputs import surroundings
from vstream.lint.engine import lint
from vstream.lint.inputs import Source

FEW, MANY = 500, 4_000
SLACK = 2.0


def rules(count: int) -> str:
    lines = []
    for number in range(count):
        lines.append(f'  "$JS.API.CONSUMER.MSG.NEXT.s{number}.*": [')
        for region in ("west", "east"):
            subject = f"$JS.API.CONSUMER.MSG.NEXT.s{number}-read-{region}.{{{{wildcard(1)}}}}"
            lines.append(f'    {{destination: "{subject}", weight: 100%, cluster: "{region}"}}')
        lines.append("  ]")
    return "\n".join(["mappings {", *lines, "}", ""])


def seconds(text: str) -> float:
    sources = [Source(name="m.cfg", content=text.encode())]
    best = float("inf")
    gc.disable()
    try:
        for _ in range(3):
            start = process_time()
            lint(sources, surroundings({}))
            best = min(best, process_time() - start)
    finally:
        gc.enable()
    return best


def test_time_grows_with_the_rules_and_not_with_their_square() -> None:
    expected = (MANY * log2(MANY)) / (FEW * log2(FEW))
    assert seconds(rules(MANY)) < SLACK * expected * seconds(rules(FEW))


def test_rules_that_all_overlap_take_no_longer_than_those_that_do_not() -> None:
    wild = "\n".join(f'"a{number}.*.>": x\n"*.b{number}.>": y' for number in range(MANY // 2))
    assert seconds(f"mappings {{\n{wild}\n}}\n") < SLACK * seconds(rules(MANY))
