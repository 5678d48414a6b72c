"""One virtual stream in one region, as a probe sees it; and how exceptions become results of checks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypedDict, TypeVar, Unpack

from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream.connection import REQUEST_TIMEOUT, Connection
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.topology import physical
from vstream.topology.model import Topology, VirtualStream
from vstream.topology.profiles import profile_of
from vstream.topology.replication import physical_streams
from vstream.value_class import value_class

_Answer = TypeVar("_Answer")

FAIR_TIMEOUT = 1.0
"""Seconds. A missing answer within less proves nothing: the deadline was too near."""


class OutOfTimeError(VstreamError):
    """The deadline was too near to expect an answer."""


class CheckDetails(TypedDict, total=False):
    """What a `Check` says besides its outcome."""

    origin: str | None
    subject: str | None
    form: str | None
    hint: str | None
    answered_by: str | None
    elapsed_ms: float | None


@value_class
class ProbeTarget:
    """A virtual stream in a connected region. *deadline* is on the monotonic clock."""

    topology: Topology
    stream: VirtualStream
    region: str
    connection: Connection
    deadline: float

    @property
    def write(self) -> str:
        """The physical stream that stores this region's publishes."""
        return physical.write_stream_in(self.stream, self.region)

    @property
    def read(self) -> str:
        """The physical stream with this region's copy."""
        return physical.read_stream_in(self.stream, self.region)

    @property
    def namesake(self) -> str:
        """The physical stream that answers to the virtual name here: the copy where names are mapped, else the stream of that name."""
        return (physical.mirrored_stream(self.stream) or self.read) if self._has_namesake else self.read

    @property
    def _has_namesake(self) -> bool:
        return self.stream.has_namesake and profile_of(self.stream).has_physical_names

    @property
    def read_by(self) -> str:
        """
        The name by which canaries are looked for here.

        The name of an origin, or of an order, may be answered by any copy: what has arrived here is asked of the one here.
        """
        return self.read if self._has_namesake else self.stream.name

    async def measure(self, ask: Callable[[float], Awaitable[_Answer]]) -> tuple[_Answer, float]:
        """
        What *ask* answers when it is given the seconds it may take, and the milliseconds it took.

        Raises what *ask* raises; OutOfTimeError where the deadline left no fair time
        for an answer; NotReachableError if the connection is down: what is
        published then would be sent later, unasked.
        """
        began = time.monotonic()
        patience = min(REQUEST_TIMEOUT, self.deadline - began)
        if patience <= 0:
            raise OutOfTimeError("skipped: the probe ran out of time", hint="give the probe more time")
        if not self.connection.is_connected:
            raise NotReachableError(f"region `{self.region}`: lost the connection to its servers")
        try:
            answer = await ask(patience)
        except NotReachableError as error:
            if patience < FAIR_TIMEOUT:
                raise OutOfTimeError(error.message, hint="give the probe more time") from error
            raise
        return answer, (time.monotonic() - began) * 1000

    def make_check(self, kind: CheckKind, status: CheckStatus, detail: str, **details: Unpack[CheckDetails]) -> Check:
        """A check of this stream in this region."""
        return Check(stream=self.stream.name, region=self.region, kind=kind, status=status, detail=detail, **details)

    def make_failed_check(
        self,
        kind: CheckKind,
        error: VstreamError,
        *,
        subject: str | None = None,
        form: str | None = None,
        hint: str | None = None,
    ) -> Check:
        """The check that ended with *error*: unknown where there was no time for an answer, else failed."""
        status = CheckStatus.UNKNOWN if isinstance(error, OutOfTimeError) else CheckStatus.FAILED
        return self.make_check(kind, status, error.message, subject=subject, form=form, hint=error.hint or hint)

    def whose(self, name: str) -> str:
        """What stream *name* is to this virtual stream."""
        for part in physical_streams(self.stream):
            if name == part.name:
                where = "the stretch cluster" if part.place not in self.stream.regions else f"region `{part.place}`"
                return f"`{name}`, the {part.role.value} stream of {where}"
        return f"`{name}`, which is no stream of `{self.stream.name}`"
