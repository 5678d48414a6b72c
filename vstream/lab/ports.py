"""
Addresses for the servers of a lab.

A lab takes a block of consecutive loopback ports: four per server, then the fronts of the link proxy, if any. Blocks
end below 32768: from there on, the operating system gives ports to outgoing connections, and a server that needs one of
them may not start.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Collection, Iterable, Sequence

from vstream.errors import LabError
from vstream.lab.links.state import Backend
from vstream.lab.state import LabDirectory
from vstream.topology.model import Seat
from vstream.topology.server_address import FIRST_PORT, LAST_PORT, PORTS_PER_SERVER, ServerAddress

HOST = "127.0.0.1"
BLOCK_PORTS = 100
"""Labs start at multiples of this, so that people can remember the ports."""


def server_ports(address: ServerAddress) -> tuple[int, int, int, int]:
    """The ports of one server."""
    return (address.client, address.monitor, address.cluster, address.gateway)


def front_ports(address: ServerAddress) -> tuple[int, ...]:
    """The proxy's ports in front of one server."""
    return tuple(port for port in (address.gateway_front, address.route_front) if port is not None)


def list_ports(addresses: Iterable[ServerAddress]) -> frozenset[int]:
    """The ports of servers at *addresses*, and of their links."""
    return frozenset(port for address in addresses for port in (*server_ports(address), *front_ports(address)))


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


def find_occupied_ports(addresses: Sequence[ServerAddress]) -> tuple[int, ...]:
    """Ports of the servers at *addresses* that are in use; the proxy's in front of them do not count."""
    return tuple(port for address in addresses for port in server_ports(address) if not is_free(port))


def count_fronts(places: Sequence[Seat], backend: Backend) -> int:
    """The number of ports that *backend* needs besides those of the servers of *places*."""
    return len(places) + sum(seat.is_stretch for seat in places) if backend is Backend.PROXY else 0


def choose_block(count: int, *, fronts: int = 0, reserved: Collection[int] = (), skip: int = 0) -> int:
    """
    The first port of the lowest block that has room for *count* servers and *fronts*, after *skip* such blocks.

    All ports in it are free and not *reserved*.

    Raises LabError if there is none.
    """
    size = PORTS_PER_SERVER * count + fronts
    for first in range(FIRST_PORT, LAST_PORT - size + 2, BLOCK_PORTS):
        block = range(first, first + size)
        if any(port in reserved for port in block) or not all(map(is_free, block)):
            continue
        if skip == 0:
            return first
        skip -= 1
    raise LabError(
        f"no {size} consecutive ports are free between {FIRST_PORT} and {LAST_PORT}",
        hint="every lab keeps its ports until `vstream lab down NAME --purge`",
    )


def allocate(
    places: Sequence[Seat], first: int, directory: LabDirectory, *, backend: Backend = Backend.NONE
) -> tuple[ServerAddress, ...]:
    """Addresses for *places* from port *first* on; stores and logs are in *directory*, links are made by *backend*."""
    fronts = backend is Backend.PROXY
    front = itertools.count(first + PORTS_PER_SERVER * len(places))
    addresses = []
    for seat, port in zip(places, range(first, LAST_PORT, PORTS_PER_SERVER), strict=False):
        addresses.append(
            ServerAddress(
                server=seat.server,
                region=seat.region,
                cluster_name=seat.cluster,
                host=HOST,
                client=port,
                monitor=port + 1,
                cluster=port + 2,
                gateway=port + 3,
                gateway_front=next(front) if fronts else None,
                # Only the stretch cluster has members in several regions.
                route_front=next(front) if fronts and seat.is_stretch else None,
                store_dir=str(directory.data / seat.server.name),
                log_file=str(directory.log / f"{seat.server.name}.log"),
                is_stretch=seat.is_stretch,
                is_hub=seat.is_hub,
            )
        )
    return tuple(addresses)
