"""
A proxy between vstream and real servers that changes one answer of theirs: what a broken or hostile server would say.

It speaks enough of the NATS protocol and of HTTP to know which answer is which, and passes on everything else as it is.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from tests.support.changed_answers import ENDLESS, SILENT, Answer, change_answer
from tests.support.ports import free_port

_LINE = 1 << 20
"""Bytes of the longest line of the protocol."""
_API = re.compile(r"(?:STREAM|CONSUMER|DIRECT|META|SERVER|ACCOUNT)(?:\.[A-Z]{3,})+")
_CHUNK = b"x" * 65_536

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change the answer number *ordinal* of *kind*, or from that one on all of them where it *is_lasting*."""

    kind: str
    ordinal: int
    damage: str
    seed: int
    is_lasting: bool = False


@dataclass(slots=True)
class Session:
    """What one command asks for: the change that is made to an answer, and the answers that came by."""

    change: Change | None = None
    answers: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    """A description of each change that was made."""

    def apply(self, kind: str, answer: Answer) -> Answer:
        """*answer*, changed if it is the one."""
        self.answers[kind] += 1
        change = self.change
        if change is None or kind != change.kind:
            return answer
        number = self.answers[kind]
        if number < change.ordinal or (number > change.ordinal and not change.is_lasting):
            return answer
        changed, description = change_answer(answer, change.damage, Random(f"{change.seed} {number}"))
        if changed is not answer:
            self.changed.append(f"{kind}: {description}")
        return changed


class FuzzingProxy:
    """Ports that lead to servers. One command at a time goes through it, with the session that is set then."""

    def __init__(self) -> None:
        self.session = Session()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Server] = []

    @contextmanager
    def running(self) -> Iterator[FuzzingProxy]:
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            try:
                self._call(self._close())
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                thread.join()
                self._loop.close()

    def lead_to(self, port: int, *, is_http: bool = False) -> int:
        """A port that leads to *port*, where a server serves NATS, or its monitoring."""
        return self._call(self._listen(port, is_http=is_http))

    def start_session(self, change: Change | None) -> Session:
        """Forget the connections that there were, and make *change* to those that come."""
        self._call(self._end())
        self.session = Session(change)
        return self.session

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        await self._end()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, port: int, *, is_http: bool) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
                    await (_relay_http if is_http else _relay_nats)(self.session, port, reader, writer)
            finally:
                self._tasks.discard(task)
                if not writer.is_closing():
                    writer.transport.abort()

        server = await asyncio.start_server(accept, "127.0.0.1", own_port := free_port(), limit=_LINE)
        self._listeners.append(server)
        return own_port


async def _relay_http(session: Session, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    target = head.split(b" ", 2)[1].decode()
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    far_writer.write(head)
    try:
        received = await far_reader.read(-1)
    finally:
        far_writer.close()
    status, _, body = received.partition(b"\r\n\r\n")
    answer = session.apply(f"HTTP {target.partition('?')[0]}", Answer(payload=body))
    if answer is SILENT:
        await asyncio.sleep(3600)
    lines = [line for line in status.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    writer.write(answer.raw or b"\r\n".join(lines) + b"\r\n\r\n" + answer.payload)
    if answer is ENDLESS:
        await _write_endlessly(writer)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def _relay_nats(session: Session, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async with AsyncExitStack() as stack:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port, limit=_LINE)
        stack.callback(far_writer.transport.abort)
        questions: dict[str, str] = {}
        passing = asyncio.gather(
            _pass_questions(reader, far_writer, questions), _pass_answers(session, far_reader, writer, questions)
        )
        stack.callback(passing.cancel)
        await passing


async def _pass_questions(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, questions: dict[str, str]
) -> None:
    """Pass on what the client sends, and remember in *questions* what it wants answered where."""
    while line := await reader.readuntil(b"\r\n"):
        verb, *words = line.decode(errors="replace").split()
        payload = b""
        if verb.upper() in {"PUB", "HPUB"}:
            payload = await reader.readexactly(int(words[-1]) + 2)
            has_reply = len(words) == (3 if verb.upper() == "PUB" else 4)
            if has_reply:
                questions[words[1]] = words[0]
        writer.write(line + payload)
        await writer.drain()


async def _pass_answers(
    session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, questions: dict[str, str]
) -> None:
    while line := await reader.readuntil(b"\r\n"):
        verb, *words = line.decode(errors="replace").split(" ") if line.startswith(b"INFO") else line.decode().split()
        if verb == "INFO":
            answer = session.apply("INFO", Answer(payload=line[5:-2]))
            await _write(writer, b"INFO " + answer.payload + b"\r\n", answer)
        elif verb in {"MSG", "HMSG"}:
            data = await reader.readexactly(int(words[-1]) + 2)
            size = int(words[-2]) if verb == "HMSG" else 0
            kind = _kind(questions.get(words[0], words[0]))
            answer = session.apply(kind, Answer(headers=data[:size], payload=data[size:-2]))
            address = words[: len(words) - (2 if verb == "HMSG" else 1)]
            await _write(writer, _frame(address, answer), answer)
        else:
            writer.write(line)
        await writer.drain()


def _frame(address: list[str], answer: Answer) -> bytes:
    data = answer.headers + answer.payload
    sizes = [str(len(answer.headers)), str(len(data))] if answer.headers else [str(len(data))]
    return " ".join(["HMSG" if answer.headers else "MSG", *address, *sizes]).encode() + b"\r\n" + data + b"\r\n"


async def _write(writer: asyncio.StreamWriter, framed: bytes, answer: Answer) -> None:
    if answer is SILENT:
        return
    writer.write((answer.raw or framed) * answer.times)
    if answer is ENDLESS:
        await _write_endlessly(writer)


async def _write_endlessly(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(_CHUNK)
        await writer.drain()


def _kind(subject: str) -> str:
    """What is asked on *subject*, without the names in it."""
    if subject.startswith("$SYS"):
        return ".".join(word for word in subject.split(".") if word.isupper())
    match = _API.search(subject)
    if match is not None:
        return match.group()
    return "INFO of the account" if subject.endswith(".INFO") else "message"
