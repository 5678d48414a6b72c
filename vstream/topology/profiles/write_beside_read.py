"""What the profiles share whose write and read streams are in one account."""

from __future__ import annotations

from collections.abc import Collection

from vstream.subjects.mapping import Destination, Mapping
from vstream.syntax.json_types import Json
from vstream.topology.model import Naming, Role, Topology, VirtualStream
from vstream.topology.naming import API, PUBLISH_PREFIX, with_placeholders
from vstream.topology.profiles.profile import Profile
from vstream.topology.profiles.shared import mapped_subjects


class WriteBesideReadProfile(Profile):
    """What is read has the virtual name, what is written stands beside it: one rule for each root sends publishes there."""

    has_write_beside_read = True
    rules_lead_to = f"{PUBLISH_PREFIX}."

    def local_name(self, stream: VirtualStream, role: Role, place: str) -> str:
        """`foo`, and `foo-write`."""
        return f"{stream.name}-{role.value}" if role is Role.WRITE else stream.name

    def write_subjects(self, topology: Topology, stream: VirtualStream, region: str) -> tuple[str, ...]:
        """The same in every region: each has an account of its own."""
        return tuple(f"{PUBLISH_PREFIX}.{subject}" for subject in stream.subjects)

    def stored_subject(self, kind: Naming, stream: VirtualStream, region: str, subject: str) -> str:
        """See Profile."""
        return f"{PUBLISH_PREFIX}.{subject}"

    def published_subject(self, kind: Naming, subject: str) -> str:
        """See Profile."""
        return subject.removeprefix(f"{PUBLISH_PREFIX}.")

    def source_transforms(self, topology: Topology, stream: VirtualStream, origin: str) -> tuple[tuple[str, str], ...]:
        """See Profile."""
        return ((f"{PUBLISH_PREFIX}.>", ">"),)

    def read_stream_declares_subjects(self, stream: VirtualStream) -> bool:
        """Unless it publishes them again for core subscribers: it would store these once more."""
        return not stream.core_subscribers

    def republish(self, role: Role) -> Json:
        """What a server publishes itself is not mapped (server/parser.go): it reaches subscribers, and no write stream."""
        return {"src": ">", "dest": ">"} if role is Role.READ else None

    def mapping_rules(self, topology: Topology) -> tuple[Mapping, ...]:
        """What clients publish goes to the write stream of their region: its subject is the same in all of them."""
        rules = []
        for subject, _ in mapped_subjects(topology):
            rules.append(
                Mapping(
                    source=subject,
                    destinations=(Destination(subject=f"{PUBLISH_PREFIX}.{with_placeholders(subject)}"),),
                )
            )
        return tuple(rules)


def write_stream_api_subjects(topology: Topology, regions: Collection[str]) -> tuple[str, ...]:
    """
    What reads, acknowledges or has a consumer of a write stream that stands beside its read stream, in any of *regions*.

    Everything that names such a stream where the API has the name (server/jetstream_api.go), and the acknowledgements and
    the flow control of its consumers, with and without a domain in front (server/consumer.go). Wildcards stand for whole
    tokens, so each stream is named.
    """
    names = (
        f"{stream.name}-{Role.WRITE.value}" for stream in topology.streams for place in stream.write if place in regions
    )
    subjects = []
    for name in dict.fromkeys(names):
        subjects += [
            f"$JS.*.{name}.>",
            f"$JS.*.*.*.{name}",
            f"$JS.*.*.*.{name}.>",
            f"{API}.*.*.*.{name}",
            f"{API}.*.*.*.{name}.>",
        ]
    return tuple(subjects)
