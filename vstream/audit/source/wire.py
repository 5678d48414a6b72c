"""
Parse messages out of whole buffers in one pass: what makes extraction fast.

Both scanners take a buffer and a position where a message begins, append what is
complete, and say where they stopped: at the end, at a message whose end is missing,
or at a line that is not theirs to understand (a status, a PING), which the caller
looks at with `client.next_message`. Every slice here is paid for a billion times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.audit.source import bulk
from vstream.audit.source.client import RetryableError, next_message
from vstream.jetstream.answers import reading

if TYPE_CHECKING:
    from vstream.audit.source.client import Message
    from vstream.audit.source.columns import MessageColumns

_CRLF = b"\r\n"
_HMSG = 72
"""An H: of messages, only those with headers begin with it."""
_SOURCE = b"\nNats-Stream-Source:"
_MSG_ID = b"\nNats-Msg-Id:"
_TTL = b"\nNats-TTL:"
_BLANK_LINE = b"\r\n\r\n"
_DIRECT = b"\r\nNats-Stream: "
_DIRECT_LINES = 9
"""Parts of an answer's own headers, split at line ends: nothing, six headers, and two ends."""
_ACK = b" $JS.ACK."
_OLD_ACK = 9
"""Tokens of the reply subject up to 2.10 and, so far, by default after it."""
_FEW = 32
"""Messages of one buffer that are sooner gone over one by one."""


class PullScanner:
    """
    Messages that a pull consumer sends: their reply subjects carry sequence, time and what is left.

    The consumer's own sequences have no gaps: where they have one, something between
    the server and us has lost messages.
    """

    def __init__(self, columns: MessageColumns, *, few: int = _FEW) -> None:
        self.columns = columns
        self._few = few
        self.pending = -1
        self.last_seq = 0
        self.last_consumer_seq = 0
        self.count = 0
        self._prefix = b""

    def scan(self, data: bytes, position: int) -> int:
        """Append the messages from *position* on; returns where the first one begins that was not taken."""
        prefix = self._prefix or self._learn(data, position)
        if not prefix:
            return position
        # Lines of messages hold the prefix and nothing else does, for we have drawn the consumer's name: but see `bulk`.
        line, *pieces = (data[position:] if position else data).split(prefix)
        if len(pieces) > self._few:
            unfinished = _finish(pieces, prefix)
            result = bulk.parse_block(line, pieces, self.columns)
            if result is not None:
                self.columns.add(result)
                self._account(len(pieces), pieces[-1])
                return len(data) - unfinished
        return self._one_by_one(data, position, prefix)

    def _one_by_one(self, data: bytes, position: int, prefix: bytes) -> int:
        columns = self.columns
        find = data.find
        count, tail = 0, b""
        while True:
            eol = find(_CRLF, position)
            if eol < 0:
                break
            line = data[position:eol]
            head, result, rest = line.partition(prefix)
            if not result:
                break
            seq, _, when, lengths = rest.split(b".", 3)
            start = eol + 2
            end = start + int(lengths[lengths.rfind(b" ") :])
            if end + 2 > len(data):
                break
            header = None
            if line[0] == _HMSG:
                after = find(_BLANK_LINE, start) + 4
                header = data[start:after]
                start = after
            columns.headers.append(header)
            columns.subjects.append(head[4 if header is None else 5 :])
            columns.sources.append(_value(header or b"", _SOURCE))
            columns.msg_ids.append(_value(header or b"", _MSG_ID))
            columns.ttls.append(_value(header or b"", _TTL))
            columns.seqs.append(seq)
            columns.times.append(when)
            columns.payloads.append(data[start:end])
            tail = rest
            count += 1
            position = end + 2
        if count:
            self._account(count, tail)
        return position

    def _account(self, taken: int, tail: bytes) -> None:
        seq, consumer_seq, _, rest = tail.split(b".", 3)
        self.count += taken
        self.last_seq = int(seq)
        self.last_consumer_seq = int(consumer_seq)
        # A token may follow: version 2 of these subjects ends with a random one.
        self.pending = int(rest.partition(b" ")[0].partition(b".")[0])

    @property
    def is_gapless(self) -> bool:
        """Whether everything that the consumer has sent so far has arrived."""
        return self.last_consumer_seq == self.count

    def _learn(self, data: bytes, position: int) -> bytes:
        """
        What stands before the sequence in every reply subject of this consumer, empty if no message is here.

        `$JS.ACK.<stream>.<consumer>.1.` or, in version 2, with a domain and a hash
        before the stream. Deliveries are counted: without acknowledgements always 1.
        """
        eol = data.find(_CRLF, position)
        if eol < 0 or data[position : position + 4] not in {b"MSG ", b"HMSG"}:
            return b""
        parts = data[position:eol].split(b" ")
        lengths = 2 if parts[0] == b"HMSG" else 1
        if len(parts) != 4 + lengths or not parts[3].startswith(_ACK[1:]):
            return b""
        tokens = parts[3].split(b".")
        before = 5 if len(tokens) == _OLD_ACK else 7
        self._prefix = b" " + parts[2] + b" " + b".".join(tokens[:before]) + b"."
        return self._prefix


