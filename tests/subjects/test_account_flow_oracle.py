"""
What other accounts see of a publish, against a real server.

Each account has a subscriber to `>`. A server puts what it delivers into a client's queue before it answers the
publisher's PING, so what a subscriber has not got before its own next PONG was not delivered.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.lint_inputs import token
from tests.support.ports import free_port
from vstream.lab import binaries
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.reading.accounts import exports_of, find_account_flow, imports_of, read_server_flow
from vstream.lint.simulate import tabulate_account
from vstream.lint.workspace import ServerConf
from vstream.subjects.account_flow import AccountFlow
from vstream.subjects.resolve import OutcomeKind

pytestmark = [pytest.mark.server, pytest.mark.timeout(60)]

DEADLINE_S = 30
CLUSTER = "west"
ACCOUNTS = """\
accounts {
  shop {
    users: [{user: shop, password: pw}]
    mappings {
      "in.*": "orders.{{wildcard(1)}}"
      "lost": [{destination: "orders.lost", weight: 0}, {destination: "lost", weight: 0}]
      "half": [{destination: "orders.half", weight: 50}, {destination: "quiet", weight: 50}]
      "bare": "plain"
    }
    imports: [
      {service: {account: office, subject: "desk.>"}, to: "office.>"}
      {service: {account: office, subject: "plain"}}
      {service: {account: office, subject: "note"}, to: "memo"}
      {service: {account: office, subject: "pair.*.*"}, to: "swap.$2.$1"}
      {service: {account: office, subject: "case.*.open"}, to: "case.*"}
      {service: {account: office, subject: "same.*"}}
      {service: {account: office, subject: "west.*"}, to: "region.*"}
      {service: {account: office, subject: "share.*"}}
      {service: {account: office, subject: "gone.*"}}
      {stream: {account: news, subject: "press.>"}, prefix: "seen"}
    ]
    exports: [
      {stream: "orders.>"}
      {stream: "pair.*.*", accounts: [news]}
      {stream: "region.*"}
      {service: "front.>"}
    ]
  }
  office {
    users: [{user: office, password: pw}]
    mappings {
      "desk.a.*": "drawer.{{wildcard(1)}}"
      "note": "noted"
      "west.*": [{destination: "west.side.{{wildcard(1)}}", weight: 100, cluster: west}]
      "share.*": [{destination: "share.one.{{wildcard(1)}}", weight: 40}
                   {destination: "share.two.{{wildcard(1)}}", weight: 60}]
      "gone.g": [{destination: "gone.on", weight: 0}, {destination: "gone.g", weight: 0}]
      "bill.*": "billed.{{wildcard(1)}}"
    }
    imports: [
      {service: {account: vault, subject: "keep.>"}, to: "drawer.>"}
      {service: {account: vault, subject: "stamp.*"}, to: "pair.*.b"}
      {service: {account: vault, subject: "bill.*"}, to: "billed.*"}
      {service: {account: vault, subject: "tray.*"}, to: "post.*"}
      {stream: {account: shop, subject: "orders.>"}, to: "bill.>"}
      {stream: {account: shop, subject: "region.*"}, to: "post.*"}
    ]
    exports: [{service: "desk.>"}, {service: "plain"}, {service: "note"}, {service: "pair.*.*"}, {service: "case.>"},
              {service: "same.*"}, {service: "west.*"}, {service: "share.*"}, {service: "gone.*"}
              {stream: "drawer.>"}, {stream: "noted"}, {stream: "bill.>"}]
  }
  vault {
    users: [{user: vault, password: pw}]
    mappings { "keep.x": "kept.x", "stamp.q": "kept.q" }
    exports: [{service: "keep.>"}, {service: "stamp.*"}, {service: "bill.*"}, {service: "tray.*"}, {stream: "kept.*"}]
  }
  news {
    users: [{user: news, password: pw}]
    mappings { "from.*": "never.{{wildcard(1)}}", "press.now": "press.later" }
    imports: [
      {stream: {account: shop, subject: "orders.>"}, prefix: "from"}
      {stream: {account: shop, subject: "pair.*.*"}, to: "turn.$2.$1"}
      {stream: {account: shop, subject: "region.*"}}
      {stream: {account: office, subject: "drawer.>"}, to: "desks.>"}
      {stream: {account: office, subject: "noted"}, to: "headline"}
      {stream: {account: office, subject: "bill.>"}, prefix: "bills"}
      {stream: {account: vault, subject: "kept.*"}, to: "safe.*"}
      {service: {account: shop, subject: "front.>"}, to: "page.>"}
    ]
    exports: [{stream: "press.>"}]
  }
}
"""
PUBLISHES = [
    *(("shop", subject) for subject in ("in.a", "in.a.b", "orders.x", "orders.x.y", "lost", "half", "bare", "quiet")),
    *(("shop", subject) for subject in ("office.a.x", "office.a.y", "office.b", "office.b.c.d", "office", "plain")),
    *(("shop", subject) for subject in ("memo", "note", "swap.a.b", "swap.b.a", "swap.b.q", "pair.a.b", "case.7")),
    *(("shop", subject) for subject in ("case.7.open", "same.1", "region.r", "west.r", "share.s", "gone.g", "seen.x")),
    *(("office", subject) for subject in ("desk.a.x", "desk.b", "drawer.x", "note", "noted", "pair.q.b", "pair.b.q")),
    *(("office", subject) for subject in ("bill.1", "billed.1", "bill.1.2", "orders.x", "post.1")),
    *(("vault", subject) for subject in ("keep.x", "kept.z", "stamp.q", "stamp.r")),
    *(("news", subject) for subject in ("page.one", "page.one.two", "from.x", "press.now", "press.a.b", "turn.a.b")),
]
NAMES = ("shop", "office", "vault", "news")


class Client:
    """A bare connection of one account's user, which hears everything."""

    def __init__(self, port: int, user: str, stack: ExitStack) -> None:
        self.connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        self.lines: BinaryIO = stack.enter_context(self.connection.makefile("rb"))
        self.connection.sendall(f'CONNECT {{"verbose":false,"user":"{user}","pass":"pw"}}\r\nSUB > 1\r\n'.encode())
        assert self.receive() == []

    def publish(self, subject: str) -> None:
        self.connection.sendall(f"PUB {subject} 1\r\nx\r\n".encode())

    def receive(self) -> list[str]:
        """The subjects of all messages since the last call."""
        self.connection.sendall(b"PING\r\n")
        subjects: list[str] = []
        for line in self.lines:
            assert not line.startswith(b"-ERR"), line
            if line == b"PONG\r\n":
                return subjects
            if line.startswith(b"MSG "):
                subjects.append(line.split()[1].decode())
        raise ConnectionError("the server closed the connection")


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounts") / "server.conf"
    path.write_text(f'listen: "127.0.0.1:{free_port()}"\nserver_name: flow\ncluster {{ name: {CLUSTER} }}\n{ACCOUNTS}')
    return path


