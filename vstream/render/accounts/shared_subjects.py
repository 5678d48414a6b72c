"""What several routing profiles let pass: what is rendered alike for accounts, domains and regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.subjects import algebra
from vstream.topology import naming
from vstream.topology.accounts import Export, Import, ShareKind
from vstream.topology.model import Role
from vstream.topology.naming import API

if TYPE_CHECKING:
    from collections.abc import Collection

    from vstream.topology.model import Topology

FLOW = "$JS.FC.>"
WHO_AM_I = "$SYS.REQ.USER.INFO"
LOOKS = ("INFO", "STREAM.INFO.*", "STREAM.LIST", "STREAM.NAMES", "STREAM.MSG.GET.*", "DIRECT.GET.>")
"""What looks at streams and changes nothing."""
READS_ALL = ("CONSUMER.CREATE.>", "CONSUMER.INFO.>", "CONSUMER.MSG.NEXT.>", "CONSUMER.DELETE.>")
"""What reads a whole stream."""
MANAGE_THRESHOLD = "2m"


def canaries(topology: Topology, below: str) -> tuple[str, ...]:
    """
    Where a probe may publish, after mapping: each subject that is mapped is *below* that.

    All of a root, so that a new stream below it changes nothing that servers load. A stream with an origin is not mapped.
    """
    tried = (
        subject if stream.consistency.has_origin else f"{below}.{subject}"
        for stream in topology.streams
        for subject in (*([stream.canary] if stream.canary else []), *map(naming.probe_subject, stream.subjects))
        if not any(algebra.is_subset(subject, root) for root in topology.roots)
    )
    return (*(f"{below}.{root}" for root in topology.roots), *tried)


def write_stream_api_subjects(topology: Topology, regions: Collection[str]) -> tuple[str, ...]:
    """
    What reads, acknowledges or has a consumer of a write stream that stands beside its read stream, in any of *regions*.

    Everything that names such a stream where the API has the name (server/jetstream_api.go), and the acknowledgements and
    the flow control of its consumers, with and without a domain in front (server/consumer.go). Wildcards stand for whole
    tokens, so each stream is named.
    """
    names = (
        naming.local_name(naming.physical_name(stream, Role.WRITE, place))
        for stream in topology.streams
        for place in stream.write
        if place in regions
    )
    return tuple(
        subject
        for name in dict.fromkeys(names)
        for subject in (
            f"$JS.*.{name}.>",
            f"$JS.*.*.*.{name}",
            f"$JS.*.*.*.{name}.>",
            f"{API}.*.*.*.{name}",
            f"{API}.*.*.*.{name}.>",
        )
    )


def service(account: str, subject: str, to: str) -> Import:
    """What is asked of *account* on *subject*, and here on *to*."""
    return Import(kind=ShareKind.SERVICE, account=account, subject=subject, to=to)


def delivery_export(name: str, takers: tuple[str, ...]) -> Export:
    """What the account *name* delivers to *takers*."""
    return Export(kind=ShareKind.STREAM, subject=f"{naming.DELIVER_PREFIX}.{name}.>", accounts=takers)


def management_export(managers: tuple[str, ...]) -> Export:
    """The whole API, for vstream's own users, who alone may publish where *managers* import it to."""
    return Export(kind=ShareKind.SERVICE, subject=f"{API}.>", accounts=managers, threshold=MANAGE_THRESHOLD)
