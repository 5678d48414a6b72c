"""Messages out of buffers: the same whatever the network snapshot them into."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ports import free_port
from vstream.audit.connector.client import next_message
from vstream.audit.connector.columns import MessageColumns
from vstream.audit.connector.stream_snapshots import take_snapshots
from vstream.audit.connector.values import Access, StreamRef
from vstream.audit.connector.wire import DirectScanner, PullScanner, WrongStreamError, scan_buffer
from vstream.capture.digest import digest, to_signed_int64
from vstream.errors import NotReachableError, VstreamError

INBOX = "_INBOX.a.2.in"
MOMENT = 1795197600 * 10**9
"""When answers to Direct Get say that messages were stored: 2026-11-20T18:00:00Z."""


@dataclass(frozen=True)
class Sent:
    """A stored message as a test means it. *noise* are lines in front of it."""

    subject: bytes
    payload: bytes
    msg_id: bytes | None
    source: bytes | None
    other_header: bytes | None
    noise: bytes = b""
    ttl: bytes | None = None
    rollup: bytes | None = None

    @property
    def header(self) -> bytes | None:
        named = (
            (b"X-Other", self.other_header),
            (b"Nats-Msg-Id", self.msg_id),
            (b"Nats-Stream-Source", self.source),
            (b"Nats-TTL", self.ttl),
            (b"Nats-Rollup", self.rollup),
        )
        lines = [name + b": " + value for name, value in named if value is not None]
        return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n" if lines else None


tokens = st.text("abcXYZ019_-$", min_size=1, max_size=6).map(str.encode)
subjects = st.lists(tokens, min_size=1, max_size=4).map(b".".join)
# Payloads like to look like the protocol.
payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"\r\n", b"MSG a 2 3\r\nabc\r\n", b"HMSG x", b"\r\nPING\r\n", b"\r\nNats-Stream: no\r\n\r\n"]
    ),
)
values = st.one_of(st.none(), st.text("abc019 >.:", min_size=1, max_size=12).map(lambda text: text.strip().encode()))
lookalikes = st.one_of(values, st.sampled_from([b"y\nNats-Msg-Id: z", b"y\nNats-TTL: 5"]))
"""Of headers that say nothing to servers, although they may look like some that do: lines end with both characters."""
noises = st.sampled_from([b"", b"", b"", b"PING\r\n", b"+OK\r\n", b"MSG other 1 2\r\nok\r\n", b"INFO {}\r\n"])
messages = st.lists(
    st.builds(Sent, subjects, payloads, values, values, lookalikes, noises, values, values), max_size=12
)
snapshots = st.lists(st.integers(1, 60), min_size=1, max_size=30)


def pull_bytes(sent: list[Sent], *, first: int = 7, old: bool = True) -> bytes:
    data = b""
    for number, message in enumerate(sent):
        left = len(sent) - number - 1
        if old:
            reply = b"$JS.ACK.foo.cons.1.%d.%d.%d.%d" % (first + number, number + 1, 10**18 + number, left)
        else:
            reply = b"$JS.ACK._.hash.foo.cons.1.%d.%d.%d.%d.rnd" % (first + number, number + 1, 10**18 + number, left)
        header = message.header
        data += message.noise
        if header is None:
            data += b"MSG %s 2 %s %d\r\n" % (message.subject, reply, len(message.payload))
        else:
            total = len(header) + len(message.payload)
            data += b"HMSG %s 2 %s %d %d\r\n%s" % (message.subject, reply, len(header), total, header)
        data += message.payload + b"\r\n"
    return data


def fraction(nanoseconds: int) -> bytes:
    """As Go writes it: without zeros at the end."""
    return b"" if not nanoseconds else (b".%09d" % nanoseconds).rstrip(b"0")


def direct_bytes(sent: list[Sent], *, first: int = 7, stream: bytes = b"foo") -> bytes:
    data = b""
    for number, message in enumerate(sent):
        server_headers = b"Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\n" % (
            stream,
            message.subject,
            first + number,
        )
        server_headers += b"Nats-Time-Stamp: 2026-11-20T18:00:00%sZ\r\n" % fraction(number)
        server_headers += b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n\r\n" % (
            len(sent) - number - 1,
            number and first + number - 1,
        )
        header = (message.header or b"NATS/1.0\r\n\r\n")[:-2] + server_headers
        total = len(header) + len(message.payload)
        data += message.noise + b"HMSG %s.1 2 %d %d\r\n%s%s\r\n" % (
            INBOX.encode(),
            len(header),
            total,
            header,
            message.payload,
        )
    end = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: %d\r\n\r\n" % (first + len(sent) - 1)
    return data + b"HMSG %s.1 2 %d %d\r\n%s\r\n" % (INBOX.encode(), len(end), len(end), end)


def feed(scanner: PullScanner | DirectScanner, data: bytes, sizes: list[int]) -> list[bytes]:
    """Hand *data* over in pieces of *sizes*, again and again; returns the verbs of what was not a message of ours."""
    rest, place, turn, verbs = b"", 0, 0, []
    while place < len(data):
        size = sizes[turn % len(sizes)]
        turn += 1
        rest += data[place : place + size]
        place += size
        position, scanned = scan_buffer(scanner, rest)
        verbs += [message.verb for message in scanned]
        rest = rest[position:]
    assert not rest
    return verbs


def check(columns: MessageColumns, sent: list[Sent], first_time: int, without: tuple[str, ...] = ()) -> None:
    whole = [
        {
            "seq": 7 + number,
            "time_ns": first_time + number,
            "subject": message.subject.decode(),
            "msg_id": None if message.msg_id is None else message.msg_id.decode(),
            "source": None if message.source is None else message.source.decode(),
            "ttl": None if message.ttl is None else message.ttl.decode(),
            "rollup": None if message.rollup is None else message.rollup.decode(),
            "size": len(message.payload),
            "digest": to_signed_int64(digest(message.payload)),
            "headers": message.header,
            "payload": message.payload,
        }
        for number, message in enumerate(sent)
    ]
    assert columns.count == len(sent)
    expected = [{name: value for name, value in row.items() if name not in without} for row in whole]
    assert columns.block().to_pylist() == expected


def test_whole_buffers_are_taken_apart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs least is what is used, whether messages have headers, all of them or some, or none."""
    monkeypatch.setattr(PullScanner, "_scan_one_by_one", None)
    plain, sourced = Sent(b"a.b", b"x" * 9, None, None, None), Sent(b"a", b"\r\n", None, b"w 5 > >", None)
    for group in (
        [plain] * 99,
        [sourced] * 99,
        [plain, sourced] * 50,
        [Sent(b"c", b"", b"id", b"w 1", b"y"), plain] * 40,
        [
            Sent(b"d" * 200, b"\r\n. 1" * 300, None, b"w 5 > >", b"z" * 300),
            Sent(b"d" * 200, b"x" * 900, None, None, None),
        ]
        * 40,
    ):
        data = pull_bytes(group)
        for end in (len(data), len(data) - 1, len(data) - 20, len(data) - 60):
            pulled = PullScanner(MessageColumns(wants_payload=True))
            position = pulled.scan(data[:end], 0)
            done = pulled.columns.count
            assert (done == len(group)) == (end == len(data))
            assert pulled.columns.block()["payload"].to_pylist() == [message.payload for message in group[:done]]
            assert pulled.last_seq == 6 + done
            assert data[position:].startswith((b"MSG ", b"HMSG ")) or position == len(data)