@pytest.fixture(scope="module")
def clients(conf: Path) -> Iterator[dict[str, Client]]:
    argv = [str(binaries.find_or_fetch("2.15.1")), "-c", str(conf), "--ports_file_dir", str(conf.parent)]
    port = int(conf.read_text().split('"', 2)[1].rsplit(":", 1)[1])
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process, ExitStack() as stack:
        try:
            assert process.stderr is not None
            log = []
            for line in process.stderr:
                log.append(line.decode())
                if b"Server is ready" in line:
                    break
            else:
                pytest.fail("".join(log))
            yield {name: Client(port, name, stack) for name in NAMES}
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def flow(conf: Path) -> AccountFlow:
    (server,) = (
        parse_sources([Source(name="server.conf", content=conf.read_bytes())], read=lambda _: b"").workspace().servers
    )
    return read_server_flow(server)


def claims_of(server: ServerConf) -> list[dict[str, object]]:
    """The same accounts in claims, as an operator signs them."""
    claims: list[dict[str, object]] = []
    for account in server.accounts:
        imports = []
        for wish in imports_of(account):
            fields = {"type": wish.kind, "account": f"KEY-{wish.account.value}", "subject": str(wish.subject.value)}
            if wish.prefix is not None:
                fields["to"] = str(wish.prefix.value)
            elif wish.to is not None:
                fields["local_subject"] = str(wish.to.value)
            imports.append(fields)
        exports = [{"type": export.kind, "subject": str(export.subject.value)} for export in exports_of(account)]
        mappings = {}
        for entry in (entry for block in account.mappings for entry in block.entries):
            mappings[entry.source] = [
                {"subject": place.subject, "weight": place.weight, "cluster": place.cluster or ""}
                for place in entry.model.destinations
                if place.weight
            ]
        nats = {"type": "account", "imports": imports, "exports": exports, "mappings": mappings}
        claims.append({"sub": f"KEY-{account.name}", "name": account.name, "nats": nats})
    return claims


