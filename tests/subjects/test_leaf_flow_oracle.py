"""
What is seen beyond leaf nodes, against a hub and two leaf nodes that run.

Each account has a subscriber to `>`. After a publish comes a marker on the same connections, which no mapping changes and
nobody denies: who has it has everything that was published before.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.subjects.test_account_flow_oracle import Client
from tests.support.ports import free_port
from vstream.lab import binaries
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.reading.leafnodes import read_leaf_links, read_leaf_side
from vstream.lint.workspace import Workspace
from vstream.subjects.leaf_flow import cross_leaves
from vstream.subjects.resolve import OutcomeKind

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

DEADLINE_S = 60
MARKER = "marker."
CONFIGURATIONS = {
    "hub": """\
server_name: hub
listen: "127.0.0.1:-1"
leafnodes { listen: "127.0.0.1:{leafnodes}" }
accounts {
  A {
    users: [
      {user: a, password: pw}
      {user: la, password: pw, permissions: {publish: {deny: ["secret.>"]}, subscribe: {deny: ["inner.>"]}}}
      {user: lb, password: pw, permissions: {publish: ["open.>", "in.*", "marker.>"]}}
    ]
    mappings {
      "in.*": "mid.{{wildcard(1)}}"
      "half": [{destination: "half.a", weight: 0}, {destination: "half", weight: 0}]
      "west.*": [{destination: "near.{{wildcard(1)}}", weight: 100, cluster: hub}]
    }
    exports: [{stream: "mid.>"}]
    imports: [{service: {account: B, subject: "ask.*"}}]
  }
  B {
    users: [{user: b, password: pw}]
    mappings {"ask.me": "asked"}
    exports: [{service: "ask.*"}]
    imports: [{stream: {account: A, subject: "mid.>"}, prefix: "seen"}]
  }
}
cluster { name: hub }
""",
    "edge": """\
server_name: edge
listen: "127.0.0.1:-1"
leafnodes { remotes: [
  {url: "nats://la:pw@127.0.0.1:{leafnodes}", account: L, deny_imports: ["quiet.>"], deny_exports: ["private.*", "in.x"]}
] }
accounts {
  L {
    users: [{user: l, password: pw}]
    mappings {
      "mid.*": "leaf.{{wildcard(1)}}"
      "out.*": "in.{{wildcard(1)}}"
      "west.*": [{destination: "far.{{wildcard(1)}}", weight: 100, cluster: hub}, {destination: "own.{{wildcard(1)}}", weight: 100, cluster: edge}]
    }
    exports: [{stream: "leaf.*"}]
  }
  M { users: [{user: m, password: pw}], imports: [{stream: {account: L, subject: "leaf.*"}}] }
}
cluster { name: edge }
""",
    "bare": """\
server_name: bare
listen: "127.0.0.1:-1"
leafnodes { remotes: [{url: "nats://lb:pw@127.0.0.1:{leafnodes}"}] }
mappings { "mid.b": "bare.b", "open.*": "in.{{wildcard(1)}}" }
""",
}
CLIENTS = {
    ("hub", "A"): "a",
    ("hub", "B"): "b",
    ("edge", "L"): "l",
    ("edge", "M"): "m",
    ("bare", "$G"): "",
}
LINKED = (("hub", "A"), ("edge", "L"), ("bare", "$G"))
PUBLISHES = [
    *(
        (("hub", "A"), subject)
        for subject in ("in.a", "in.b", "mid.c", "half", "west.x", "quiet.q", "inner.i", "plain")
    ),
    *(
        (("hub", "A"), subject)
        for subject in ("secret.s", "private.p", "open.o", "ask.me", "$KV.b.k", "out.x", "near.n")
    ),
    *(
        (("edge", "L"), subject)
        for subject in ("in.a", "in.x", "out.a", "out.x", "mid.m", "quiet.q", "inner.i", "west.w")
    ),
    *(
        (("edge", "L"), subject)
        for subject in ("secret.s", "private.p", "private.p.q", "open.o", "ask.me", "$KV.b.k", "half")
    ),
    *((("bare", "$G"), subject) for subject in ("in.a", "open.o", "open.o.p", "mid.b", "mid.c", "plain", "secret.s")),
]


@pytest.fixture(scope="module", params=["2.10.26", "2.15.1"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configurations of a hub and two leaf nodes, which run."""
    path = tmp_path_factory.mktemp("leaves")
    port = free_port()
    with ExitStack() as stack:
        for name, text in CONFIGURATIONS.items():
            file = path / f"{name}.conf"
            file.write_text(text.replace("{leafnodes}", str(port)))
            (path / name).mkdir()
            argv = [str(binaries.find_or_fetch(request.param)), "-c", str(file), "-l", str(path / f"{name}.log")]
            argv += ["--ports_file_dir", str(path / name)]
            process = stack.enter_context(subprocess.Popen(argv))
            stack.callback(process.terminate)
        yield path


