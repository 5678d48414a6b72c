"""Every name, subject and path that is derived from a topology, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.model.topology import Naming, Role
from vstream.subjects import FULL_WILDCARD, PARTIAL_WILDCARD

if TYPE_CHECKING:
    from vstream.model.topology import Topology, VirtualStream

PHYSICAL_PREFIX = "_vs"
"""First token of physical subjects. It lies outside anything a client may publish on."""

LAB_BASE_PORT = 14000
"""First port of the default layout on loopback: below 32768, where ephemeral ports begin."""
LAST_PORT = 32767
PORTS_PER_SERVER = 4
"""Client, monitor, cluster and gateway."""
_SERVERS_PER_REGION = 10
"""Room that a region has at least, so that ports stay as they are when one grows."""

RESERVED_NAMES = frozenset({"CREATE", "DELETE", "GET", "INFO", "LIST", "NAMES", "NEXT", "PEER", "STEPDOWN", "UPDATE"})
"""
Stream names that make API mappings ambiguous: `$JS.API.CONSUMER.*.NEXT.>` also matches
`$JS.API.CONSUMER.MSG.NEXT.foo.bar` (server/jetstream_api.go, the JSApi subjects).
"""


def physical_name(stream: str, role: Role, region: str) -> str:
    """The name of a physical stream: `foo-write-west`."""
    return f"{stream}-{role.value}-{region}"


def server_name(region: str, number: int) -> str:
    """The name of a server; *number* counts from 1."""
    return f"{region}-{number}"


def base_port(topology: Topology, region: int, server: int) -> int:
    """The first port of a server in the default layout on loopback; *region* and *server* count from 0."""
    room = max(_SERVERS_PER_REGION, *(len(one.servers) for one in topology.regions))
    return LAB_BASE_PORT + PORTS_PER_SERVER * (region * room + server)


def is_wildcard(token: str) -> bool:
    """Whether *token* is a subject wildcard."""
    return token in {PARTIAL_WILDCARD, FULL_WILDCARD}


def physical_subject(naming: Naming, stream: str, region: str, subject: str) -> str:
    """Where a message published on *subject* in *region* is stored; wildcards stay wildcards."""
    if naming is Naming.ISOLATED:
        return f"{PHYSICAL_PREFIX}.{stream}.{region}.{subject}"
    first, _, rest = subject.partition(".")
    return f"{first}.{region}.{rest}" if rest else f"{first}.{region}"


def with_placeholders(pattern: str, *, start: int = 1) -> str:
    """A destination's spelling of *pattern*: each `*` becomes `{{wildcard(n)}}`, counting from *start*."""
    tokens = []
    number = start
    for token in pattern.split("."):
        if token == PARTIAL_WILDCARD:
            tokens.append(f"{{{{wildcard({number})}}}}")
            number += 1
        else:
            tokens.append(token)
    return ".".join(tokens)


def write_subjects(topology: Topology, stream: VirtualStream, region: str) -> tuple[str, ...]:
    """What a write stream listens on."""
    if topology.naming is Naming.ISOLATED:
        return (f"{PHYSICAL_PREFIX}.{stream.name}.{region}.>",)
    return tuple(physical_subject(topology.naming, stream.name, region, subject) for subject in stream.subjects)


def source_transforms(topology: Topology, stream: VirtualStream, origin: str) -> tuple[tuple[str, str], ...]:
    """How a read stream turns the physical subjects of *origin* back: (source, destination) pairs."""
    if topology.naming is Naming.ISOLATED:
        return ((f"{PHYSICAL_PREFIX}.{stream.name}.{origin}.>", ">"),)
    return tuple(
        (physical_subject(topology.naming, stream.name, origin, subject), with_placeholders(subject))
        for subject in stream.subjects
    )


def canary_subject(stream: VirtualStream, origin: str) -> str | None:
    """The subject on which a probe publishes in *origin*, None if none was agreed on."""
    if stream.canary is None:
        return None
    return ".".join(origin if token == PARTIAL_WILDCARD else token for token in stream.canary.split("."))


def probe_subject(pattern: str) -> str:
    """A literal subject under *pattern* that no application uses."""
    return ".".join("_vstream_probe" if is_wildcard(token) else token for token in pattern.split("."))