def test_claims_say_the_same_as_the_configuration(conf: Path, flow: AccountFlow) -> None:
    read = parse_sources([Source(name="server.conf", content=conf.read_bytes())], read=lambda _: b"").workspace()
    preloaded = "".join(f"KEY-{place['name']}: {token(place)}\n" for place in claims_of(read.servers[0]))
    text = f"port: 4222\nresolver_preload {{\n{preloaded}}}\n"
    workspace = parse_sources([Source(name="operator.conf", content=text.encode())], read=lambda _: b"").workspace()
    claimed = find_account_flow(workspace, "shop", CLUSTER)
    assert claimed is not None
    assert claimed.exports == flow.exports
    for account, subject in PUBLISHES:
        # A weight of 0, which loses messages, is that of a field that was left out in claims.
        if subject not in {"lost", "gone.g"}:
            assert list(claimed.arrivals(account, subject, CLUSTER)) == list(flow.arrivals(account, subject, CLUSTER))


def test_the_old_form_of_a_service_import_has_the_other_account_in_to() -> None:
    """jwt/v2, imports.go: `subject` is that of the publisher, who is in this account."""
    importer = {"type": "account", "imports": [{"type": "service", "account": "B", "subject": "ask.*", "to": "desk.*"}]}
    exporter = {"type": "account", "exports": [{"type": "service", "subject": "desk.>"}]}
    files = [
        Source(name=f"{name}.json", content=json.dumps({"sub": name, "name": name, "nats": nats}).encode())
        for name, nats in (("A", importer), ("B", exporter))
    ]
    claimed = find_account_flow(parse_sources(files, read=lambda _: b"").workspace(), "A", None)
    assert claimed is not None
    assert [(arrival.account, arrival.subject) for arrival in claimed.arrivals("A", "ask.x")] == [("B", "desk.x")]


def find_expected(flow: AccountFlow, account: str, subject: str) -> list[Counter[tuple[str, str]]]:
    """Each set of deliveries that is possible: account and subject."""
    possible = []
    for outcome in flow.tables[account].resolve(subject, CLUSTER).outcomes:
        seen: Counter[tuple[str, str]] = Counter()
        if outcome.kind not in {OutcomeKind.DROPPED, OutcomeKind.PANICS}:
            seen[account, outcome.subject] += 1
            for arrival in flow.arrivals(account, outcome.subject, CLUSTER):
                seen[arrival.account, arrival.subject] += 1
        possible.append(seen)
    return possible


def test_every_account_sees_what_the_model_says(clients: dict[str, Client], flow: AccountFlow) -> None:
    crossed = 0
    wrong = []
    for account, subject in PUBLISHES:
        clients[account].publish(subject)
        at_publisher = clients[account].receive()
        seen: Counter[tuple[str, str]] = Counter()
        for name in NAMES:
            seen.update((name, heard) for heard in (at_publisher if name == account else clients[name].receive()))
        if subject.startswith("share."):  # One of two destinations, by weight.
            continue
        if seen not in find_expected(flow, account, subject):
            wrong.append((account, subject, seen, find_expected(flow, account, subject)))
        crossed += any(name != account for name, _ in seen)
    assert wrong == [], "\n".join(map(str, wrong))
    assert crossed >= 30


def test_shares_are_those_of_the_mappings_of_the_exporting_account(
    clients: dict[str, Client], flow: AccountFlow
) -> None:
    percents = {arrival.subject: arrival.percent for arrival in flow.arrivals("shop", "share.s", CLUSTER)}
    assert percents == {"share.one.s": 40, "share.two.s": 60}
    sample = 1_000
    for _ in range(sample):
        clients["shop"].publish("share.s")
    assert len(clients["shop"].receive()) == sample
    counted = Counter(clients["office"].receive())
    assert set(counted) == set(percents)
    assert counted["share.one.s"] / sample == pytest.approx(0.4, abs=0.1)


def test_every_line_of_the_table_is_what_the_server_does(clients: dict[str, Client], conf: Path) -> None:
    workspace = parse_sources([Source(name="server.conf", content=conf.read_bytes())], read=lambda _: b"").workspace()
    (server,) = workspace.servers
    flow = read_server_flow(server)
    checked = 0
    for block in workspace.blocks:
        for row in tabulate_account(block, flow, (), CLUSTER):
            if row.percent < 100 or row.destination is None or (row.account is None and row.kind != "mapping"):
                continue
            account, peer = str(block.account), row.account or str(block.account)
            inward = row.kind in {"stream import", "service export"}
            publisher, receiver = (peer, account) if inward else (account, peer)
            clients[publisher].publish(_example(row.source))
            at_publisher = clients[publisher].receive()
            received = at_publisher if receiver == publisher else clients[receiver].receive()
            expected = flow.tables[receiver].resolve(_example(row.destination), CLUSTER)
            if row.kind.startswith("service"):  # The exporting account maps what comes.
                assert any(map(expected.admits, received)), (row, received)
            else:
                assert expected.subject in received, (row, received)
            checked += 1
    assert checked >= 30


def _example(pattern: str) -> str:
    return pattern.replace("{{wildcard(1)}}", "q").replace("*", "q").replace(">", "q.r")
