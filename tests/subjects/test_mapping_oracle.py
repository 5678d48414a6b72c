"""
The mapping model against real servers: what they accept, and what they deliver.

Messages go through a bare socket: a client library decodes subjects, but
functions that count bytes can cut a character in two. PONG comes after all
messages of the PUBs before PING, so what is missing then was not delivered.

VSTREAM_ORACLE_EXAMPLES is the number of (rules, cluster, subject) pairs, and of
mappings whose acceptance is compared; 2000 if not set.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.mappings import Generator, as_conf, only_outcome
from tests.support.ports import free_port
from vstream.findings import Span
from vstream.lab import binaries
from vstream.subjects.compile_mapping import MappingErrorKind
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.subjects.resolve import MappingTable, OutcomeKind, compile_mappings

NATS_SERVER = str(binaries.find_or_fetch("2.15.1"))
"""The version that the model follows."""
EXAMPLES = int(os.environ.get("VSTREAM_ORACLE_EXAMPLES", "500"))
DEADLINE_S = 60
CLUSTERS = ("west", "east", "north", None)
ACCOUNTS_PER_SERVER = 40
SUBJECTS_PER_ACCOUNT = 12
BLOCK_LINE = 1
PREFIX = re.compile(r'^Error adding mapping for ".*?"(?: to ".*?")? : ')

CORNERS = [
    ("a", "p.{{partition(1000)}}", "a"),
    ("a.b", "p.{{Partition(-7,1)}}.{{random(0)}}.{{random(-1)}}", "a.b"),
    ("a.*", "b.$0", "a.x"),
    ("a.*", "b.{{wildcard(-3)}}.$+1", "a.x"),
    ("*a.*", "b.$1", "z.x"),
    ("a.$1.*", "b.$1.$99999999999999999999", "a.$1.x"),
    ("a.*", "b.{{wildcard(1)}}-x.{{}}.$", "a.x"),
    (">", "z.{{partition(9,0)}}.>", "a.b.c"),
    ("*.>", "z.{{partition(4294967,1,1)}}.>", "a.b.c"),
    *(("*", f"b.{{{{split(1,{by})}}}}", token) for by in ("-", "--", "") for token in ("-a", "--a", "a--b-", "-", "é")),
    *(
        ("*", f"b.{{{{{name}(1,{size})}}}}", token)
        for name in ("left", "right", "splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight")
        for size in (-1, 0, 1, 2, 5, 6)
        for token in ("abcde", "éü")
    ),
]
"""Source, destination, subject: what chance rarely draws."""

REFUSED = [
    *("{{wildcard()}}", "{{wildcard( )}}", "{{wildcard(1,1)}}", "{{wildcard(x)}}", "{{wildcard(1)}}{{wildcard(1)}}"),
    *(
        "{{WILDCARD(1)}}",
        "{{wildcard(2)}}",
        "$2",
        "{{split(1)}}",
        "{{split(1,,)}}",
        "{{split(x,-)}}",
        "{{split(1,- )}}",
    ),
    *("{{random()}}", "{{random(1,2)}}", "{{partition()}}", "{{partition(2,x)}}", "{{partition(2147483648)}}"),
    *(
        "{{sliceFromLeft(1,2147483648)}}",
        "{{sliceFromLeft(1)}}",
        "{{sliceFromLeft(1,2,3)}}",
        "{{split_from_left(1,1)}}",
    ),
    *("{{ left (1,-9) }}", "{{}}}", "a b", "", "*", ">", ">.a", "..a"),
]
"""Destinations of a source with one wildcard, nearly all of them refused."""

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(180 + EXAMPLES // 20),
]


def verdict(conf: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NATS_SERVER, "-t", "-c", conf], capture_output=True, text=True, timeout=60, check=False)


def test_the_server_refuses_what_we_refuse_in_the_words_we_know(tmp_path: Path) -> None:
    generator = Generator(1, flaws=0.12)
    mappings = [generator.mapping(line) for line in range(2, EXAMPLES + 2)]
    for number, refused in enumerate(REFUSED):
        destination = Destination(subject=f"b.{refused}")
        line = EXAMPLES + 2 + number
        mappings.append(
            MappingRule(source=f"corner.{number}.*", destinations=(destination,), span=Span.point("", line, 1))
        )
    conf = tmp_path / "mappings.conf"
    conf.write_text("mappings {\n" + "\n".join(map(as_conf, mappings)) + "\n}\n", encoding="utf-8")
    output = verdict(conf).stderr
    printed: dict[int, list[str]] = defaultdict(list)
    for at, message in re.findall(rf"^(?:nats-server: )?{re.escape(str(conf))}:(\d+):\d+: (.*)$", output, re.MULTILINE):
        printed[int(at)].append(message)

    expected: dict[int, list[str]] = defaultdict(list)
    for mapping in {mapping.source: mapping for mapping in mappings}.values():  # the last of equal sources wins
        line = mapping.span.line if mapping.span else 0
        errors = [error for error in compile_mappings([mapping]).errors if error.is_rejected]
        weights = [error.server_message for error in errors if error.kind is MappingErrorKind.INVALID_WEIGHT]
        refusals = [error.server_message for error in errors if error.kind is not MappingErrorKind.INVALID_WEIGHT]
        is_single = len(mapping.destinations) == 1
        if any(error.kind is MappingErrorKind.INVALID_SOURCE for error in errors):
            line = BLOCK_LINE  # the server blames the whole block
        if errors:
            expected[line] += weights if weights and is_single else weights + refusals[:1]
    assert {line: sorted(messages) for line, messages in expected.items()} == {
        line: sorted(PREFIX.sub("", message) for message in messages) for line, messages in printed.items()
    }
    assert EXAMPLES // 10 < len(expected) < EXAMPLES * 9 // 10


def rejections(table: MappingTable) -> list[str]:
    """What `nats-server -t` says of rules that it does not take."""
    return [error.server_message for error in table.errors if error.is_rejected]


def test_the_server_accepts_what_we_accept(tmp_path: Path) -> None:
    generator = Generator(2, flaws=0.05)
    mappings = [generator.mapping(line) for line in range(EXAMPLES)]
    accepted = [mapping for mapping in mappings if not rejections(compile_mappings([mapping]))]
    conf = tmp_path / "mappings.conf"
    conf.write_text("mappings {\n" + "\n".join(map(as_conf, accepted)) + "\n}\n", encoding="utf-8")
    assert verdict(conf).returncode == 0
    assert len(accepted) > EXAMPLES // 4


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def exchange(self, user: str, subjects: Sequence[str]) -> dict[int, list[str]]:
        """Publish to each subject with its number as the message: under which subjects does `>` see it."""
        publishes = [
            b"PUB %s %d\r\n%d\r\n" % (subject.encode(), len(str(number)), number)
            for number, subject in enumerate(subjects)
        ]
        login = b'CONNECT {"verbose":false,"pedantic":false,"user":"%s","pass":"pw"}\r\n' % user.encode()
        with closing(socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)) as connection:
            connection.settimeout(DEADLINE_S)
            received: dict[int, list[str]] = defaultdict(list)
            with connection.makefile("rb") as lines:
                # The server looks up whether the account has mappings once per
                # read, so what arrives together with CONNECT would not be mapped.
                connection.sendall(login + b"SUB > 1\r\nPING\r\n")
                assert b"PONG\r\n" in lines
                connection.sendall(b"".join(publishes) + b"PING\r\n")
                for line in lines:
                    if line == b"PONG\r\n":
                        return received
                    if line.startswith(b"MSG "):
                        subject = line.removeprefix(b"MSG ").rsplit(b" ", 2)[0]
                        received[int(next(lines))].append(subject.decode("utf-8", "surrogateescape"))
                    assert not line.startswith(b"-ERR"), line
        raise ConnectionError("the server closed the connection")


StartServer = Callable[[str | None, Sequence[MappingTable]], Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Start a server with one account per table; user u0 is in the first, and so on."""
    started: list[subprocess.Popen[bytes]] = []

    def start_server(cluster: str | None, tables: Sequence[MappingTable]) -> Server:
        name = f"oracle-{os.getpid()}-{len(started)}"
        accounts = [
            f"A{number} {{\nusers: [{{user: u{number}, password: pw}}]\nmappings {{\n"
            + "\n".join(map(as_conf, table.mappings))
            + "\n}\n}"
            for number, table in enumerate(tables)
        ]
        port = free_port()
        conf = tmp_path / f"{name}.conf"
        log = tmp_path / f"{name}.log"
        lines = [f"server_name: {name}", f'listen: "127.0.0.1:{port}"', "accounts {", *accounts, "}"]
        lines += [f'cluster {{ name: "{cluster}" }}'] if cluster else []
        conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with log.open("wb") as output:
            process = subprocess.Popen([NATS_SERVER, "-c", conf], stdout=output, stderr=output)
        started.append(process)
        wait_until_up(process, port, name, log)
        return Server(process, port, log)

    yield start_server
    for process in started:
        process.kill()
    for process in started:
        process.wait(DEADLINE_S)


