"""Listens in every region for clients that use streams of others."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import NoReturn

from vstream.errors import NotPermittedError, VstreamError
from vstream.health.cross_region import AdvisoryReader, CrossRegionUse
from vstream.jetstream.connection import connect
from vstream.topology.model import Endpoint, Topology
from vstream.topology.naming import ADVISORIES
from vstream.topology.profiles import profile_of

_KEPT_SECONDS = 3600.0
"""Seconds for which a client is shown after its last request."""
MAX_CLIENTS = 1000
_PAUSE_SECONDS = 1.0
_REFUSED_PAUSE_SECONDS = 60.0


class CrossRegionListener:
    """Remembers who uses streams of other regions; *tell* gets a line for each that is new."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._seen: dict[CrossRegionUse, float] = {}
        self._refusals: set[str] = set()
        self._followed: object = None
        self._tasks: list[asyncio.Task[NoReturn]] = []
        # Of those that listen in one account, one hears each request.
        self._group = f"vstream-{uuid.uuid4().hex}"

    def follow(self, topology: Topology, endpoints: Mapping[str, Endpoint]) -> None:
        """Listen at *endpoints* from now on, where that tells anything."""
        if (topology, endpoints) == self._followed:
            return
        self._followed = (topology, endpoints)
        while self._tasks:
            self._tasks.pop().cancel()
        profile, reader = profile_of(topology), AdvisoryReader(topology)
        for region in topology.regions if profile.tells_who_asks else ():
            if region.name in endpoints:
                account, endpoint = profile.account_of_reads(region.name), endpoints[region.name]
                self._tasks.append(asyncio.ensure_future(self._listen(endpoint, region.name, account, reader)))

    def uses(self) -> Mapping[CrossRegionUse, float]:
        """Who uses what, and when it last asked, in seconds since 1970: in the last hour."""
        self._seen = {use: at for use, at in self._seen.items() if at >= time.time() - _KEPT_SECONDS}
        return self._seen

    def note(self, use: CrossRegionUse) -> None:
        """Remember *use*, in place of the oldest where there are MAX_CLIENTS."""
        if self._seen.pop(use, None) is None and len(self._seen) < MAX_CLIENTS:
            self._tell(use.describe())
        elif len(self._seen) >= MAX_CLIENTS:
            del self._seen[next(iter(self._seen))]
        self._seen[use] = time.time()

    async def _listen(self, endpoint: Endpoint, region: str, account: str | None, reader: AdvisoryReader) -> NoReturn:
        def take(payload: bytes) -> None:
            if (use := reader.read(payload, account)) is not None:
                self.note(use)

        while True:
            pause = _PAUSE_SECONDS
            try:
                async with connect(endpoint, region) as connection:
                    await connection.listen(ADVISORIES, take, group=self._group)
            except NotPermittedError as error:
                pause = _REFUSED_PAUSE_SECONDS
                if error.message not in self._refusals:
                    self._tell(f"who uses streams of other regions is not known: {error.message}")
                self._refusals.add(error.message)
            except VstreamError:
                pass  # the look at the servers says why
            await asyncio.sleep(pause)
