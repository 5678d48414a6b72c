"""
Measure which regions receive messages from which, and how late.

Messages in the system account are used, which no stream stores. Also verifies latency, jitter, bandwidth and loss of
links.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from vstream.errors import LabError, NotConnectedError, NotReachableError
from vstream.jetstream.connection import Reply
from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.lab.links.state import Direction, LinkState
from vstream.lab.server_records import OwnServers
from vstream.servers.target_servers import TargetServers

_POLL_SECONDS = 0.005
_CONNECT_TIMEOUT = 10.0
_PIECE_COUNT = 16
_MIN_PAYLOAD_BYTES = 2**8
_PAYLOAD_BYTES = 2**18
"""Bytes of a message: servers take four times as many."""

_ROUNDS = 5
_JITTER_ROUNDS = 16
_MIN_DELAY_SHARE = 0.9
"""Share of the requested delay by which messages must be late."""
_MIN_JITTER_SHARE = 0.25
"""
Share of the jitter by which the times of some messages must differ.
Of 16 messages they do, except once in ten million runs.
"""
_BULK_SECONDS = 0.25
"""How many seconds of traffic at the link's rate are sent to measure it."""
_LEAST_BULK, _MOST_BULK = 2**12, 2**22
"""Bytes that are sent at least, and at most: a link that takes more in a moment is not told from one without a rate."""
_MIN_RATE_TIME_SHARE = 0.5
"""Share of the expected time that the bytes must take at least: queues let the first of them pass at once."""
_RESENT_AFTER_SECONDS = 0.15
"""Seconds. Lost packets are sent again after 0.2 s or more."""
_LOSS_TIMEOUT = 10.0
"""Seconds to wait for the first loss."""
_MAX_CHANCE = 0.001
"""A lossy link would deliver this many messages in time only with a lower probability: then the fault is not active."""