def wait_until_up(process: subprocess.Popen[bytes], port: int, name: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with closing(socket.create_connection(("127.0.0.1", port), DEADLINE_S)) as connection:
                assert name.encode() in connection.recv(4096)
                return
        except ConnectionRefusedError:
            time.sleep(0.005)
    pytest.fail(f"{name} does not start:\n{log.read_text(encoding='utf-8', errors='replace')}")


def compare(server: Server, cluster: str | None, generator: Generator, tables: Sequence[MappingTable]) -> Counter[str]:
    """Publish to every account and hold what arrives against the model; counts the pairs by kind of outcome."""
    pairs: Counter[str] = Counter()
    for number, table in enumerate(tables):
        subjects = [generator.subject(table) for _ in range(SUBJECTS_PER_ACCOUNT)]
        received = server.exchange(f"u{number}", subjects)
        for message, subject in enumerate(subjects):
            resolution = table.resolve(subject, cluster)
            delivered = received.get(message, [])
            assert len(delivered) <= 1
            seen = delivered[0] if delivered else None
            assert resolution.admits(seen), (table.mappings, cluster, subject, seen, resolution)
            certain = only_outcome(resolution)
            by_chance = "ambiguous" if resolution.is_ambiguous else "by weight"
            pairs[certain.kind.value if certain else by_chance] += 1
    return pairs


def test_the_server_delivers_what_we_say(start: StartServer) -> None:
    generator = Generator(3, flaws=0.04)
    pairs: Counter[str] = Counter()
    while pairs.total() < EXAMPLES:
        left = -(-(EXAMPLES - pairs.total()) // (SUBJECTS_PER_ACCOUNT * len(CLUSTERS)))
        tables = [generator.table() for _ in range(min(left, ACCOUNTS_PER_SERVER))]
        for cluster in CLUSTERS:
            server = start(cluster, tables)
            pairs += compare(server, cluster, generator, tables)
            server.process.kill()
    assert pairs["mapped"] > EXAMPLES // 5
    assert min(pairs[kind] for kind in ("identity", "dropped", "by weight", "ambiguous")) > 0


def test_the_server_delivers_what_we_say_in_corner_cases(start: StartServer) -> None:
    rules = [MappingRule(source=a, destinations=(Destination(subject=b),)) for a, b, _ in CORNERS]
    tables = [compile_mappings([rule]) for rule in rules]
    server = start(None, tables)
    for number, (_, _, subject) in enumerate(CORNERS):
        certain = only_outcome(tables[number].resolve(subject))
        assert certain is not None
        expected = {} if certain.kind is OutcomeKind.DROPPED else {0: [certain.subject]}
        assert expected == server.exchange(f"u{number}", [subject]), CORNERS[number]


def test_shares_follow_the_weights(start: StartServer) -> None:
    shares = [("b", 60, "west"), ("c", 25, "west"), ("d", 100, None)]
    rule = MappingRule(
        source="a", destinations=tuple(Destination(subject=s, weight=w, cluster=c) for s, w, c in shares)
    )
    table = compile_mappings([rule])
    sample = 5_000
    received = start("west", [table]).exchange("u0", ["a"] * sample)
    counted = Counter(subject for subjects in received.values() for subject in subjects)
    for outcome in table.resolve("a", "west").outcomes:
        assert counted[outcome.subject] / sample == pytest.approx(outcome.probability_percent / 100, abs=0.05)
    assert set(counted) == {"a", "b", "c"}


def test_a_missing_destination_passes_the_check_and_kills_the_server(start: StartServer, tmp_path: Path) -> None:
    table = compile_mappings([MappingRule(source="a", destinations=(Destination(subject=""),))])
    conf = tmp_path / "mappings.conf"
    conf.write_text("mappings { a: {weight: 100} }\n", encoding="utf-8")
    assert verdict(conf).returncode == 0
    assert not rejections(table)
    assert [outcome.kind for outcome in table.resolve("a").outcomes] == [OutcomeKind.PANICS]
    server = start(None, [table])
    with pytest.raises(ConnectionError):
        server.exchange("u0", ["a"])
    assert server.process.wait(DEADLINE_S) != 0
    assert "nil pointer dereference" in server.log.read_text(encoding="utf-8")
