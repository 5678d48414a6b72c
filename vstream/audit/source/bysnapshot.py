"""
Reading a snapshot: the stream's leader sends an archive of all its messages, compressed.

What an archive says of the stream in front is held against what comes: every sequence
for which there is no message must be one of a message that was deleted.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from vstream.audit.source import s2
from vstream.audit.source.client import RetryableError, api_request, connect, next_message, parse_api_answer
from vstream.audit.source.natsarc import Archive
from vstream.errors import NoRespondersError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from vstream.audit.source.client import Client, Message
    from vstream.audit.source.columns import Block, MessageColumns
    from vstream.audit.source.natsarc import State
    from vstream.audit.source.values import ReadTask

_OVER: Final = b"204"


def parts(client: Client, job: ReadTask, first: int, like: MessageColumns) -> Generator[Block, None, None]:
    """
    As `bypull.parts`, and nothing behind the end. Each piece is what one block of the archive holds.

    Raises `s2.DamagedError` and `natsarc.DamagedArchiveError` for what is not what servers send.
    """
    archive = Archive(s2.content(_chunks(client, job)))
    count = deleted_since = 0
    for state, found in archive.read():
        seqs = found.sequences()
        count += len(seqs)
        last = state.last_seq if archive.is_whole else int(seqs[-1])
        missing = last - state.first_seq + 1 - count
        known = state.last_seq - state.first_seq + 1 - state.messages
        if missing > known + deleted_since:
            deleted_since = _deleted_since(job, state)
        if missing > known + deleted_since or (last == state.last_seq and missing < known):
            raise RetryableError(
                f"a snapshot up to {last} holds {count} messages, which are not as many as the stream has"
            )
        wanted = found.sliced(bisect_left(seqs, first), bisect_left(seqs, job.last + 1))
        if len(wanted):
            yield wanted.block(like)
        if last >= job.last:
            return


def _deleted_since(job: ReadTask, state: State) -> int:
    """
    How many messages have been deleted since the stream was in *state*, of those that it held and of newer ones.

    Over a connection of its own: on the other one there is a snapshot under way.
    """
    with connect(job.access) as client:
        now = api_request(client, job.access, f"STREAM.INFO.{job.stream_ref.name}")["state"]
    return state.messages + int(now["last_seq"]) - state.last_seq - int(now["messages"])


def _chunks(client: Client, job: ReadTask) -> Iterator[bytes]:
    """The bytes of a snapshot, as they come. The server sends some megabytes ahead of what was acknowledged."""
    answer, inbox = client.subscribe(), client.subscribe()
    subject = f"{job.access.api_prefix}.STREAM.SNAPSHOT.{job.stream_ref.name}"
    body = {"deliver_subject": inbox, "no_consumers": True}
    client.publish(subject, json.dumps(body).encode(), reply=answer)
    count = 0
    while True:
        data, position = client.receive(), 0
        while (message := next_message(data, position)) is not None:
            position = message.end
            client.handle_control(message)
            if message.subject == answer:
                if not message.payload:
                    raise NoRespondersError(f"nobody listens on `{subject}` at {client.server}")
                parse_api_answer(message.payload, subject)
            elif message.subject == inbox:
                if not message.payload:
                    return _end(message, client)
                count += 1
                if message.reply:
                    # It ends with the number of the piece; the last one is not to be acknowledged.
                    if message.reply.rpartition(".")[2] != str(count):
                        raise RetryableError(f"{client.server} or a route to it has dropped a part of the snapshot")
                    client.send(b"PUB %s 0\r\n\r\n" % message.reply.encode())
                yield message.payload
        client.keep(data[position:])


def _end(message: Message, client: Client) -> None:
    """What the end of a snapshot says, which is nothing where it was short. Raises Again if it was no end."""
    said = message.headers.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").strip()
    if said and not said.startswith(_OVER):
        raise RetryableError(f"{client.server} has given the snapshot up: {said.decode(errors='replace')}")