class DirectScanner:
    """
    The answer to one batch of Direct Get: everything is in the headers of each message.

    *subject* is where this batch is answered, *stream* who must answer it: a mirror
    that does so instead may hold something else.
    """

    def __init__(self, columns: MessageColumns, subject: str, stream: str) -> None:
        self.columns = columns
        self.first_pending = -1
        self.pending = -1
        self.count = 0
        self._prefix = b"HMSG " + subject.encode() + b" "
        self._stream = stream.encode()

    def scan(self, data: bytes, position: int) -> int:
        """As `PullScanner.scan`. Raises WrongStreamError if something else than *stream* has answered."""
        columns = self.columns
        find = data.find
        size = len(data)
        prefix = self._prefix
        while data.startswith(prefix, position):
            eol = find(_CRLF, position)
            if eol < 0:
                break
            _, header_size, total = data[position + len(prefix) : eol].split(b" ")
            start = eol + 2
            end = start + int(total)
            if end + 2 > size:
                break
            after = start + int(header_size)
            header = data[start:after]
            # The answer's own headers come last; a message that was republished has others of the same names.
            direct_headers = header.rfind(_DIRECT)
            lines = header[direct_headers:].split(_CRLF)
            if direct_headers < 0 or len(lines) != _DIRECT_LINES:
                break
            if lines[1][13:] != self._stream:
                raise WrongStreamError(lines[1][13:].decode(errors="replace"))
            columns.subjects.append(lines[2][14:])
            columns.seqs.append(lines[3][15:])
            columns.times.append(lines[4][17:])
            stored = header[:direct_headers]
            columns.sources.append(_value(stored, _SOURCE))
            columns.msg_ids.append(_value(stored, _MSG_ID))
            columns.ttls.append(_value(stored, _TTL))
            columns.headers.append(stored + _BLANK_LINE if _CRLF in stored else None)
            columns.payloads.append(data[after:end])
            self.pending = int(lines[5][18:])
            if not self.count:
                self.first_pending = self.pending
            self.count += 1
            position = end + 2
        return position


def _finish(pieces: list[bytes], prefix: bytes) -> int:
    """Leave whole messages in *pieces*, the last of which may not be; returns how many bytes come after them."""
    last = pieces[-1]
    eol = last.find(_CRLF)
    end = eol + 2 + int(last[last.rfind(b" ", 0, eol) : eol]) + 2 if eol >= 0 else len(last) + 1
    if end <= len(last):
        pieces[-1] = last[:end]
        return len(last) - end
    pieces.pop()
    begun = pieces[-1]
    return len(begun) - begun.rindex(_CRLF) - 2 + len(prefix) + len(last)


def _value(header: bytes, name: bytes) -> bytes | None:
    """The value of the header *name*, None if there is none. Every header block has an end of line."""
    _, is_there, value = header.partition(name)
    return value.partition(_CRLF)[0] if is_there else None


def scan_buffer(scanner: PullScanner | DirectScanner, data: bytes) -> tuple[int, list[Message]]:
    """
    Let *scanner* take its messages from *data*, of which the beginning is one of a message.

    Returns where the rest begins that is not complete yet, and everything that was
    complete and not the scanner's. Raises MalformedAnswerError for what no server sends.
    """
    rest = []
    with reading("the stream that is read"):
        position = scanner.scan(data, 0)
        while (message := next_message(data, position)) is not None:
            rest.append(message)
            position = scanner.scan(data, message.end)
    return position, rest


class WrongStreamError(RetryableError):
    """Another stream than the one that was asked has answered: a mirror of it."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream `{stream}` has answered instead", hint="use read_by=consumer, or turn off its mirror_direct"
        )
        self.stream = stream
