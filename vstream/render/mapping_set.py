"""
Which subject mappings a topology needs: the one module that decides.

Every publish of every client of the account walks all rules in turn, so each rule
here must earn its place. With `routing: accounts` there are three and one for each root, see
`vstream.render.accounts.accounts`. With `routing: domains` and `regional` there is one for each root. With `routing: mapped` all is in one account: publishes go to the
region's write stream, the API requests that name the virtual stream go to the
region's read stream. A stream with an origin needs none: the origin is called like the
virtual stream and listens on its subjects, and mirrors answer Direct Get in its
name, nearest first (`mirror_direct`). What is left out on purpose: purging and deleting messages
(they would change one region only), and creating, updating or deleting streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.render.accounts.accounts import ACKS, mapped_subjects
from vstream.render.accounts.mapped import OWN_API
from vstream.subjects.mapping import Destination, Mapping
from vstream.topology import naming
from vstream.topology.model import Role, Routing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.topology.model import Topology, VirtualStream

_API = "$JS.API"

READ_RULES: tuple[tuple[str, str], ...] = (
    (f"{_API}.STREAM.INFO.<stream>", f"{_API}.STREAM.INFO.<read>"),
    (f"{_API}.STREAM.MSG.GET.<stream>", f"{_API}.STREAM.MSG.GET.<read>"),
    (f"{_API}.DIRECT.GET.<stream>", f"{_API}.DIRECT.GET.<read>"),
    (f"{_API}.DIRECT.GET.<stream>.>", f"{_API}.DIRECT.GET.<read>.>"),
    # CREATE (the form without a filter), LIST and NAMES.
    (f"{_API}.CONSUMER.*.<stream>", f"{_API}.CONSUMER.{{{{wildcard(1)}}}}.<read>"),
    # CREATE (with name and filter), INFO, DELETE, PAUSE, RESET and UNPIN.
    (f"{_API}.CONSUMER.*.<stream>.>", f"{_API}.CONSUMER.{{{{wildcard(1)}}}}.<read>.>"),
    (f"{_API}.CONSUMER.MSG.NEXT.<stream>.*", f"{_API}.CONSUMER.MSG.NEXT.<read>.{{{{wildcard(1)}}}}"),
    (f"{_API}.CONSUMER.DURABLE.CREATE.<stream>.*", f"{_API}.CONSUMER.DURABLE.CREATE.<read>.{{{{wildcard(1)}}}}"),
)
"""API requests by the virtual name, and where the region's clients are sent (server/jetstream_api.go)."""


def mapping_set(topology: Topology) -> tuple[Mapping, ...]:
    """Every mapping rule of the account that clients are in, in the order of the topology."""
    moves = topology.moves_to or topology.moves_from
    return (*_of_profile(topology), *((OWN_API,) if moves else ()))


def _of_profile(topology: Topology) -> tuple[Mapping, ...]:
    if topology.routing is Routing.ACCOUNTS:
        everywhere = tuple(region.name for region in topology.regions)
        constant = ((subject, everywhere) for subject in (f"{_API}.>", *ACKS))
        return tuple(
            _regional(topology, subject, regions) for subject, regions in (*constant, *mapped_subjects(topology))
        )
    if topology.routing.has_write_beside_read:
        return tuple(_written(subject) for subject, _ in mapped_subjects(topology))
    return tuple(rule for stream in topology.streams for rule in _stream_rules(topology, stream))


def _regional(topology: Topology, subject: str, regions: tuple[str, ...]) -> Mapping:
    """What clients of a region send on *subject* goes to that region's accounts."""
    spelled = naming.with_placeholders(subject)
    return Mapping(
        source=subject,
        destinations=tuple(
            Destination(subject=f"{naming.REGION_PREFIX}.{region}.{spelled}", cluster=topology.region(region).cluster)
            for region in regions
        ),
    )


def _written(subject: str) -> Mapping:
    """What clients publish goes to the write stream of their region: its subject is the same in all of them."""
    return Mapping(
        source=subject,
        destinations=(Destination(subject=f"{naming.PUBLISH_PREFIX}.{naming.with_placeholders(subject)}"),),
    )


def _stream_rules(topology: Topology, stream: VirtualStream) -> Iterator[Mapping]:
    if stream.consistency.has_origin:
        return
    clusters = [(region, topology.region(region).cluster) for region in stream.regions]
    for subject in stream.subjects:
        spelled = naming.with_placeholders(subject)
        yield Mapping(
            source=subject,
            destinations=tuple(
                Destination(
                    subject=naming.physical_subject(topology.naming, stream.name, region, spelled), cluster=cluster
                )
                for region, cluster in clusters
            )
            + (_nowhere(topology, stream, spelled) if stream.is_order_named else ()),
        )
    if stream.has_namesake:
        return
    for source, destination in READ_RULES:
        yield Mapping(
            source=source.replace("<stream>", stream.name),
            destinations=tuple(
                Destination(
                    subject=destination.replace("<read>", naming.physical_name(stream, Role.READ, region)),
                    cluster=cluster,
                )
                for region, cluster in clusters
            ),
        )


def _nowhere(topology: Topology, stream: VirtualStream, spelled: str) -> tuple[Destination, ...]:
    """
    Where publishes go in clusters that have no write stream, such as that of the stretch cluster's members.

    An order that lists the subjects itself would take what is not mapped.
    """
    return (Destination(subject=naming.physical_subject(topology.naming, stream.name, naming.NO_REGION, spelled)),)
