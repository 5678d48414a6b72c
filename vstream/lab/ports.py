"""
Addresses for the servers of a lab.

A lab takes a block of consecutive ports, four for each server, on the loopback
interface only. Blocks lie below 32768: from there on the operating system hands
ports to outgoing connections, and a server that needs one of them may not start.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.errors import LabError
from vstream.model.artifacts import ServerAddress

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from vstream.lab.state import LabDirectory
    from vstream.model.topology import Region, Server, Topology

HOST = "127.0.0.1"
FIRST = 14000
END = 32768
"""The first port that is not ours."""
BLOCK = 100
"""Labs start at multiples of this, so that people can remember them."""
PER_SERVER = 4


@dataclass(frozen=True, slots=True)
class Seat:
    """A server of the topology and its region."""

    region: Region
    server: Server


def seats(topology: Topology) -> tuple[Seat, ...]:
    """All servers of *topology*, in its order."""
    return tuple(Seat(region, server) for region in topology.regions for server in region.servers)


def of(address: ServerAddress) -> tuple[int, int, int, int]:
    """The ports of one server."""
    return (address.client, address.monitor, address.cluster, address.gateway)


def is_free(port: int) -> bool:
    """Whether a server could listen on *port* now."""
    with socket.socket() as probe:
        # As Go does: connections that linger after an earlier server do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def taken(addresses: Sequence[ServerAddress]) -> tuple[int, ...]:
    """Those ports of *addresses* that something listens on."""
    return tuple(port for address in addresses for port in of(address) if not is_free(port))


def choose(count: int, *, reserved: Collection[int] = (), skip: int = 0) -> int:
    """
    The first port of the lowest block that has *count* servers' ports free and not *reserved*, after *skip* such blocks.

    Raises LabError if there is none.
    """
    size = PER_SERVER * count
    for first in range(FIRST, END - size + 1, BLOCK):
        block = range(first, first + size)
        if any(port in reserved for port in block) or not all(map(is_free, block)):
            continue
        if skip == 0:
            return first
        skip -= 1
    raise LabError(
        f"no {size} consecutive ports are free between {FIRST} and {END - 1}",
        hint="every lab keeps its ports until `vstream lab down NAME --purge`",
    )


def allocate(places: Sequence[Seat], first: int, directory: LabDirectory) -> tuple[ServerAddress, ...]:
    """Addresses for *places* from port *first* on, with stores and logs in *directory*."""
    return tuple(
        ServerAddress(
            server=seat.server,
            region=seat.region.name,
            host=HOST,
            client=port,
            monitor=port + 1,
            cluster=port + 2,
            gateway=port + 3,
            store_dir=str(directory.data / seat.server.name),
            log_file=str(directory.log / f"{seat.server.name}.log"),
        )
        for seat, port in zip(places, range(first, END, PER_SERVER), strict=False)
    )