@pytest.mark.parametrize("few", [1, 1000])
@given(messages, snapshots, st.booleans(), st.booleans())
def test_a_pull_consumers_messages_survive_any_cutting(
    few: int, sent: list[Sent], sizes: list[int], old: bool, wants_headers: bool
) -> None:
    pulled = PullScanner(MessageColumns(wants_headers=wants_headers, wants_payload=True), each_up_to=few)
    verbs = feed(pulled, pull_bytes(sent, old=old), sizes)
    check(pulled.columns, sent, 10**18, () if wants_headers else ("headers",))
    assert len(verbs) == sum(bool(message.noise) for message in sent)
    assert pulled.pending == (0 if sent else -1)
    assert pulled.last_seq == (6 + len(sent) if sent else 0)
    assert pulled.is_gapless


@given(messages, snapshots)
def test_direct_get_batches_survive_any_cutting(sent: list[Sent], sizes: list[int]) -> None:
    direct = DirectScanner(MessageColumns(wants_headers=True, wants_payload=True), f"{INBOX}.1", "foo")
    verbs = feed(direct, direct_bytes(sent), sizes)
    check(direct.columns, sent, MOMENT)
    assert len(verbs) == sum(bool(message.noise) for message in sent) + 1
    assert direct.count == len(sent)
    if sent:
        assert direct.first_pending - direct.pending + 1 == direct.count


