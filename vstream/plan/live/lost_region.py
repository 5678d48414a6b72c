"""What is lost with dead regions, by how far the others have read them; and where their homed streams go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

from vstream.errors import NotReachableError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.jetstream.region_connections import connect_all, join_connections
from vstream.plan.context import Observed
from vstream.plan.live.reader_positions import LivePositionReader
from vstream.plan.model import RegionLoss
from vstream.plan.topology_edit import TopologyEdit
from vstream.plan.transitions import promote_home
from vstream.topology import physical
from vstream.topology.model import Endpoint, Role, Topology, VirtualStream
from vstream.topology.replication import physical_streams
from vstream.topology.stream_config import REGION_KEY, ObservedStream


async def measure_losses(
    topology: Topology, regions: Sequence[str], observed: Observed, connection: Connection
) -> tuple[RegionLoss, ...]:
    """
    What is lost of what was published in *regions*.

    Of each write stream there that another stream sources, or that nobody answers for; and of each origin that was at home
    there, until another is made out of its mirrors.
    """
    position_reader = LivePositionReader(connection)
    losses = []
    for stream, region in product(topology.streams, regions):
        name, readers = physical.physical_name(stream, Role.WRITE, region), _list_sourcing_readers(stream, observed)
        if name in observed.unanswered or any(name in reader.config.source_names for reader in readers):
            losses.append(await _measure_loss(name, region, readers, position_reader))
    return (*losses, *_measure_origin_losses(topology, observed))


def _list_sourcing_readers(stream: VirtualStream, observed: Observed) -> list[ObservedStream]:
    """The streams that answer and take from write streams of *stream*: not those that mirror another."""
    parts = [part for part in physical_streams(stream) if part.role in {Role.READ, Role.ORDER}]
    readers = [observed.streams[name] for name in sorted(part.name for part in parts) if name in observed.streams]
    return [reader for reader in readers if reader.config.mirror_name is None]


async def _measure_loss(
    name: str, region: str, readers: Sequence[ObservedStream], position_reader: LivePositionReader
) -> RegionLoss:
    """What *readers* lack of the write stream *name*, which was in *region*."""
    positions = [await position_reader.find_position_in_lost(name, reader.config.name) for reader in readers]
    furthest = max((position.seq or 0 for position in positions), default=0)
    return RegionLoss(
        stream=name,
        region=region,
        readers={position.reader.name: position.seq for position in positions},
        last_seqs={reader.config.name: reader.last_seq for reader in readers},
        waiting_count=max((position.last_heard_of - furthest for position in positions), default=0),
    )


def _measure_origin_losses(topology: Topology, observed: Observed) -> Iterator[RegionLoss]:
    for lost in topology.lost:
        for virtual in lost.homes:
            mirrors = promote_home.mirrors_of(virtual, observed.streams.values(), topology.name)
            # Once there is a new origin, it has what the mirrors had.
            if virtual not in observed.streams and mirrors:
                yield RegionLoss(
                    stream=virtual,
                    region=lost.name,
                    readers={mirror.config.name: mirror.last_seq for mirror in mirrors},
                    is_origin=True,
                )


async def give_up(edit: TopologyEdit, regions: Sequence[str], endpoints: Mapping[str, Endpoint]) -> TopologyEdit:
    """
    Declare *regions* lost, and choose the new homes of the streams that are at home there.

    Raises NotReachableError if it is not known how far a copy of such a stream has come.
    """
    for region in regions:
        if region not in [lost.name for lost in edit.topology.lost]:  # else an earlier run has done it
            edit = edit.give_up(region, await _choose_homes(edit.topology, region, endpoints, dead=regions))
    return edit


async def _choose_homes(
    topology: Topology, region: str, endpoints: Mapping[str, Endpoint], *, dead: Collection[str]
) -> dict[str, str]:
    """For each homed stream that is at home in *region*, the region of the copy that has come furthest, none of *dead*."""
    homed = [stream for stream in topology.streams if region in stream.origin_settings]
    if not homed:
        return {}
    async with connect_all(topology, endpoints) as connections:
        streams, missing = await JetStreamAdmin(join_connections(connections)).streams()
    homes = {}
    for stream in homed:
        mirrors = promote_home.mirrors_of(stream.name, streams.values(), topology.name)
        names = [
            physical.physical_name(stream, Role.READ, place) for place in stream.read_settings if place not in dead
        ]
        if not mirrors or not {*names}.isdisjoint(missing):
            silent = [f"`{name}` does not answer" for name in names if name in missing] or ["no copy answers"]
            raise NotReachableError(
                f"`{stream.name}` was at home in `{region}`, and {', '.join(silent)}: the most complete copy is not known",
                hint="run this again once every other region answers; or, if it is dead, too, name it with `--also`",
            )
        homes[stream.name] = mirrors[0].config.metadata[REGION_KEY]
    return homes