@pytest.fixture(scope="module")
def workspace(directory: Path) -> Workspace:
    sources = [
        Source(name=f"{name}.conf", content=(directory / f"{name}.conf").read_bytes()) for name in CONFIGURATIONS
    ]
    return parse_sources(sources, read=lambda _: b"").workspace()


@pytest.fixture(scope="module")
def clients(directory: Path) -> Iterator[dict[tuple[str, str], Client]]:
    with ExitStack() as stack:
        connected = {}
        for (server, account), user in CLIENTS.items():
            connected[server, account] = Client(client_port(directory / server), user, stack)
        for side in LINKED:
            publish_until_seen(connected, side)
        yield connected


def client_port(directory: Path) -> int:
    """The port that a server has chosen, once it has written it down."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(file.stat().st_size for file in directory.glob("*.ports")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (file,) = directory.glob("*.ports")
    return int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])


def publish_until_seen(clients: dict[tuple[str, str], Client], side: tuple[str, str]) -> None:
    """Publish markers until all sides get them, as they do once subscriptions are known everywhere."""
    deadline = time.monotonic() + DEADLINE_S
    missing = set(LINKED)
    while missing:
        assert time.monotonic() < deadline, missing
        clients[side].publish(f"{MARKER}{side[0]}")
        missing -= {listener for listener in missing if f"{MARKER}{side[0]}" in clients[listener].receive()}


def receive(clients: dict[tuple[str, str], Client], marker: str) -> Counter[tuple[str, str, str]]:
    """What everyone has got until *marker* came to all sides."""
    seen: Counter[tuple[str, str, str]] = Counter()
    deadline = time.monotonic() + DEADLINE_S
    for side in LINKED:
        subjects: list[str] = []
        while marker not in subjects:
            assert time.monotonic() < deadline, (side, subjects)
            subjects += clients[side].receive()
        seen.update((*side, subject) for subject in subjects if not subject.startswith(MARKER))
    for side in CLIENTS.keys() - set(LINKED):
        seen.update((*side, subject) for subject in clients[side].receive())
    return seen


def find_expected(workspace: Workspace, side: tuple[str, str], subject: str) -> Counter[tuple[str, str, str]]:
    """What the model says that everyone gets."""
    (server,) = (server for server in workspace.servers if server.file == f"{side[0]}.conf")
    origin = read_leaf_side(server, side[1])
    table = origin.flow.tables.get(side[1])
    seen: Counter[tuple[str, str, str]] = Counter()
    outcomes = table.resolve(subject, origin.cluster).outcomes if table else ()
    mapped = (
        [outcome.subject for outcome in outcomes if outcome.kind is not OutcomeKind.DROPPED] if table else [subject]
    )
    for delivered in mapped:
        seen[*side, delivered] += 1
        for arrival in origin.flow.arrivals(side[1], delivered, origin.cluster):
            seen[side[0], arrival.account, arrival.subject] += 1
        for crossing in cross_leaves(read_leaf_links(workspace), origin, delivered):
            if crossing.refusal is None:
                seen[crossing.side.server, crossing.account, crossing.subject] += 1
    return seen


def test_leaf_node_connections_are_read_from_configurations(workspace: Workspace) -> None:
    ends = [
        (link.hub.server, link.hub.account, link.leaf.server, link.leaf.account) for link in read_leaf_links(workspace)
    ]
    assert ends == [("hub", "A", "edge", "L"), ("hub", "A", "bare", "$G")]


def test_everyone_beyond_leaf_nodes_sees_what_the_model_says(
    clients: dict[tuple[str, str], Client], workspace: Workspace
) -> None:
    wrong = []
    crossed = 0
    for number, (side, subject) in enumerate(PUBLISHES):
        clients[side].publish(subject)
        clients[side].publish(f"{MARKER}{number}")
        seen = receive(clients, f"{MARKER}{number}")
        if seen != find_expected(workspace, side, subject):
            wrong.append(
                f"{side} {subject}: {seen - find_expected(workspace, side, subject)} instead of {find_expected(workspace, side, subject) - seen}"
            )
        crossed += len({name for name, _, _ in seen}) > 1
    assert wrong == [], "\n".join(wrong)
    assert crossed >= 15
