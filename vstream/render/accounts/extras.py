"""What single streams add to accounts: purges of buckets, and what core subscribers hear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.topology import naming
from vstream.topology.accounts import Export, ShareKind
from vstream.topology.naming import API, client_account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.topology.model import Topology, VirtualStream


def core_subscriber_subjects(topology: Topology, region: str) -> tuple[str, ...]:
    """
    What subscribers without JetStream hear from the write account of *region*, whose streams publish it again there.

    A publish that was imported as a service is not handed on to those who import it as a stream on the same server
    (server/client.go, processMsgResults). Publishes to streams with one origin are not mapped: subscribers in the
    account of clients hear them as they are.
    """
    return tuple(
        subject
        for stream in topology.streams
        if stream.core_subscribers and region in stream.regions and not stream.consistency.has_origin
        for subject in stream.subjects
    )


def core_subscriptions(topology: Topology, region: str | None = None) -> tuple[str, ...]:
    """The subjects that applications of *region*, or of all, may subscribe to without JetStream."""
    return tuple(
        subject
        for stream in topology.streams
        if stream.core_subscribers and (region is None or region in stream.regions)
        for subject in stream.subjects
    )


def purge_subject(stream: VirtualStream) -> str:
    """What clients ask to purge *stream*: those of buckets do, of what they have deleted."""
    return f"{API}.STREAM.PURGE.{stream.name}"


def purge_subjects(topology: Topology, account: str, region: str) -> Iterator[str]:
    """
    What clients in *region* have purged in *account*.

    The one exception to disjoint imports: each account that holds a part of the bucket purges its own, and the client
    takes the first answer. What does not hear of it keeps what nobody reads any more.
    """
    for stream in topology.streams:
        accounts = {naming.account_of(stream, part.role, part.place) for part in stream.physical}
        if stream.is_bucket and account in accounts and region in stream.regions:
            yield purge_subject(stream)


def purge_exports(topology: Topology, account: str) -> tuple[Export, ...]:
    """The exports behind `purge_subjects`."""
    subjects = (subject for region in topology.regions for subject in purge_subjects(topology, account, region.name))
    return tuple(
        Export(kind=ShareKind.SERVICE, subject=subject, accounts=(client_account(topology),))
        for subject in dict.fromkeys(subjects)
    )