class ConnectivityProbe:
    """One client in each running region. *patience* is the longest time to wait for a message, in seconds."""

    def __init__(self, clients: Mapping[str, ReconnectingConnection], *, patience: float) -> None:
        self._clients = clients
        self._patience = patience
        self._subject = f"_vs_heard.{secrets.token_hex(8)}"
        self._round = 0
        self._arrived: dict[tuple[int, Direction], float] = {}

    @property
    def pairs(self) -> frozenset[Direction]:
        """All ordered pairs of these regions."""
        return frozenset(
            (sender, receiver) for sender in self._clients for receiver in self._clients if sender != receiver
        )

    async def listen(self) -> None:
        """Subscribe in every region. It takes a moment until all servers know."""
        for region, client in self._clients.items():
            await client.subscribe(f"{self._subject}.*.*", partial(self._receive, region))

    async def _receive(self, region: str, _: Reply, subject: str) -> None:
        origin, number = subject.split(".")[-2:]
        self._arrived.setdefault((int(number), (origin, region)), time.monotonic())

    async def send_round(self, awaited: Collection[Direction]) -> Mapping[Direction, float]:
        """
        Send one message from each region; returns the seconds it took, by the regions it reached.

        Returns when all of *awaited* have arrived, or when patience is over.
        """
        self._round += 1
        number, began = self._round, time.monotonic()
        for region, client in self._clients.items():
            try:
                await client.publish(f"{self._subject}.{region}.{number}", b"")
            except NotConnectedError:
                continue
        while time.monotonic() - began < self._patience:
            if all((number, pair) in self._arrived for pair in awaited):
                break
            await asyncio.sleep(_POLL_SECONDS)
        return {pair: self._arrived[number, pair] - began for pair in self.pairs if (number, pair) in self._arrived}

    async def send_bulk(self, pair: Direction, size: int, *, within: float) -> float | None:
        """Seconds that *size* bytes take from the first region to the second; None if longer than *within*."""
        self._round += 1
        # In pieces, each by itself: the kernel lets 64 KiB pass a limit at once if they come as one.
        piece = min(_PAYLOAD_BYTES, max(_MIN_PAYLOAD_BYTES, size // _PIECE_COUNT))
        first, count = self._round, -(-size // piece)
        self._round += count
        began, left = time.monotonic(), size
        for number in range(first, first + count):
            length = min(left, piece)
            await self._clients[pair[0]].publish(f"{self._subject}.{pair[0]}.{number}", b" " * length)
            left -= length
            await asyncio.sleep(_POLL_SECONDS)
        while (first + count - 1, pair) not in self._arrived:
            if time.monotonic() - began > within:
                return None
            await asyncio.sleep(_POLL_SECONDS)
        return self._arrived[first + count - 1, pair] - began

    async def find_silent(self, awaited: Collection[Direction], *, within: float) -> Collection[Direction]:
        """Send until all of *awaited* arrive in one round; returns those still missing after *within* seconds."""
        deadline = time.monotonic() + within
        while missing := set(awaited) - set(await self.send_round(awaited)):
            if time.monotonic() > deadline:
                break
        return missing

    async def measure_latencies(
        self, pairs: Collection[Direction], rounds: int = _ROUNDS
    ) -> Mapping[Direction, Sequence[float]]:
        """The seconds that each of a few messages took over each of *pairs*. Lost messages are left out."""
        times = [await self.send_round(pairs) for _ in range(rounds)]
        return {pair: tuple(seconds[pair] for seconds in times if pair in seconds) for pair in pairs}

    async def verify_shaping(
        self,
        requested: Mapping[Direction, LinkState],
        effective: Mapping[Direction, LinkState],
        before: Mapping[Direction, Sequence[float]],
    ) -> str:
        """
        Evidence that the links are as *requested*.

        *effective* is the total shape of the links, *before* how long messages took before. Raises LabError for a link
        that is not as requested.
        """
        rounds = _JITTER_ROUNDS if any(state.jitter for state in requested.values()) else _ROUNDS
        after = await self.measure_latencies(requested, rounds)
        evidence = []
        for pair, state in sorted(requested.items()):
            link = f"over {pair[0]} → {pair[1]}"
            took = _require_delay(after[pair], effective[pair], link)
            evidence.append(
                f"a message takes {took} {link}, before {_format_milliseconds(min(before[pair], default=0.0))}"
            )
            if state.jitter:
                evidence.append(
                    f"times are up to {_format_milliseconds(_require_jitter(after[pair], state.jitter, link))} apart {link}"
                )
            if state.rate:
                evidence.append(await self._require_rate(pair, state.rate, link))
        losses = {pair: state.loss for pair, state in requested.items() if state.loss}
        return "; ".join([*evidence, *await self._require_loss(losses, after)])

    async def _require_rate(self, pair: Direction, rate: int, link: str) -> str:
        size = min(_MOST_BULK, max(_LEAST_BULK, int(rate / 8 * _BULK_SECONDS)))
        least = size * 8 / rate
        took = await self.send_bulk(pair, size, within=10 * least + 10)
        if took is not None and took < _MIN_RATE_TIME_SHARE * least:
            raise LabError(
                f"{size} bytes take {_format_milliseconds(took)} {link}, and not {_format_milliseconds(least)}"
            )
        return f"{size} bytes take {'very long' if took is None else _format_milliseconds(took)} {link}"

    async def _require_loss(
        self, losses: Mapping[Direction, float], after: Mapping[Direction, Sequence[float]]
    ) -> Sequence[str]:
        """Send single messages, one after the other, until some come late over each link that loses packets."""
        late: dict[Direction, int] = {}
        sent, deadline = 0, time.monotonic() + _LOSS_TIMEOUT
        while losses.keys() - late.keys() and time.monotonic() < deadline:
            times = await self.send_round(losses)
            sent += 1
            for pair in losses:
                if times.get(pair, _LOSS_TIMEOUT) > min(after[pair], default=0.0) + _RESENT_AFTER_SECONDS:
                    late.setdefault(pair, sent)
        return [_describe_loss(pair, loss, sent, late.get(pair)) for pair, loss in sorted(losses.items())]


def _require_delay(after: Sequence[float], state: LinkState, link: str) -> str:
    if not after and state.loss:
        return "very long"  # everything on a connection waits for what was lost before it
    delay = state.delay or 0.0
    if not after or min(after) < _MIN_DELAY_SHARE * delay:
        took = _format_milliseconds(min(after)) if after else "for ever"
        raise LabError(f"a message takes {took} {link}, and not {delay * 1000:g} ms")
    return _format_milliseconds(min(after))


def _require_jitter(after: Sequence[float], jitter: float, link: str) -> float:
    spread = max(after, default=jitter) - min(after, default=0.0)
    if spread < _MIN_JITTER_SHARE * jitter:
        raise LabError(
            f"all messages take the same {link}, within {_format_milliseconds(spread)}, and not up to {jitter * 1000:g} ms more"
        )
    return spread


def _describe_loss(pair: Direction, loss: float, sent: int, first_late: int | None) -> str:
    link = f"over {pair[0]} → {pair[1]}"
    if first_late is not None:
        return f"message {first_late} came late {link}"
    if (1 - loss) ** sent < _MAX_CHANCE:
        raise LabError(f"{sent} messages came in time {link}, which loses {loss:.3%} of all packets")
    return f"{sent} messages came in time {link}: a loss of {loss:.3%} is too rare to be seen so soon"


def _format_milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def format_pairs(pairs: Iterable[Direction]) -> str:
    """Links as people write them: `west → east`, and `west ↔ east` for both directions."""
    links = sorted(set(pairs))
    both = {pair for pair in links if pair[::-1] in links}
    shown = [f"{pair[0]} ↔ {pair[1]}" for pair in links if pair in both and pair[0] < pair[1]]
    return ", ".join([*shown, *(f"{pair[0]} → {pair[1]}" for pair in links if pair not in both)])


@asynccontextmanager
async def probe_connectivity(target: TargetServers, *, patience: float) -> AsyncIterator[ConnectivityProbe]:
    """Open clients of the system account in every running region of the lab."""
    clients: dict[str, ReconnectingConnection] = {}
    try:
        for region in target.regions:
            endpoint = target.system_endpoint_in(region)
            if not endpoint.urls:
                continue
            try:
                clients[region] = await open_reconnecting(
                    endpoint,
                    region,
                    name="vstream",
                    accepts_server=OwnServers(target.directory.log).includes,
                    within=_CONNECT_TIMEOUT,
                )
            except NotReachableError:
                continue  # as a region that does not serve
        probe = ConnectivityProbe(clients, patience=patience)
        await probe.listen()
        yield probe
    finally:
        for client in clients.values():
            await client.close()
