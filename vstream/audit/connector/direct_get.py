"""
Read with batched Direct Get: any replica of the stream, or a mirror, answers.

Many small streams are read over one connection, each with one request: a consumer and a connection of its own cost
a stream of 60 messages five times what its messages do.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from vstream.audit.connector.client import Client, Message, RetryableError, connect, next_message
from vstream.audit.connector.columns import Block, MessageColumns, make_batch
from vstream.audit.connector.values import Access, ReadSnapshot, ReadTask
from vstream.audit.connector.wire import DirectScanner, WrongStreamError, scan_buffer
from vstream.errors import MalformedAnswerError, NoRespondersError, ServerError, VstreamError
from vstream.jetstream.answers import convert_malformed_errors, parse_sequence

_MAX_BATCH_BYTES = 8 << 20
"""Maximum number of bytes in a batch: the server sends them without waiting for us."""
_BATCH_SIZES = range(16, 16_384)
"""Minimum and maximum number of messages in a batch."""
BATCH_ROWS = 16_384
"""Number of messages in a batch of many streams."""
_MAX_PARALLEL_STREAMS = 16
"""Number of streams that are asked for at the same time."""
_END_STATUS = b"NATS/1.0 204"


def read_parts(client: Client, task: ReadTask, first: int, like: MessageColumns) -> Generator[Block, None, None]:
    """Like `pull_consumer.read_parts`. Each piece is a batch from one replica, or the part of it that arrived."""
    stream = task.stream_ref.name
    size = min(_BATCH_SIZES.stop, max(_BATCH_SIZES.start, _MAX_BATCH_BYTES // task.mean_size))
    subject = {"next_by_subj": task.subjects[0]} if len(task.subjects) == 1 else {}
    inbox, numbers = client.subscribe(several=True), itertools.count(1)

    def ask(**limits: int) -> DirectScanner:
        """Ask for the messages from *first* on."""
        answer = DirectScanner(like.empty_copy(), f"{inbox}.{next(numbers)}", stream)
        _ask(client, task.access, answer, stream, {"seq": first, **limits, **subject})
        return answer

    while first <= task.last:
        answer = ask(batch=min(size, task.last - first + 1), max_bytes=_MAX_BATCH_BYTES)
        is_more, broken = False, None
        try:
            is_more = _receive_batch(client, answer, stream)
        except RetryableError as error:
            broken = error
        if answer.count:
            block = answer.columns.block()
            is_whole = answer.count == answer.first_pending - answer.pending + 1
            if is_whole and not broken and block["seq"][0].as_py() != first:
                # Nothing in the answer says whether what came first is what the server sent first.
                is_whole = _receive_first(client, ask(batch=1), stream) == block["seq"][0].as_py()
            if not is_whole:
                raise RetryableError(f"{client.server} or a route to it has dropped messages")
            if not broken or block["seq"][0].as_py() == first:
                first = block["seq"][-1].as_py() + 1
                yield block
        if broken is not None:
            raise broken
        if not is_more:
            return


def find_sequence_at(client: Client, access: Access, snapshot: ReadSnapshot, moment_ns: int) -> int:
    """
    The sequence of the first message that a stream stored at *moment_ns* or later; one above the last if none.

    A bisection: any replica answers, so that it needs no meta leader.
    """
    stream, access = snapshot.stream_ref.name, access.with_prefix_of(snapshot.stream_ref.stream)
    inbox, numbers = client.subscribe(several=True), itertools.count(1)
    low, high = snapshot.first_seq, snapshot.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        answer = DirectScanner(MessageColumns(wants_digest=False), f"{inbox}.{next(numbers)}", stream)
        _ask(client, access, answer, stream, {"seq": middle, "batch": 1})
        _receive_batch(client, answer, stream)
        block = answer.columns.block()
        if not answer.count or block["time_ns"][0].as_py() >= moment_ns:
            high = middle
        else:
            low = int(block["seq"][0].as_py()) + 1
    return low


def _ask(client: Client, access: Access, answer: DirectScanner, stream: str, query: dict[str, int | str]) -> None:
    client.publish(f"{access.api_prefix}.DIRECT.GET.{stream}", json.dumps(query).encode(), reply=answer.subject)


def _receive_first(client: Client, answer: DirectScanner, stream: str) -> int | None:
    """The sequence of the first message of *answer*; None if there is none."""
    _receive_batch(client, answer, stream)
    return answer.columns.block()["seq"][0].as_py() if answer.count else None


def _receive_batch(client: Client, answer: DirectScanner, stream: str) -> bool:
    """Receive one batch. Returns whether the replica that sent it has more messages."""
    while True:
        data = client.receive(in_bulk=True)
        position, other_lines = scan_buffer(answer, data)
        client.keep(data[position:])
        for message in other_lines:
            client.handle_control(message)
            if message.subject == answer.subject:
                return _is_more(client, message, answer, stream)


def _is_more(client: Client, end: Message, answer: DirectScanner, stream: str) -> bool:
    """Whether there are more messages, from the *end* of a batch. Raises VstreamError for an invalid answer."""
    first_line = end.headers.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").strip()
    code, _, text = first_line.partition(b" ")
    status = parse_sequence(code.decode(errors="replace"))
    match status:
        case 204:
            return answer.count > 0 and answer.pending > 0
        case 404:
            return False
        case 503:
            raise NoRespondersError(
                f"no copy of stream `{stream}` answers Direct Get at {client.server}",
                hint="check that it exists and has allow_direct; read_by=consumer works without it",
            )
        case None:
            raise VstreamError(
                f"{client.server} ({client.server_version}) answers Direct Get with single messages",
                hint="batches need nats-server 2.11; use read_by=consumer",
            )
        case _:
            raise ServerError(
                code=status, err_code=0, description=text.decode(errors="replace"), subject=f"DIRECT.GET.{stream}"
            )


def read_small(tasks: Sequence[ReadTask], schema: pa.Schema) -> Generator[pa.RecordBatch, None, list[ReadTask]]:
    """
    The messages of *tasks*, which have one access, stream by stream. Returns the tasks that did not come whole.

    Only what came whole counts: the caller reads the others one by one, which proves their ends and says why they
    cannot be read. So nothing is raised for a server that cannot be reached or refuses.
    """
    columns, arrived = MessageColumns.of(schema), list[tuple[int, int]]()
    left = dict(enumerate(tasks))

    def batches() -> Iterator[pa.RecordBatch]:
        runs = [(tasks[number].stream_ref, count) for number, count in arrived]
        with suppress(MalformedAnswerError):  # one of them has a number that is none
            if runs:
                yield make_batch(schema, columns.block(), runs)
                for number, _ in arrived:
                    del left[number]

    try:
        with connect(tasks[0].access) as client:
            for number, answer in _receive_answers(client, tasks, columns):
                columns.extend(answer.columns)
                arrived.append((number, answer.count))
                if columns.count >= BATCH_ROWS:
                    yield from batches()
                    columns, arrived = columns.empty_copy(), []
    except VstreamError:
        pass  # The caller asks again for what is left, and says what is wrong.
    yield from batches()
    return list(left.values())


def _receive_answers(
    client: Client, tasks: Sequence[ReadTask], like: MessageColumns
) -> Iterator[tuple[int, DirectScanner]]:
    """The number of each task whose messages came whole, and these. Raises VstreamError if no more answers come."""
    inbox = client.subscribe(several=True)
    waiting: dict[str, tuple[int, DirectScanner]] = {}
    requests = enumerate(tasks)
    while True:
        lines = b""
        while len(waiting) < _MAX_PARALLEL_STREAMS and (item := next(requests, None)):
            number, task = item
            reply, stream = f"{inbox}.{number}", task.stream_ref.name
            waiting[reply] = number, DirectScanner(like.empty_copy(), reply, stream)
            body = json.dumps({"seq": task.first, "batch": task.last - task.first + 1})
            lines += f"PUB {task.access.api_prefix}.DIRECT.GET.{stream} {reply} {len(body)}\r\n{body}\r\n".encode()
        if not waiting:
            return
        if lines:
            client.send(lines)
        for reply, end in _receive_ends(client, waiting):
            number, answer = waiting.pop(reply)
            if end is not None and _is_whole(answer, end, tasks[number]):
                yield number, answer


def _receive_ends(client: Client, waiting: dict[str, tuple[int, DirectScanner]]) -> list[tuple[str, Message | None]]:
    """Receive messages, and return the subjects of the answers that have ended and their last messages; None: refused."""
    data, position = client.receive(), 0
    ends: dict[str, Message | None] = {}
    with convert_malformed_errors("the streams that are read"):
        while (message := next_message(data, position)) is not None:
            reply, scanned = message.subject, position
            if reply in waiting and reply not in ends:
                try:
                    scanned = waiting[reply][1].scan(data, position)
                except WrongStreamError:
                    ends[reply] = None
            if scanned == position:
                client.handle_control(message)
                if reply in waiting:
                    ends.setdefault(reply, message)
                scanned = message.end
            position = scanned
    client.keep(data[position:])
    return list(ends.items())


def _is_whole(answer: DirectScanner, end: Message, task: ReadTask) -> bool:
    """Whether *answer* has every message of *task*: a copy that lags behind, or a lost message, leaves some out."""
    if not end.headers.startswith(_END_STATUS) or not answer.count:
        return False
    try:
        seqs = [int(seq) for seq in answer.columns.seqs]
    except ValueError:
        return False
    is_gapless = answer.count == answer.first_pending - answer.pending + 1
    is_rising = all(before < after for before, after in itertools.pairwise(seqs))
    return is_gapless and is_rising and (seqs[0], seqs[-1]) == (task.first, task.last)
