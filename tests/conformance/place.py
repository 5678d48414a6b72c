"""Where one operation is tried: a client in one region, one stream, and what every operation needs to wait and to compare."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

PATIENCE = 60.0
"""Seconds for what arrives later: on a busy machine, sources take a while to begin."""
SOON = 6.0
"""Seconds for what follows at once, or never."""


class DiffersError(Exception):
    """The operation ended, and not as it does with a stream that is none of vstream's."""


@dataclass(slots=True, kw_only=True)
class Place:
    """A client connection in *region*, and a virtual stream called *stream* with the subjects `<stream>.>`."""

    client: Client
    js: JetStreamContext
    region: str
    stream: str
    heard: str
    """The stream of that model whose subjects core subscribers can hear, where the profile has that."""
    other_regions: tuple[str, ...]
    """The other regions."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def fresh(self) -> str:
        """A token that nothing else uses."""
        return f"{self.region}-{next(self._numbers)}"

    def subject(self) -> str:
        """A subject of the stream that nothing else uses."""
        return f"{self.stream}.{self.fresh()}"

    async def store(self, count: int = 1) -> str:
        """A fresh subject with *count* messages, which this region's clients can read."""
        subject = self.subject()
        for number in range(count):
            await self.js.publish(subject, str(number).encode())
        await self.visible(subject, count)
        return subject

    async def visible(
        self, subject: str, count: int = 1, *, stream: str | None = None, within: float = PATIENCE
    ) -> None:
        """Wait until reads by the virtual name find the last of *count* messages on *subject*."""

        async def is_shown() -> bool:
            message = await self.js.get_last_msg(stream or self.stream, subject, direct=True)
            return message.data == str(count - 1).encode()

        await eventually(is_shown, f"nothing of `{subject}` arrived", within=within)


async def eventually(holds: Callable[[], Awaitable[bool]], otherwise: str, *, within: float = PATIENCE) -> None:
    """Return once *holds*; what is not found yet does not. Raises DiffersError(*otherwise*) after *within* seconds."""
    deadline = time.monotonic() + within
    while True:
        try:
            if await holds():
                return
        except (nats.js.errors.NotFoundError, nats.errors.NoRespondersError):
            pass
        if time.monotonic() > deadline:
            raise DiffersError(otherwise)
        await asyncio.sleep(0.02)


def must(holds: bool, otherwise: str) -> None:
    """Raise DiffersError(*otherwise*) unless it *holds*."""
    if not holds:
        raise DiffersError(otherwise)


_NAMED: tuple[tuple[type[BaseException], str], ...] = (
    (nats.js.errors.KeyNotFoundError, "another key, or none"),
    (nats.js.errors.KeyWrongLastSequenceError, "10071 wrong last sequence"),
    (nats.errors.NoRespondersError, "no responders"),
    (nats.js.errors.NoStreamResponseError, "no responders"),
)
_UNNUMBERED: tuple[tuple[type[BaseException], str], ...] = (
    (nats.js.errors.ServiceUnavailableError, "no responders"),
    (nats.js.errors.NotFoundError, "not found"),
    (TimeoutError, "no answer"),
    (nats.errors.TimeoutError, "no answer"),
)


def reason(error: BaseException) -> str:
    """Why an operation failed, in few words that are the same each time: the server's own error where there is one."""
    for kind, text in _NAMED:
        if isinstance(error, kind):
            return text
    if isinstance(error, nats.js.errors.APIError) and error.err_code:
        return f"{error.err_code} {(error.description or '').partition(':')[0]}"
    for kind, text in _UNNUMBERED:
        if isinstance(error, kind):
            return text
    return str(error) or type(error).__name__
