"""Leaders of the meta group and of single streams."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

from vstream.errors import LabError, NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import error_codes, monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import convert_malformed_errors, parse_list, require_text
from vstream.jetstream.connection import Connection
from vstream.jetstream.error_codes import ELECTION_TIMEOUT
from vstream.servers.target_servers import TargetServers
from vstream.value_class import value_class

POLL_SECONDS = 0.05
REQUEST_TIMEOUT = 2.0
"""Seconds for one request: a stream without a leader does not answer at all."""


@value_class
class StreamLeadership:
    """Who serves a stream. *leader* is None while there is none."""

    stream: str
    leader: str | None
    peers: Mapping[str, bool]
    """The other servers with a replica, and whether each is up to date."""
    since: str | None = None
    """When *leader* became leader, as it reports; servers before 2.12 do not."""

    @property
    def replicas(self) -> int:
        """How many there are."""
        return len(self.peers) + 1

    @property
    def followers(self) -> tuple[str, ...]:
        """Those of the peers that are up to date."""
        return tuple(sorted(name for name, is_current in self.peers.items() if is_current))

    @property
    def can_elect(self) -> bool:
        """Whether the others could elect a leader without the present one."""
        return len(self.followers) + 1 > self.replicas // 2 and bool(self.followers)


async def fetch_leadership(connection: Connection, stream: str) -> StreamLeadership:
    """
    Who serves *stream*, according to its leader.

    Raises LabError if there is no such stream, NotReachableError without a usable answer for it.
    """
    try:
        info = await JetStreamAdmin(connection).info(stream, timeout=REQUEST_TIMEOUT)
    except ServerError as error:
        if error.err_code == error_codes.STREAM_NOT_FOUND:
            raise LabError(
                f"there is no stream `{stream}`", hint="`vstream plan` shows what is missing, `vstream apply` makes it"
            ) from error
        raise NotReachableError(f"stream `{stream}` has no leader: {error.message}") from error
    with convert_malformed_errors(stream):
        cluster = info.get("cluster") or {}
        peers = {}
        for replica in parse_list(cluster, "replicas", stream):
            peers[require_text(replica["name"])] = bool(replica.get("current")) and not replica.get("offline")
        leader = require_text(cluster["leader"]) if cluster.get("leader") else None
        return StreamLeadership(stream=stream, leader=leader, peers=peers, since=cluster.get("leader_since"))


async def find_stream_leader(connection: Connection, stream: str) -> str | None:
    """The server that leads *stream*; None while nobody answers for it."""
    try:
        return (await fetch_leadership(connection, stream)).leader
    except NotPermittedError:
        raise
    except NotReachableError:
        return None


async def find_meta_leader(monitors: Iterable[str]) -> str | None:
    """The meta leader according to most of the servers at *monitors*; None if they know of none."""

    async def view(url: str) -> str | None:
        try:
            group = await monitoring.read_meta(url)
        except VstreamError:
            return None
        return None if group is None else group.leader

    named = Counter(leader for leader in await asyncio.gather(*map(view, monitors)) if leader)
    return max(sorted(named), key=lambda leader: named[leader], default=None)


async def require_meta_leader(target: TargetServers) -> str:
    """The meta leader. Raises LabError while there is none, or if there is no monitoring address to ask."""
    target.require_one_meta_group()
    monitors = target.monitors()
    if not monitors:
        raise LabError(
            "cannot find out who the JetStream meta leader is",
            hint="add the servers' monitoring addresses to `connect`: `monitor: [http://w1.example.net:8222]`",
        )
    leader = await find_meta_leader(monitors)
    if leader is None:
        raise LabError(
            "the JetStream meta group has no leader", hint="is the majority of all servers up? `vstream chaos status`"
        )
    return leader


async def wait_for_successor(find: Callable[[], Awaitable[str | None]], old: str) -> tuple[str | None, float]:
    """The leader that *find* names instead of *old*, and after how many seconds; None after ELECTION_TIMEOUT."""
    began = time.monotonic()
    while True:
        leader = await find()
        elapsed = time.monotonic() - began
        if leader is not None and leader != old:
            return leader, elapsed
        if elapsed > ELECTION_TIMEOUT:
            return None, elapsed
        await asyncio.sleep(POLL_SECONDS)


async def confirm_successor(group: str, find: Callable[[], Awaitable[str | None]], old: str) -> str:
    """Evidence that *find* names another leader of *group* than *old*. Raises LabError if it does not in time."""
    leader, seconds = await wait_for_successor(find, old)
    if leader is None:
        raise LabError(f"{group} has no leader other than `{old}` after {seconds:.0f} s")
    return f"{group} is led by {leader} instead of {old}, after {seconds:.1f} s"
