"""
Parse messages out of whole buffers in one pass, which makes extraction fast.

Both scanners take a buffer and the position of a message, append complete messages, and
return where they stopped: at the end, at an incomplete message, or at another line (a
status, a PING), which the caller parses with `client.next_message`. This code runs for
every message, so every slice counts.
"""

from __future__ import annotations

from vstream.audit.connector import bulk
from vstream.audit.connector.client import Message, RetryableError, next_message
from vstream.audit.connector.columns import MSG_ID_LINE, ROLLUP_LINE, SOURCE_LINE, TTL_LINE, MessageColumns
from vstream.jetstream.answers import convert_malformed_errors

_CRLF = b"\r\n"
_HMSG_BYTE = 72
"""The byte H: only messages with headers begin with it."""
_BLANK_LINE = b"\r\n\r\n"
_DIRECT_PREFIX = b"\r\nNats-Stream: "
_DIRECT_LINE_COUNT = 9
"""Number of parts of an answer's own headers, split at line ends: an empty part, six headers, and two ends."""
_ACK_PREFIX = b" $JS.ACK."
_OLD_ACK_TOKENS = 9
"""Number of tokens in the reply subject up to 2.10, and so far by default in later versions."""
_MAX_MESSAGES_ONE_BY_ONE = 32
"""Messages in a buffer up to which it is faster to parse each by itself."""


class PullScanner:
    """
    Messages from a pull consumer: their reply subjects contain sequence, time and the number of pending messages.

    The consumer's own sequences have no gaps: a gap means that messages were lost between
    the server and us.
    """

    def __init__(self, columns: MessageColumns, *, each_up_to: int = _MAX_MESSAGES_ONE_BY_ONE) -> None:
        self.columns = columns
        self._each_up_to = each_up_to
        self.pending = -1
        self.last_seq = 0
        self.last_consumer_seq = 0
        self.count = 0
        self._prefix = b""

    def scan(self, data: bytes, position: int) -> int:
        """Append the messages from *position* on, and return the position of the first one not appended."""
        prefix = self._prefix or self._find_prefix(data, position)
        if not prefix:
            return position
        # Lines of messages hold the prefix and nothing else does, for we have drawn the consumer's name: but see `bulk`.
        line, *pieces = (data[position:] if position else data).split(prefix)
        if len(pieces) > self._each_up_to:
            unfinished = _drop_incomplete(pieces, prefix)
            result = bulk.parse_block(line, pieces, self.columns)
            if result is not None:
                self.columns.add(result)
                self._count_received(len(pieces), pieces[-1])
                return len(data) - unfinished
        return self._scan_one_by_one(data, position, prefix)

    def _scan_one_by_one(self, data: bytes, position: int, prefix: bytes) -> int:
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
            if line[0] == _HMSG_BYTE:
                after = find(_BLANK_LINE, start) + 4
                header = data[start:after]
                start = after
            columns.headers.append(header)
            columns.subjects.append(head[4 if header is None else 5 :])
            columns.sources.append(_last_value(header or b"", SOURCE_LINE))
            columns.msg_ids.append(_value(header or b"", MSG_ID_LINE))
            columns.ttls.append(_value(header or b"", TTL_LINE))
            columns.rollups.append(_value(header or b"", ROLLUP_LINE))
            columns.seqs.append(seq)
            columns.times.append(when)
            columns.payloads.append(data[start:end])
            tail = rest
            count += 1
            position = end + 2
        if count:
            self._count_received(count, tail)
        return position

    def _count_received(self, count: int, tail: bytes) -> None:
        seq, consumer_seq, _, rest = tail.split(b".", 3)
        self.count += count
        self.last_seq = int(seq)
        self.last_consumer_seq = int(consumer_seq)
        # A token may follow: version 2 of these subjects ends with a random one.
        self.pending = int(rest.partition(b" ")[0].partition(b".")[0])

    @property
    def is_gapless(self) -> bool:
        """Whether all messages that the consumer has sent so far have arrived."""
        return self.last_consumer_seq == self.count

    def _find_prefix(self, data: bytes, position: int) -> bytes:
        """
        The prefix of the sequence in every reply subject of this consumer, empty if there is no message.

        `$JS.ACK.<stream>.<consumer>.1.` or, in version 2, with a domain and a hash before the
        stream. The 1 is the delivery count, which is always 1 without acknowledgements.
        """
        eol = data.find(_CRLF, position)
        if eol < 0 or data[position : position + 4] not in {b"MSG ", b"HMSG"}:
            return b""
        parts = data[position:eol].split(b" ")
        lengths = 2 if parts[0] == b"HMSG" else 1
        if len(parts) != 4 + lengths or not parts[3].startswith(_ACK_PREFIX[1:]):
            return b""
        tokens = parts[3].split(b".")
        before = 5 if len(tokens) == _OLD_ACK_TOKENS else 7
        self._prefix = b" " + parts[2] + b" " + b".".join(tokens[:before]) + b"."
        return self._prefix