def test_a_region_that_does_not_answer_is_waited_for_once() -> None:
    stream_refs = [StreamRef(stream=role, region="west", virtual="foo", role=role) for role in ("write", "read")]
    with socket.create_server(("127.0.0.1", free_port())) as silent:
        access = Access(servers=(f"nats://127.0.0.1:{silent.getsockname()[1]}",), timeout=0.2)
        snapshots = take_snapshots(stream_refs, {"west": access})
        assert ["nothing received" in (snapshot.error or "") for snapshot in snapshots] == [True, True]
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize("number", [1, 99])
def test_what_a_server_says_of_a_source_stands_behind_what_a_client_said(number: int) -> None:
    """Servers before 2.12 leave a second header of that name, or half a line, where it is. Of one id, they take the first."""
    forged = b"y\nNats-Stream-Source: other 2\r\nNats-Stream-Source: other 3 > >\r\nNats-Msg-Id: first"
    sent = [Sent(b"a", b"x", b"second", b"w 5 > >", forged)] * number
    sent += [Sent(b"a", b"x", b"first", None, b"y\nNats-Stream-Source: w 5 > >")] * number
    pulled, columns = PullScanner(MessageColumns()), MessageColumns()
    feed(pulled, pull_bytes(sent), [10**6])
    feed(DirectScanner(columns, f"{INBOX}.1", "foo"), direct_bytes(sent), [10**6])
    for block in (pulled.columns.block(), columns.block()):
        assert block["source"].to_pylist() == ["w 5 > >"] * len(sent)
        assert block["msg_id"].to_pylist() == ["first"] * len(sent)


def test_bytes_that_are_not_text_are_escaped() -> None:
    """Two names that differ only in these are still two."""
    pulled = PullScanner(MessageColumns())
    feed(pulled, pull_bytes([Sent(b"a.\xff", b"", b"\xfe", None, None), Sent(b"b", b"", b"c", None, None)]), [10])
    assert pulled.columns.block()["subject"].to_pylist() == ["a.\\xff", "b"]
    assert pulled.columns.block()["msg_id"].to_pylist() == ["\\xfe", "c"]


def test_a_message_that_the_server_dropped_is_noticed() -> None:
    sent = [Sent(b"a", b"x", None, None, None) for _ in range(3)]
    lines = pull_bytes(sent).split(b"x\r\n")
    pulled = PullScanner(MessageColumns())
    feed(pulled, lines[0] + b"x\r\n" + lines[2] + b"x\r\n", [1000])
    assert not pulled.is_gapless


def test_a_mirror_that_answers_instead_is_refused() -> None:
    direct = DirectScanner(MessageColumns(), f"{INBOX}.1", "foo")
    with pytest.raises(WrongStreamError, match="mirrored"):
        feed(direct, direct_bytes([Sent(b"a", b"x", None, None, None)], stream=b"mirrored"), [1000])


def test_a_batch_of_somebody_elses_is_left_alone() -> None:
    direct = DirectScanner(MessageColumns(), f"{INBOX}.9", "foo")
    assert feed(direct, direct_bytes([Sent(b"a", b"x", None, None, None)]), [1000]) == [b"HMSG", b"HMSG"]
    assert direct.count == 0


@given(st.binary(max_size=30))
def test_an_incomplete_message_is_not_read(data: bytes) -> None:
    whole = b"MSG a.b 1 r %d\r\n%s\r\n" % (len(data), data)
    for length in range(len(whole)):
        assert next_message(whole[:length], 0) is None
    message = next_message(whole, 0)
    assert message is not None
    assert (message.payload, message.subject, message.reply, message.end) == (data, "a.b", "r", len(whole))


@pytest.mark.parametrize(
    "line",
    [b"MSG x", b"MSG x y 3", b"MSG x 1 -5", b"MSG x 1 4294967296", b"HMSG x 1 9 3", b"HMSG x 1 3", b"MSG x 1 2 3 4 5"],
)
def test_a_line_that_no_server_sends_is_an_error(line: bytes) -> None:
    with pytest.raises(NotReachableError, match="does not speak the NATS protocol"):
        next_message(line + b"\r\nabc\r\n", 0)


def test_without_xxhash_only_digests_are_missing_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vstream.capture.digest")
    monkeypatch.delitem(sys.modules, "vstream.audit.connector.columns")
    monkeypatch.setitem(sys.modules, "xxhash", None)
    without = import_module("vstream.audit.connector.columns")
    columns = without.MessageColumns(wants_digest=False)
    for reader in (columns, with_digests := without.MessageColumns()):
        scan_buffer(PullScanner(reader), b"MSG a 1 $JS.ACK.s.c.1.5.1.7.0 3\r\nabc\r\n")
    assert columns.block().to_pylist()[0]["seq"] == 5
    with pytest.raises(VstreamError, match="need xxhash") as raised:
        with_digests.block()
    assert raised.value.hint == "pip install xxhash"
