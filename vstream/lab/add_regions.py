"""
Add regions to a running lab, without changing what runs.

Running servers are not told: the servers of the new region dial them, and gateways gossip. Their configurations must
not change either: a server refuses to reload a file with another `gateway`, and every reload after that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from vstream.errors import LabError
from vstream.formatting import quote_names
from vstream.lab import ports
from vstream.lab.binaries import Program
from vstream.lab.links.state import Backend, Links
from vstream.lab.state import LabDirectory, LabRecord
from vstream.topology.model import Seat, Topology
from vstream.topology.server_address import ServerAddress


def find_new_regions(topology: Topology, record: LabRecord) -> frozenset[str]:
    """The regions of *topology* without a server in *record*."""
    return frozenset(seat.region for seat in topology.all_seats) - {address.region for address in record.servers}


def extend_record(
    directory: LabDirectory,
    record: LabRecord,
    topology: Topology,
    programs: Mapping[str, Program],
    *,
    backend: Backend,
    reserved: Collection[int],
) -> LabRecord:
    """
    *record* with servers for the regions of *topology* that it lacks, at free ports that are not *reserved*.

    Those that were removed come back where they were, if they can: clients know these addresses.
    Raises LabError if a region cannot join without a restart.
    """
    regions = find_new_regions(topology, record)
    _require_possible(directory.name, record, regions)
    seats = [seat for seat in topology.all_seats if seat.region in regions]
    unavailable = {*reserved, *ports.list_ports(record.servers)}
    joining = _list_former_addresses(record, seats, unavailable)
    if not joining:
        first = ports.choose_block(len(seats), fronts=ports.count_fronts(seats, backend), reserved=unavailable)
        joining = ports.allocate(seats, first, directory, backend=backend)
    addresses = (*record.servers, *(replace(address, transport=record.transport) for address in joining))
    by_name = {address.server.name: address for address in addresses}
    return replace(
        record,
        servers=tuple(by_name[seat.server.name] for seat in topology.all_seats),
        removed=tuple(address for address in record.removed if address.server.name not in by_name),
        programs={**record.programs, **{seat.server.name: programs[seat.server.name] for seat in seats}},
    )


def _list_former_addresses(
    record: LabRecord, seats: Sequence[Seat], unavailable: Collection[int]
) -> tuple[ServerAddress, ...]:
    """Where the servers of *seats* were before they were removed; none if not all were, or something else is there now."""
    former = {(address.region, address.cluster_name, address.server.name): address for address in record.removed}
    addresses = []
    for seat in seats:
        if (address := former.get((seat.region, seat.cluster, seat.server.name))) is not None:
            addresses.append(replace(address, server=seat.server))
    # The lab's own proxy goes on listening at their fronts.
    is_free = ports.list_ports(addresses).isdisjoint(unavailable) and not ports.find_occupied_ports(addresses)
    return tuple(addresses) if len(addresses) == len(seats) and is_free else ()


def extend_links(links: Links, record: LabRecord, fresh: Links) -> Links:
    """*links* with what the servers of *record* need that it lacks, as *fresh* has it."""
    if {address.server.name for address in record.servers} == links.servers.keys():
        return links
    existing = {front.port for front in links.fronts}
    return replace(
        links,
        servers=fresh.servers,
        fronts=(*links.fronts, *(front for front in fresh.fronts if front.port not in existing)),
        generation=links.generation + 1,
    )


def _require_possible(name: str, record: LabRecord, regions: Collection[str]) -> None:
    clusters = {address.cluster_name for address in record.servers}
    if len(clusters) == 1:
        joining = quote_names(sorted(regions))
        raise LabError(
            f"lab `{name}` cannot take region {joining} while it runs: "
            "it has one region, so its configurations have no gateways",
            hint=f"`vstream lab down {name}` and `vstream lab up` start it with all regions",
        )
