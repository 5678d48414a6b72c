"""Read with batched Direct Get: any replica of the stream, or a mirror, answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vstream.audit.source.client import RetryableError
from vstream.audit.source.wire import DirectScanner, scan_buffer
from vstream.errors import NoRespondersError, ServerError, VstreamError
from vstream.jetstream.answers import read_sequence

if TYPE_CHECKING:
    from collections.abc import Generator

    from vstream.audit.source.client import Client, Message
    from vstream.audit.source.columns import Block, MessageColumns
    from vstream.audit.source.values import ReadTask

_IN_FLIGHT = 8 << 20
"""Maximum number of bytes in a batch: the server sends them without waiting for us."""
_BATCH = range(16, 16_384)
"""Minimum and maximum number of messages in a batch."""


def read_parts(client: Client, job: ReadTask, first: int, like: MessageColumns) -> Generator[Block, None, None]:
    """Like `bypull.read_parts`. Each piece is a batch from one replica, or the part of it that arrived."""
    stream = job.stream_ref.name
    size = min(_BATCH.stop, max(_BATCH.start, _IN_FLIGHT // job.mean_size))
    inbox = client.subscribe(several=True)
    number = 0
    while first <= job.last:
        number += 1
        body: dict[str, object] = {"seq": first, "batch": min(size, job.last - first + 1), "max_bytes": _IN_FLIGHT}
        if len(job.subjects) == 1:
            body["next_by_subj"] = job.subjects[0]
        reply = f"{inbox}.{number}"
        client.publish(f"{job.access.api_prefix}.DIRECT.GET.{stream}", json.dumps(body).encode(), reply=reply)
        answer = DirectScanner(like.empty_copy(), reply, stream)
        is_more, broken = False, None
        try:
            is_more = _receive_batch(client, answer, reply, stream)
        except RetryableError as error:
            broken = error
        if answer.count:
            if answer.count != answer.first_pending - answer.pending + 1:
                raise RetryableError(f"{client.server} or a route to it has dropped messages")
            block = answer.columns.block()
            first = block["seq"][-1].as_py() + 1
            yield block
        if broken is not None:
            raise broken
        if not is_more:
            return


def _receive_batch(client: Client, answer: DirectScanner, reply: str, stream: str) -> bool:
    """Receive one batch. Returns whether the replica that sent it has more messages."""
    while True:
        data = client.receive(in_bulk=True)
        position, rest = scan_buffer(answer, data)
        client.keep(data[position:])
        for message in rest:
            client.handle_control(message)
            if message.subject == reply:
                return _is_more(client, message, answer, stream)


def _is_more(client: Client, end: Message, answer: DirectScanner, stream: str) -> bool:
    """Whether there are more messages, from the *end* of a batch. Raises VstreamError for an invalid answer."""
    first_line = end.headers.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").strip()
    code, _, text = first_line.partition(b" ")
    status = read_sequence(code.decode(errors="replace"))
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
