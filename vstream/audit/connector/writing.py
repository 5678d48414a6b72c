"""
Write rows to one stream: each is acknowledged before its task ends, and has a message id that a retry repeats.

Publishes are pipelined. After a broken connection, rows without an acknowledgement are published again with the
same message id, so the stream drops duplicates within its duplicate window.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from vstream.audit.connector.client import Message, RetryableError, api_request, back_off, connect
from vstream.audit.connector.options import WriteOptions
from vstream.audit.connector.reading import MAX_ATTEMPTS
from vstream.audit.connector.values import Access, StreamRef
from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream.answers import api_error, convert_malformed_errors, decode_object

_MAX_UNACKNOWLEDGED = 512
"""Maximum number of messages without an acknowledgement, at most `_MAX_UNACKNOWLEDGED_BYTES` together; at least one."""
_MAX_UNACKNOWLEDGED_BYTES = 4 << 20
_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "subject": (StringType(),),
    "payload": (BinaryType(), StringType()),
    "msg_id": (StringType(),),
    "headers": (MapType(StringType(), StringType()), BinaryType()),
}
_MSG_ID_HEADER = b"nats-msg-id"
_EXPECTED_STREAM_HEADER = b"nats-expected-stream"
_HEADER_VERSION = b"NATS/1.0"
_SUBJECT = re.compile(r"[^\s.*>\x00]+(\.[^\s.*>\x00]+)*")
_PASSING_STATUSES = (429, 503)
"""Error codes after which a retry may succeed: too many messages at once, no leader."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """The message for one row. *headers* is the whole header block."""

    place: str
    subject: str
    headers: bytes
    payload: bytes

    @property
    def size(self) -> int:
        """The size in bytes that counts against `max_payload`."""
        return len(self.headers) + len(self.payload)


class JetStreamWriter(DataSourceArrowWriter):
    """Writes a batch. Derived message ids begin with an id of the batch, which retried tasks use again."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        require_columns(schema, options.subject)
        require_writable_stream(options.access, options.stream_ref)
        self._options = options
        self._write_id = secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor: publish all rows of a partition. Raises VstreamError unless each is acknowledged."""
        return _publish_rows(iterator, self._options, f"{self._write_id}/0/{_task().partitionId()}")


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """Writes a streaming query: a repeated batch, even after a restart, has the same message ids."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        require_columns(schema, options.subject)
        require_writable_stream(options.access, options.stream_ref)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Like `JetStreamWriter.write`."""
        task = _task()
        # What Spark calls its query and its batch; a restart from the same checkpoint has the same.
        query, batch = (task.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if not query or not batch:
            raise VstreamError(
                "Spark does not say which batch of which query this is, so a retry would publish rows twice"
            )
        return _publish_rows(iterator, self._options, f"{query}/{batch}/{task.partitionId()}")


def _publish_rows(rows: Iterator[pa.RecordBatch], options: WriteOptions, write_id: str) -> WriterCommitMessage:
    publish_messages(options, convert_rows(rows, options, write_id))
    return WriterCommitMessage()


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise VstreamError("rows are written by tasks of Spark only")
    return task


def require_columns(schema: StructType, subject: str | None) -> None:
    """Raise VstreamError with all problems if rows of *schema* cannot be written."""
    problems = []
    for column in schema.fields:
        kinds = _COLUMNS.get(column.name)
        if kinds is None:
            problems.append(f"messages have no column `{column.name}`")
        elif not any(_is_same_type(column.dataType, kind) for kind in kinds):
            problems.append(
                f"`{column.name}` is {' or '.join(kind.simpleString() for kind in kinds)}, "
                f"not {column.dataType.simpleString()}"
            )
    if "payload" not in schema.names:
        problems.append("there is no column `payload`")
    if ("subject" in schema.names) == (subject is not None):
        problems.append("set either the column `subject` or the option `subject`")
    if problems:
        raise VstreamError(
            "these rows cannot be written into a stream: " + "; ".join(problems),
            hint=f"select the columns {', '.join(_COLUMNS)}; the last two may be absent",
        )


def _is_same_type(kind: DataType, expected: DataType) -> bool:
    if isinstance(kind, MapType) and isinstance(expected, MapType):
        return (kind.keyType, kind.valueType) == (expected.keyType, expected.valueType)
    return kind == expected


def require_writable_stream(access: Access, ref: StreamRef) -> None:
    """Raise VstreamError if the stream does not exist, or does not acknowledge publishes."""
    access = access.with_prefix_of(ref.stream)
    with connect(access) as client:
        try:
            config = api_request(client, access, f"STREAM.INFO.{ref.name}")["config"]
        except (NotPermittedError, NoRespondersError):
            return  # Who publishes need not have a right to the API: acknowledgements say which stream has stored it.
        except ServerError as error:
            raise VstreamError(f"stream `{ref.stream}` cannot be written: {error.message}") from None
    with convert_malformed_errors(f"STREAM.INFO.{ref.name}"):
        for name, problem in (
            ("mirror", "it is a mirror"),
            ("sealed", "it is sealed"),
            ("no_ack", "it acknowledges nothing (`no_ack`), so nobody knows what it has stored"),
        ):
            if config.get(name):
                raise VstreamError(f"stream `{ref.stream}` cannot be written: {problem}")
        if not config.get("subjects"):
            raise VstreamError(f"stream `{ref.stream}` cannot be written: it has no subjects")


def convert_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, write_id: str) -> Iterator[OutgoingMessage]:
    """
    Convert rows to messages. Raises VstreamError for an invalid row.

    A row without a message id gets one from *write_id*, its number, and a digest of its content. So if a repeated task
    has rows in another order, they are stored twice, and none is dropped as a duplicate of another.
    """
    number = 0
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        absent = [None] * batch.num_rows
        for subject, payload, msg_id, headers in zip(
            columns.get("subject", [options.subject] * batch.num_rows),
            columns["payload"],
            columns.get("msg_id", absent),
            columns.get("headers", absent),
            strict=True,
        ):
            place = f"row {number} of {write_id}"
            if subject is None or not _SUBJECT.fullmatch(subject):
                raise VstreamError(f"{place}: {subject!r} is not a subject to publish on")
            if payload is None:
                raise VstreamError(f"{place}: the payload is null", hint="this does not delete keys of a bucket")
            body = payload.encode() if isinstance(payload, str) else payload
            fields = _header_fields(headers, place)
            fields = _with_message_id(fields, msg_id, place, f"{write_id}/{number}", (subject, body))
            fields.append((b"Nats-Expected-Stream", options.stream_ref.name.encode()))
            block = b"%s\r\n%s\r\n" % (_HEADER_VERSION, b"".join(b"%s: %s\r\n" % item for item in fields))
            yield OutgoingMessage(place, subject, block, body)
            number += 1


def _with_message_id(
    fields: list[tuple[bytes, bytes]], msg_id: str | None, place: str, derived: str, content: tuple[str, bytes]
) -> list[tuple[bytes, bytes]]:
    """Add *msg_id* to *fields*; without one, keep their own, or add *derived* and a digest of the content."""
    if msg_id is not None:
        rest = [item for item in fields if item[0].lower() != _MSG_ID_HEADER]
        return [*rest, (b"Nats-Msg-Id", _header_value(msg_id, place))]
    if any(name.lower() == _MSG_ID_HEADER for name, _ in fields):
        return fields
    subject, payload = content
    parts = [subject.encode(), *(part for item in fields for part in item), payload]
    digest = hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()
    return [*fields, (b"Nats-Msg-Id", f"{derived}/{digest}".encode())]


def _header_fields(headers: bytes | list[tuple[str, str | None]] | None, place: str) -> list[tuple[bytes, bytes]]:
    """The names and values of a stored header block or a map, without `Nats-Expected-Stream`."""
    if headers is None:
        return []
    if isinstance(headers, bytes):
        version, *lines = headers.removesuffix(b"\r\n\r\n").split(b"\r\n")
        if not version.startswith(_HEADER_VERSION) or any(b":" not in line or b"\n" in line for line in lines):
            raise VstreamError(f"{place}: the headers are not a block as streams store it", hint="use a map of strings")
        pairs = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    else:
        pairs = []
        for name, value in headers:
            if not re.fullmatch(r"[!-9;-~]+", name):
                raise VstreamError(f"{place}: {name!r} is not a valid header name")
            pairs.append((name.encode(), _header_value(value or "", place)))
    return [item for item in pairs if item[0].lower() != _EXPECTED_STREAM_HEADER]


def _header_value(value: str, place: str) -> bytes:
    if "\r" in value or "\n" in value:
        raise VstreamError(f"{place}: the header value {value!r} has a line break")
    return value.encode()


def publish_messages(options: WriteOptions, messages: Iterator[OutgoingMessage]) -> None:
    """
    Publish all messages, a limited number at a time, until the stream has acknowledged each.

    Raises NotReachableError if one is not acknowledged after several attempts, and VstreamError if one is refused.
    """
    pending: dict[int, OutgoingMessage] = {}
    numbered = enumerate(messages)
    attempts, oldest = 0, -1
    while True:
        try:
            _publish_on_one_connection(options, pending, numbered)
        except NotReachableError as error:
            # Others may go on while one is never acknowledged: attempts are those of the oldest.
            first = next(iter(pending), -1)
            attempts, oldest = (attempts + 1 if first == oldest else 1), first
            if isinstance(error, NotPermittedError) or attempts >= MAX_ATTEMPTS:
                place = f"{pending[first].place}: " if pending else ""
                raise NotReachableError(
                    f"{place}{len(pending)} rows are not acknowledged by stream `{options.stream_ref.stream}`: "
                    f"{error.message}",
                    hint=error.hint,
                ) from error
            back_off(attempts)
        else:
            return


def _publish_on_one_connection(
    options: WriteOptions, pending: dict[int, OutgoingMessage], numbered: Iterator[tuple[int, OutgoingMessage]]
) -> None:
    """Publish the *pending* messages and then the rest; remove acknowledged ones from *pending*."""
    with connect(options.access) as client:
        most = int(client.info.get("max_payload") or 0)
        new = list(pending.items())
        in_flight = sum(message.size for message in pending.values())
        deadline = time.monotonic() + options.access.timeout
        while True:
            while len(pending) < _MAX_UNACKNOWLEDGED and in_flight < _MAX_UNACKNOWLEDGED_BYTES:
                number, message = next(numbered, (-1, None))
                if message is None:
                    break
                if message.size > most > 0:
                    raise VstreamError(
                        f"{message.place}: {message.size:,} bytes, but the server takes {most:,}", hint="`max_payload`"
                    )
                pending[number] = message
                new.append((number, message))
                in_flight += message.size
            if not pending:
                return
            client.send(b"".join(_encode(message, f"{client.inbox}.{number}") for number, message in new))
            new = []
            for number, answer in client.receive_replies(until=deadline):
                deadline = time.monotonic() + options.access.timeout
                if (message := pending.get(number)) is not None:
                    require_acknowledgement(answer, message, options.stream_ref)
                    in_flight -= message.size
                    del pending[number]


def _encode(message: OutgoingMessage, reply: str) -> bytes:
    return b"HPUB %s %s %d %d\r\n%s%s\r\n" % (
        message.subject.encode(),
        reply.encode(),
        len(message.headers),
        message.size,
        message.headers,
        message.payload,
    )


def require_acknowledgement(answer: Message, message: OutgoingMessage, ref: StreamRef) -> None:
    """Raise RetryableError if a retry may help, VstreamError if the stream did not store *message*."""
    if answer.has_no_responders:
        raise RetryableError(f"no stream takes `{message.subject}`, or it has no leader")
    document = decode_object(answer.payload, message.subject)
    if (error := api_error(document, message.subject)) is not None:
        if error.code in _PASSING_STATUSES:
            raise RetryableError(error.message)
        raise VstreamError(
            f"{message.place}, on `{message.subject}`: stream `{ref.stream}` did not store it: {error.message}"
        )
    if document.get("stream") != ref.name or not isinstance(document.get("seq"), int):
        raise VstreamError(f"`{message.subject}` is not acknowledged by stream `{ref.stream}`: {document}")
