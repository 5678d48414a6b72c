"""Read with an ephemeral pull consumer. Two requests are always in flight, so that the server never waits for us."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Generator, Iterator
from contextlib import suppress

from vstream.audit.connector.client import Client, DisconnectedError, Message, RetryableError, api_request
from vstream.audit.connector.columns import Block, MessageColumns
from vstream.audit.connector.values import ReadTask
from vstream.audit.connector.wire import PullScanner, scan_buffer
from vstream.errors import NotPermittedError
from vstream.jetstream.answers import convert_malformed_errors

CONSUMER_PREFIX = "vstream-audit-"
"""Prefix of the consumers' names."""
PIECE_ROWS = 16_384
"""Number of messages in a piece."""
MAX_PIECE_BYTES = 64 << 20
"""Maximum number of bytes in a piece, and the size of a buffer."""
_MAX_REQUEST_BYTES = 8 << 20
_MAX_REQUEST_MESSAGES = 32_768
_MIN_REQUEST_MESSAGES = 16
"""Minimum number of messages in a request, unless they are large."""
_INACTIVE_NS = 30 * 10**9
"""Nanoseconds after which the server removes a consumer whose reader has died."""
_END_STATUSES = (b"404", b"408", b"409 Batch Completed", b"409 Message Size Exceeds")
_DELETE_TIMEOUT = 2.0
"""Seconds to wait for the server's answer to the deletion of the consumer."""


def read_parts(client: Client, task: ReadTask, first: int, like: MessageColumns) -> Generator[Block, None, None]:
    """
    Read messages from *first* on, in pieces, up to one at or after the end of *task* or until none is left.

    The last piece may go beyond the end. The consumer is always removed at the end. If reading is
    interrupted, the messages received so far are yielded as a piece before RetryableError is raised.
    """
    stream, name = task.stream_ref.name, CONSUMER_PREFIX + secrets.token_hex(6)
    config = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_NS,
        **({"filter_subjects": list(task.subjects)} if task.subjects else {}),
    }
    pulled = PullScanner(like.empty_copy())
    created = api_request(
        client, task.access, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}
    )
    ignored: tuple[type[Exception], ...] = ()
    try:
        if created.get("num_pending"):
            # Servers may have a limit of their own for one request.
            with convert_malformed_errors(f"CONSUMER.CREATE.{stream}"):
                most = int(created.get("config", {}).get("max_batch") or _MAX_REQUEST_MESSAGES)
            yield from _pull(client, task, first, name, pulled, most=min(_MAX_REQUEST_MESSAGES, most))
    except RetryableError:
        # Otherwise a connection that never lasts for a whole piece would lead nowhere.
        if pulled.columns.count and pulled.is_gapless:
            yield pulled.columns.block()
        raise
    except GeneratorExit:
        ignored = (NotPermittedError,)  # whoever reads no further has a reason of their own
        raise
    finally:
        with suppress(*ignored):
            _delete_consumer(client, f"{task.access.api_prefix}.CONSUMER.DELETE.{stream}.{name}")


def _pull(client: Client, task: ReadTask, first: int, name: str, pulled: PullScanner, *, most: int) -> Iterator[Block]:
    inbox = client.subscribe()
    # One at a time of the largest: a server closes the connection of whoever leaves too much with it.
    size = min(most, max(1, _MAX_REQUEST_BYTES // task.mean_size))
    subject = f"{task.access.api_prefix}.CONSUMER.MSG.NEXT.{task.stream_ref.name}.{name}"
    last, asked, count = first - 1, 0, 0
    while True:
        # No more than may still be wanted, which is at most as many as sequences are left: what servers send behind
        # the end costs them and us the same.
        while (coming := asked - pulled.count) < min(size, task.last - last):
            batch = min(size, max(_MIN_REQUEST_MESSAGES, task.last - last - coming))
            client.publish(subject, json.dumps({"batch": batch, "expires": _INACTIVE_NS}).encode(), reply=inbox)
            asked += batch
        data = client.receive(in_bulk=True)
        position, other_lines = scan_buffer(pulled, data)
        client.keep(data[position:])
        count += position
        for message in other_lines:
            client.handle_control(message)
            if message.subject == inbox and _has_ended(message):
                asked = pulled.count
        if not pulled.columns.count:
            continue
        last = pulled.last_seq
        is_end = last >= task.last or pulled.pending == 0
        if is_end or pulled.columns.count >= PIECE_ROWS or count >= MAX_PIECE_BYTES:
            if not pulled.is_gapless:
                raise RetryableError(f"{client.server} or a route to it has dropped messages")
            yield pulled.columns.block()
            if is_end:
                return
            pulled.columns, count = pulled.columns.empty_copy(), 0


def _has_ended(status: Message) -> bool:
    """Whether *status* ends a request. Raises RetryableError if it ends the consumer."""
    text = status.headers.partition(b"\r\n")[0].removeprefix(b"NATS/1.0 ")
    if text.startswith(_END_STATUSES):
        return True
    if text.startswith(b"100"):
        return False
    raise RetryableError(f"the consumer has ended: {text.decode(errors='replace')}")


def _delete_consumer(client: Client, subject: str) -> None:
    """
    Remove the consumer and discard messages in transit. Without an answer, the server removes it later.

    Raises NotPermittedError.
    """
    with suppress(DisconnectedError, OSError):
        client.publish(subject, b"", reply=f"{client.inbox}.gone")
        client.send(b"PING\r\n")
        deadline = time.monotonic() + _DELETE_TIMEOUT
        is_answered = False
        while not is_answered and time.monotonic() < deadline:
            for message in client.receive_messages(until=deadline):
                client.handle_control(message)
                is_answered |= message.verb == b"PONG"