class DirectScanner:
    """
    The answer to one batch of Direct Get: all information is in the headers of each message.

    *subject* is the reply subject of the batch. *stream* is the stream that must answer: a mirror
    that answers instead may have other messages.
    """

    def __init__(self, columns: MessageColumns, subject: str, stream: str) -> None:
        self.columns = columns
        self.subject = subject
        self.first_pending = -1
        self.pending = -1
        self.count = 0
        self._prefix = b"HMSG " + subject.encode() + b" "
        self._stream = stream.encode()

    def scan(self, data: bytes, position: int) -> int:
        """Like `PullScanner.scan`. Raises WrongStreamError if another stream than *stream* has answered."""
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
            direct_headers = header.rfind(_DIRECT_PREFIX)
            lines = header[direct_headers:].split(_CRLF)
            if direct_headers < 0 or len(lines) != _DIRECT_LINE_COUNT:
                break
            if lines[1][13:] != self._stream:
                raise WrongStreamError(lines[1][13:].decode(errors="replace"))
            columns.subjects.append(lines[2][14:])
            columns.seqs.append(lines[3][15:])
            columns.times.append(lines[4][17:])
            stored = header[:direct_headers]
            columns.sources.append(_last_value(stored, SOURCE_LINE))
            columns.msg_ids.append(_value(stored, MSG_ID_LINE))
            columns.ttls.append(_value(stored, TTL_LINE))
            columns.rollups.append(_value(stored, ROLLUP_LINE))
            columns.headers.append(stored + _BLANK_LINE if _CRLF in stored else None)
            columns.payloads.append(data[after:end])
            self.pending = int(lines[5][18:])
            if not self.count:
                self.first_pending = self.pending
            self.count += 1
            position = end + 2
        return position


def _drop_incomplete(pieces: list[bytes], prefix: bytes) -> int:
    """Remove an incomplete last message from *pieces*, and return the number of bytes after the complete ones."""
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
    """The value of the header *name*, None if missing. Every header block ends with a line end."""
    _, is_there, value = header.partition(name)
    return value.partition(_CRLF)[0] if is_there else None


def _last_value(header: bytes, name: bytes) -> bytes | None:
    """As `_value`, of the last header *name*: what a server adds stands behind what a client sent."""
    _, is_there, value = header.rpartition(name)
    return value.partition(_CRLF)[0] if is_there else None


def scan_buffer(scanner: PullScanner | DirectScanner, data: bytes) -> tuple[int, list[Message]]:
    """
    Scan *data*, which begins with a message, with *scanner*.

    Returns where an incomplete line begins, and all complete ones that are not messages of
    the scanner. Raises MalformedAnswerError for data that no server sends.
    """
    other_lines = []
    with convert_malformed_errors("the stream that is read"):
        position = scanner.scan(data, 0)
        while (message := next_message(data, position)) is not None:
            other_lines.append(message)
            position = scanner.scan(data, message.end)
    return position, other_lines


class WrongStreamError(RetryableError):
    """A mirror has answered instead of the requested stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream `{stream}` has answered instead", hint="use read_by=consumer, or turn off its mirror_direct"
        )
        self.stream = stream
