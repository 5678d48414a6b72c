"""Where servers listen: their addresses, and the ports that they get on loopback."""

from __future__ import annotations

from vstream.topology.model import Server, Topology, Transport
from vstream.value_class import value_class

FIRST_PORT = 14000
"""On loopback: the first that a server gets."""
LAST_PORT = 32767
"""On loopback: from 32768 on, the operating system gives ports to outgoing connections."""
PORTS_PER_SERVER = 4
"""Client, monitor, cluster and gateway."""
_SERVERS_PER_REGION = 10
"""Minimum ports of a region, so that ports stay the same when a region grows."""


def base_port(topology: Topology, region: int, server: int) -> int:
    """
    The first port of a server in the default layout on loopback; *region* and *server* count from 0.

    The stretch cluster is laid out as a region after the last.
    """
    room = max(_SERVERS_PER_REGION, *(len(each_region.servers) for each_region in topology.regions))
    return FIRST_PORT + PORTS_PER_SERVER * (region * room + server)


@value_class
class ServerAddress:
    """Where one server listens, and where it stores."""

    server: Server
    region: str
    """Its region. A member of the stretch cluster is in a region too, and is lost with it."""
    cluster_name: str
    """The NATS cluster that it belongs to: the region's own, or the stretch cluster."""
    host: str
    client: int
    monitor: int
    cluster: int
    gateway: int
    store_dir: str
    log_file: str | None = None
    pid_file: str | None = None
    is_stretch: bool = False
    """Whether it is a member of the stretch cluster."""
    is_hub: bool = False
    """Whether it stores nothing, and joins its region to the others: its region's servers reach it at *cluster*."""
    advertised_gateway: str | None = None
    """`HOST:PORT` at which other clusters reach the gateways of its whole region, if not each server at its own."""
    gateway_front: int | None = None
    """The port at which other clusters reach it, if not at its own: a lab's links stand in between."""
    route_front: int | None = None
    """The port at which the other members of the stretch cluster reach it, in the same way."""
    transport: Transport | None = None
    """What all its ports speak TLS with: files on the server. None for no TLS."""

    @property
    def scheme(self) -> str:
        """How clients and other servers address its ports."""
        return "nats" if self.transport is None else "tls"

    @property
    def client_url(self) -> str:
        """Where clients dial it."""
        return f"{self.scheme}://{self.host}:{self.client}"

    @property
    def monitor_url(self) -> str:
        """Where it answers monitoring requests."""
        return f"{'http' if self.transport is None else 'https'}://{self.host}:{self.monitor}"

    @property
    def gateway_url(self) -> str:
        """Where other clusters dial it."""
        return f"{self.scheme}://{self.advertised_gateway or f'{self.host}:{self.gateway_front or self.gateway}'}"

    @property
    def leaf_address(self) -> str:
        """Where a hub is reached by the servers of its region."""
        return f"{self.host}:{self.cluster}"

    @property
    def route_url(self) -> str:
        """Where the other members of its cluster dial it."""
        return f"{self.scheme}://{self.host}:{self.route_front or self.cluster}"
