"""How the work of the linter grows; `scripts/bench --lint` compares it with nats-server."""

from __future__ import annotations

from math import log2

import pytest

from tests.support.call_counts import count_calls
from tests.support.lint_inputs import make_context
from tests.support.night import repetitions
from tests.support.topologies import many_streams
from vstream.lint.check_topology import check_topology
from vstream.lint.engine import lint
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.reading.accounts import read_server_flow
from vstream.lint.simulate import ListeningStream, tabulate_account
from vstream.render import pipeline as rendering
from vstream.render.pipeline import render_bundle

FEW, MANY = 60, repetitions(240, night=480)
SLACK = 1.25


def rules(count: int) -> str:
    lines = []
    for number in range(count):
        lines.append(f'  "$JS.API.CONSUMER.MSG.NEXT.s{number}.*": [')
        for region in ("west", "east"):
            subject = f"$JS.API.CONSUMER.MSG.NEXT.s{number}-read-{region}.{{{{wildcard(1)}}}}"
            lines.append(f'    {{destination: "{subject}", weight: 100%, cluster: "{region}"}}')
        lines.append("  ]")
    return "\n".join(["mappings {", *lines, "}", ""])


def accounts(count: int) -> str:
    exports = ", ".join(f'{{service: "s{number}.*"}}' for number in range(count))
    imports = ", ".join(f'{{service: {{account: A, subject: "s{number}.*"}}}}' for number in range(count))
    return f"accounts {{A: {{exports: [{exports}]}}, B: {{imports: [{imports}]}}}}\n"


def once(text: str) -> int:
    sources = [Source(name="m.cfg", content=text.encode())]
    return count_calls(lambda: lint(sources, make_context({})))


def test_work_grows_with_the_rules_and_not_with_their_square() -> None:
    expected = (MANY * log2(MANY)) / (FEW * log2(FEW))
    assert once(rules(MANY)) < SLACK * expected * once(rules(FEW))


def test_rules_that_all_overlap_take_no_more_than_those_that_do_not() -> None:
    wild = "\n".join(f'"a{number}.*.>": x\n"*.b{number}.>": y' for number in range(MANY // 2))
    assert once(f"mappings {{\n{wild}\n}}\n") < SLACK * once(rules(MANY))


def test_work_on_rendered_files_grows_with_the_streams_and_not_with_their_square() -> None:
    def count(streams: int) -> int:
        bundle = render_bundle(check_topology(many_streams(streams), "t.yaml").require())
        files = [Source(name=file.path, content=file.text.encode()) for file in bundle.artifacts]
        return count_calls(lambda: lint(files, make_context({})))

    assert count(48) < 4.5 * count(12)


def test_work_grows_with_the_imports_of_an_account_and_not_with_their_square() -> None:
    assert once(accounts(MANY)) < SLACK * 4 * once(accounts(MANY // 4))


def test_the_table_of_an_account_grows_with_rules_and_streams_and_not_with_their_product() -> None:
    def table(count: int) -> int:
        rules = "\n".join(f'"s{number}.*": "to.s{number}"' for number in range(count))
        text = accounts(count).replace("B: {", f"B: {{mappings: {{{rules}}}, ")
        workspace = parse_sources([Source(name="s.conf", content=text.encode())], read=lambda _: b"").workspace()
        flow = read_server_flow(workspace.servers[0])
        (block,) = workspace.blocks
        streams = [
            ListeningStream(name=f"s{number}", account=None, subjects=(f"to.s{number}",)) for number in range(count)
        ]
        assert sum(len(row.streams) for row in tabulate_account(block, flow, streams)) == count
        return count_calls(lambda: tabulate_account(block, flow, streams))

    assert table(MANY) < SLACK * 4 * table(MANY // 4)


def test_of_a_topology_with_many_servers_a_few_are_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_MAX_SERVERS", 24)

    def count(servers: int) -> int:
        regions = ", ".join(f"{name}: {{servers: {servers}}}" for name in "abcd")
        text = f'version: 1\nname: acme\nserver_version: "2.12"\nregions: {{{regions}}}\n'
        return count_calls(lambda: lint([Source(name="t.yaml", content=text.encode())], make_context({})))

    assert count(24) < count(6)


def test_of_many_servers_those_with_tags_are_looked_at_and_all_are_counted() -> None:
    servers = ", ".join(f"h{number}.example.net" for number in range(99))
    tags = ", ".join(["hdd", *["[]"] * 97, "ssd"])
    text = f"""\
version: 1
name: acme
server_version: "2.12"
security: {{transport: {{none: a test}}, users: elsewhere}}
regions:
  a: {{servers: [{servers}], tags: [{tags}]}}
  b: {{servers: [x.example.net]}}
  c: {{servers: [y.example.net]}}
streams: {{s: {{subjects: [s.>], write: {{max_age: 1h}}, replicas: 1, placement_tags: [ssd], regions: [a]}}}}
"""
    report = lint([Source(name="t.yaml", content=text.encode())], make_context({}))
    assert [(finding.code, finding.message) for finding in report.findings] == [
        ("VS409", "cluster `a` has 99 of 101 servers with JetStream: without this cluster the API stops")
    ]
