"""Choose the links of a lab: at its first start, and when it is started again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vstream.errors import LabError
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import IDEAL, Backend, Direction, Front, Links, LinkState
from vstream.lab.state import LabDirectory
from vstream.timing import SECOND_NS
from vstream.topology.model import Link, Topology
from vstream.topology.server_address import ServerAddress


def choose_backend(topology: Topology, asked: Backend | None) -> Backend:
    """The backend for the links of a new lab. Raises LabError if there are no links to make."""
    has_links = len(topology.regions) > 1
    if asked is None:
        return Backend.PROXY if has_links else Backend.NONE
    if asked is not Backend.NONE and not has_links:
        raise LabError(
            f"topology `{topology.name}` has one region, and so no links between regions", hint="leave `--links` out"
        )
    return asked


def make_links(addresses: Sequence[ServerAddress], backend: Backend, shape: Mapping[Direction, LinkState]) -> Links:
    """The links of a new lab with servers at *addresses*."""
    return Links(
        backend=backend,
        servers={address.server.name: address.region for address in addresses},
        fronts=tuple(front for address in addresses for front in _list_fronts(address, backend)),
        started=shape,
        base=shape,
    )


def links_of_running_lab(
    directory: LabDirectory,
    addresses: Sequence[ServerAddress],
    asked: Backend | None,
    shape: Mapping[Direction, LinkState],
) -> Links:
    """
    The links of a lab that runs with servers at *addresses*; *shape* wins over the shape that it was started with.

    What was changed since is kept. Raises LabError if the links are made by something else than *asked*.
    """
    backend = Backend.PROXY if any(address.gateway_front for address in addresses) else Backend.NONE
    # None if an earlier version of vstream has started it, or if the file was lost.
    links = ProxyProcess(directory).read_orders() or make_links(addresses, backend, shape)
    if asked not in {None, links.backend}:
        raise LabError(
            f"lab `{directory.name}` runs with `--links {links.backend.value}`",
            hint=f"`vstream lab down {directory.name}` first",
        )
    if shape == links.started:
        return links
    requested = {pair: shape.get(pair, IDEAL) for pair in (*shape, *links.started)}
    changed = {pair: state for pair, state in requested.items() if state != links.started.get(pair, IDEAL)}
    return replace(links, started=shape, base={**links.base, **changed}, generation=links.generation + 1)


def _list_fronts(address: ServerAddress, backend: Backend) -> Iterator[Front]:
    """The ports at which other regions reach a server, if a proxy stands in between."""
    if backend is not Backend.PROXY:
        return
    for port, target in ((address.gateway_front, address.gateway), (address.route_front, address.cluster)):
        if port is not None:
            yield Front(port=port, target=target, region=address.region)


# Times there and back become delays of each direction.


def link_states(links: Iterable[Link]) -> Mapping[Direction, LinkState]:
    """The settings of *links*, for both directions of each."""
    return {pair: link_state(link) for link in links for pair in (link.between, link.between[::-1])}


def link_state(link: Link) -> LinkState:
    """The settings of each direction of *link*."""
    return LinkState(delay=_halve(link.rtt), jitter=_halve(link.jitter), rate=link.rate, loss=link.loss)


def _halve(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / SECOND_NS / 2
