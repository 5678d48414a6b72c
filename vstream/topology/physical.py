"""The physical streams of virtual ones: their names, places and subjects."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from vstream.topology.model import Naming, Role, Routing, Topology, VirtualStream
from vstream.topology.naming import qualified_name
from vstream.topology.profiles import profile_of


def account_of(stream: VirtualStream, role: Role, place: str) -> str | None:
    """The account, or the domain, that a physical stream lives in; None where all share one account of clients."""
    return profile_of(stream).account_of(stream, role, place)


def stream_accounts(topology: Topology) -> tuple[str | None, ...]:
    """The accounts that hold the physical streams; None stands for that of clients."""
    return profile_of(topology).stream_accounts(topology)


def client_account(topology: Topology, region: str | None = None) -> str:
    """The account that clients of *region*, or of any where that makes no difference, are in, where vstream renders accounts."""
    return profile_of(topology).client_account(topology, region)


def client_accounts(topology: Topology) -> tuple[str, ...]:
    """All accounts that clients are in, where vstream renders accounts."""
    return tuple(dict.fromkeys(client_account(topology, region.name) for region in topology.regions))


def physical_name(stream: VirtualStream, role: Role, place: str) -> str:
    """
    The name of a physical stream: `foo-write-west`, `foo-order-stretch`.

    An origin has the name of the virtual stream, so that every client operation reaches it without a mapping; an
    ordering stream has it where the topology says so. In hidden accounts all have it: there the account tells them
    apart, `W_west/foo`. In domains, and in accounts of regions, the read stream has it: `west/foo` and
    `west/foo-write`, `APP_west/foo` and `APP_west/foo-write`.
    """
    profile = profile_of(stream)
    return qualified_name(profile.account_of(stream, role, place), profile.local_name(stream, role, place))


def lost_write_streams(topology: Topology) -> frozenset[str]:
    """The names of the write streams in regions that *topology* has lost."""
    pairs = product(topology.streams, topology.lost)
    return frozenset(physical_name(stream, Role.WRITE, lost.name) for stream, lost in pairs)


def former_stream_of(stream: VirtualStream, role: Role, place: str) -> str | None:
    """The stream of the old layout that a read stream of the new layout also sources while a topology moves."""
    if not stream.follows_former or role is not Role.READ:
        return None
    return physical_name(replace(stream, routing=Routing.MAPPED, is_former=True), role, place)


def write_subjects(topology: Topology, stream: VirtualStream, region: str) -> tuple[str, ...]:
    """The subjects of the stream that takes the publishes of *region*."""
    if stream.consistency.has_origin:
        return stream.subjects
    return profile_of(stream).write_subjects(topology, stream, region)


def stored_subject(kind: Naming, stream: VirtualStream, region: str, subject: str) -> str:
    """The subject under which a message published on *subject* in *region* is first stored."""
    if stream.consistency.has_origin:
        return subject
    return profile_of(stream).stored_subject(kind, stream, region, subject)


def published_subject(kind: Naming, stream: VirtualStream, subject: str) -> str:
    """The inverse of `stored_subject`, for the literal subject of a message that is first stored."""
    return subject if stream.consistency.has_origin else profile_of(stream).published_subject(kind, subject)


def source_transforms(topology: Topology, stream: VirtualStream, origin: str) -> tuple[tuple[str, str], ...]:
    """How a stream that sources turns the physical subjects of *origin* back: (source, destination) pairs."""
    return profile_of(topology).source_transforms(topology, stream, origin)


def write_stream_in(stream: VirtualStream, region: str) -> str:
    """The name of the physical stream that takes what is published in *region*: another region's, while it is drained."""
    return origin_name(stream) or physical_name(stream, Role.WRITE, stream.takeover_regions.get(region, region))


def read_stream_in(stream: VirtualStream, region: str) -> str:
    """The name of the physical stream that holds the messages in *region*."""
    return (
        physical_name(stream, Role.READ, region)
        if region in stream.read_settings
        else origin_name(stream) or stream.name
    )


def origin_name(stream: VirtualStream) -> str | None:
    """The physical stream that takes all publishes, if one does."""
    return next((physical_name(stream, Role.ORIGIN, place) for place in stream.origin_settings), None)


def mirrored_stream(stream: VirtualStream) -> str | None:
    """The name of the stream that the read streams mirror, None if they source the write streams."""
    if stream.consistency.has_origin:
        return origin_name(stream)
    return next((physical_name(stream, Role.ORDER, place) for place in stream.order_settings), None)
