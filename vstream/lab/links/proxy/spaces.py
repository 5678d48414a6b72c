"""
Links that the kernel makes: each region has a network of its own, and packets between them are judged.

Clients of the machine reach the servers through this process, which listens in the machine's
network and dials in the region's.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import TYPE_CHECKING

from vstream.lab.links.proxy import nftables
from vstream.lab.links.proxy.connections import Connection
from vstream.lab.links.proxy.lanes import Link
from vstream.lab.links.proxy.namespaces import FIRST_DIALING_PORT, Namespaces, can, run
from vstream.lab.links.proxy.nftables import Rule, Verdict
from vstream.lab.links.proxy.program import Program
from vstream.lab.links.proxy.proxy import BACKLOG, HOST
from vstream.lab.links.state import Cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from vstream.lab.links.state import Front, Links, LinkState, Pair

_MICROSECONDS = 10**6
_UNLIMITED = 10**11
"""Bits per second: more than a machine has."""
_PARTS = {"delay": ("delay", "jitter"), "rate": ("rate",)}
_CANNOT = {
    "delay": "this kernel has no netem, or there is no `tc`, so links in namespaces cannot be slow",
    "rate": "this kernel has no htb, or there is no `tc`, so links in namespaces cannot have a rate",
}
_PACKETS = 100_000
"""How many packets may be on their way: netem drops what is more."""


class Spaces(Program):
    """The namespaces of a lab, and what clients reach through them."""

    def __init__(self, place: Path, links: Links) -> None:
        super().__init__(place, links)
        # Nothing can listen in the machine's network from within another one.
        self._listening = [(front, _listening(front.port)) for front in links.fronts]
        self._spaces = Namespaces(links.regions)
        self.namespaces = self._spaces.descriptors
        self.cannot = tuple(_cannot())
        self._shapes: dict[Pair, str] = {}
        self._ideal = Link()

    async def listen(self) -> None:
        """Let clients in."""
        for front, listener in self._listening:
            await asyncio.get_running_loop().create_server(self._accepting(front), sock=listener, backlog=BACKLOG)

    def apply(self) -> None:
        """Make the kernel do as the orders say."""
        self._shape()
        nftables.replace(self._rules())

    def connections(self) -> Mapping[Pair, int]:
        """Open connections, by who dialed whom."""
        return Counter(self._spaces.connections())

    def _rules(self) -> Iterator[Rule]:
        for one, other in self.links.pairs:
            state = self.links.state((one, other))
            here, there = self._spaces.addresses[one], self._spaces.addresses[other]
            if state.cut is Cut.DROP:
                yield Rule(source=here, target=there, verdict=Verdict.DROP)
            elif state.cut is Cut.RESET:
                # What one has dialed: its packets go to low ports, and the answers come from there.
                yield Rule(source=here, target=there, verdict=Verdict.RESET, target_port_below=FIRST_DIALING_PORT)
                yield Rule(source=there, target=here, verdict=Verdict.RESET, source_port_below=FIRST_DIALING_PORT)
            elif state.loss:
                yield Rule(source=here, target=there, verdict=Verdict.DROP, share=state.loss)

    def _shape(self) -> None:
        """Give each link its delay and rate: a queue for each sender, where packets leave for the receiver."""
        for what in self.cannot:
            if any(getattr(self.links.state(pair), name) for pair in self.links.pairs for name in _PARTS[what]):
                raise OSError(_CANNOT[what])
        wanted = {pair: text for pair in self.links.pairs if (text := _shaped(self.links.state(pair)))}
        numbers = {region: number for number, region in enumerate(self.links.regions, 1)}
        for region, device in self._spaces.devices.items():
            before = {pair: text for pair, text in self._shapes.items() if pair[1] == region}
            after = {pair: text for pair, text in wanted.items() if pair[1] == region}
            if before == after:
                continue
            if before:
                run("tc", "qdisc", "del", "dev", device, "root", said="")
                self._shapes = {pair: text for pair, text in self._shapes.items() if pair[1] != region}
            if not after:
                continue
            lines = [f"qdisc add dev {device} root handle 1: htb"]
            for pair in after:
                number, state = numbers[pair[0]], self.links.state(pair)
                lines.append(
                    f"class add dev {device} parent 1: classid 1:{number} htb rate {state.rate or _UNLIMITED}bit"
                )
                if delay := _delay(state):
                    lines.append(
                        f"qdisc add dev {device} parent 1:{number} handle {number + 1}: netem {delay} limit {_PACKETS}"
                    )
                lines.append(
                    f"filter add dev {device} parent 1: protocol ip prio {number} u32 "
                    f"match ip src {self._spaces.addresses[pair[0]]}/32 flowid 1:{number}"
                )
            try:
                run("tc", "-batch", "-", said="".join(f"{line}\n" for line in lines))
            except OSError:
                can(("tc", "qdisc", "del", "dev", device, "root"))
                raise
            self._shapes.update(after)

    def _accepting(self, front: Front) -> Callable[[], asyncio.Protocol]:
        async def region_of(_port: int, _front: int) -> str:
            return front.region  # clients are where the server is

        def accept() -> asyncio.Protocol:
            return Connection(
                front, region_of=region_of, link_of=lambda _: self._ideal, dial=self._dial, on_end=lambda _: None
            ).dialer

        return accept

    async def _dial(self, front: Front) -> socket.socket:
        reached = self._spaces.socket(front.region)
        try:
            await asyncio.get_running_loop().sock_connect(reached, (HOST, front.target))
        except BaseException:
            reached.close()
            raise
        return reached


def tried() -> list[str]:
    """Make namespaces and rules, and say what cannot be done with them. Raises OSError if nothing can."""
    spaces = Namespaces(["one", "other"])
    here, there = spaces.addresses.values()
    nftables.replace(
        [
            Rule(source=here, target=there, verdict=Verdict.DROP, share=0.5),
            Rule(source=here, target=there, verdict=Verdict.RESET, target_port_below=FIRST_DIALING_PORT),
        ]
    )
    return list(_cannot())


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.setblocking(False)  # noqa: FBT003 - its only argument
    return listener


def _cannot() -> Iterator[str]:
    """What this kernel, or this machine, has no queues for."""
    for what, queue in (("delay", ("netem", "delay", "1ms")), ("rate", ("htb",))):
        if not can(("tc", "qdisc", "add", "dev", "lo", "root", *queue), ("tc", "qdisc", "del", "dev", "lo", "root")):
            yield what


def _shaped(state: LinkState) -> str:
    return f"{_delay(state)} {state.rate or ''}".strip()


def _delay(state: LinkState) -> str:
    """How netem is told of a delay: its jitter is around a mean, ours on top."""
    if not state.delay and not state.jitter:
        return ""
    half = (state.jitter or 0) / 2 * _MICROSECONDS
    mean = (state.delay or 0) * _MICROSECONDS + half
    return f"delay {mean:.0f}us {half:.0f}us" if half else f"delay {mean:.0f}us"
