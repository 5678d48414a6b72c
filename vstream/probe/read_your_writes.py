"""
Read-your-writes: how long after its acknowledgement a canary is served in the region that published it.

It is read by the virtual name, in the two ways that applications read single messages. The result is a measurement and
never a failure: canaries show whether a message arrives at all.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from vstream.errors import VstreamError
from vstream.jetstream import direct
from vstream.jetstream.connection import Connection
from vstream.jetstream.direct import DirectMessage
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.probe.retry import repeat_looks
from vstream.probe.target import ProbeTarget
from vstream.topology import naming

BY_LEADER = "STREAM.MSG.GET"
BY_ANY = "DIRECT.GET"
METHODS = (BY_LEADER, BY_ANY)

_FIRST_PAUSE_SECONDS = 0.001


@dataclass(slots=True, kw_only=True)
class OwnRead:
    """One canary that is read by one method in the region that published it. *acked_at* is on the monotonic clock."""

    target: ProbeTarget
    method: str
    subject: str
    token: str
    header: str
    next_seq: int
    acked_at: float
    looks: int = 0
    answered_by: str | None = None
    elapsed_ms: float | None = None
    trouble: str = ""

    async def watch(self, until: float, longest_pause: float) -> None:
        """Read until it is served or until *until*, with pauses that grow to *longest_pause* seconds."""
        async for _ in repeat_looks(until, _FIRST_PAUSE_SECONDS, longest_pause):
            if self.elapsed_ms is not None:
                return
            try:
                await self._look()
            except VstreamError as error:
                self.trouble = error.message

    async def _look(self) -> None:
        self.looks += 1
        get: Callable[..., Awaitable[DirectMessage | None]] = (
            direct.get_next_from_leader if self.method == BY_LEADER else direct.get_next
        )
        connection: Connection = self.target.connection
        while True:
            message, _ = await self.target.measure(
                lambda timeout: get(connection, self.target.stream.name, self.subject, self.next_seq, timeout=timeout)
            )
            self.trouble = ""
            if message is None:
                return
            if message.headers.get(self.header) == self.token:
                self.elapsed_ms = (time.monotonic() - self.acked_at) * 1000
                by_name = message.stream if self.method == BY_ANY else naming.local_name(self.target.namesake)
                expected = self.target.read if self.method == BY_ANY else self.target.namesake
                self.answered_by = naming.qualify_answer(by_name, expected)
                return
            self.next_seq = message.seq + 1

    def make_check(self) -> Check:
        """The measured time, as a check."""
        if self.elapsed_ms is None:
            status, detail = CheckStatus.SKIPPED, f"not served after {self.looks} looks"
            detail = f"{detail}: {self.trouble}" if self.trouble else detail
        else:
            looks = "at the first look" if self.looks == 1 else f"at look {self.looks}"
            status, detail = CheckStatus.OK, f"served {looks}, {self.elapsed_ms:.1f} ms after the acknowledgement"
        return self.target.make_check(
            CheckKind.OWN_READ,
            status,
            detail,
            origin=self.target.region,
            form=self.method,
            answered_by=self.answered_by,
            elapsed_ms=self.elapsed_ms,
        )
