"""What several routing profiles share: requests, permissions, additions of single streams, and writing beside reading."""

from __future__ import annotations

from collections.abc import Collection

from vstream.subjects import algebra
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.syntax.document import Json
from vstream.topology import naming
from vstream.topology.accounts import (
    APP_USER,
    AUDIT_USER,
    PROBE_USER,
    VSTREAM_USER,
    Export,
    Import,
    ShareKind,
    User,
    inbox_of,
    password_variable,
    regional_user,
)
from vstream.topology.model import CLIENT_INBOX, VSTREAM_INBOX, Naming, Role, Topology, VirtualStream
from vstream.topology.naming import API, PUBLISH_PREFIX, with_placeholders
from vstream.topology.profiles.profile import Profile

INBOX = f"{CLIENT_INBOX}.>"
"""Where answers and pushed messages go. Clients that set another inbox prefix, or name a fixed subject, get none pushed."""
ANSWERS = f"{VSTREAM_INBOX}.>"
"""Where vstream's own users hear answers, and nobody else."""
_UNHEARD = {APP_USER: (ANSWERS,), VSTREAM_USER: tuple(f"{inbox_of(user)}.>" for user in (PROBE_USER, AUDIT_USER))}
"""By role, the answers to others."""
ACKS = ("$JS.ACK.>", "$JS.FC.>")
NAMES = f"{API}.STREAM.NAMES"
"""Asked of a write account, whose streams all have the virtual names and their subjects: mirrors have none."""
_CHANGES = (
    f"{API}.STREAM.CREATE.*",
    f"{API}.STREAM.UPDATE.*",
    f"{API}.STREAM.DELETE.*",
    f"{API}.STREAM.PURGE.*",
    f"{API}.STREAM.MSG.DELETE.*",
    f"{API}.STREAM.PEER.REMOVE.*",
    f"{API}.STREAM.LEADER.STEPDOWN.*",
    f"{API}.CONSUMER.LEADER.STEPDOWN.>",
)
READS = (
    f"{API}.INFO",
    f"{API}.STREAM.INFO.*",
    NAMES,
    f"{API}.STREAM.LIST",
    f"{API}.STREAM.MSG.GET.*",
    f"{API}.CONSUMER.CREATE.>",
    f"{API}.CONSUMER.DURABLE.CREATE.>",
    f"{API}.CONSUMER.DELETE.>",
    f"{API}.CONSUMER.INFO.>",
    f"{API}.CONSUMER.LIST.>",
    f"{API}.CONSUMER.NAMES.>",
    f"{API}.CONSUMER.PAUSE.>",
    f"{API}.CONSUMER.RESET.>",
    f"{API}.CONSUMER.UNPIN.>",
    *ACKS,
)
"""What clients ask of a read account, and NAMES of a write account, with one answer each (server/jetstream_api.go)."""
PULLS = f"{API}.CONSUMER.MSG.NEXT.>"
PULL_THRESHOLD = "1h"
"""
How long after the last answer to a pull more may come. The answers to a pull that waits for longer than this are
lost, the message with them until it is delivered again.
"""
GETS = f"{API}.DIRECT.GET.>"
GET_THRESHOLD = "10s"
"""Of Direct Get, whose batches come at once: servers remember every request for as long, in 0.8 kB."""
FLOW = "$JS.FC.>"
MANAGED = (*(subject for subject in READS if subject.startswith(f"{API}.")), PULLS, GETS, *_CHANGES)
"""All that vstream asks of an account with streams."""
WHO_AM_I = "$SYS.REQ.USER.INFO"
LOOKS = ("INFO", "STREAM.INFO.*", "STREAM.LIST", "STREAM.NAMES", "STREAM.MSG.GET.*", "DIRECT.GET.>")
"""What looks at streams and changes nothing."""
READS_ALL = ("CONSUMER.CREATE.>", "CONSUMER.INFO.>", "CONSUMER.MSG.NEXT.>", "CONSUMER.DELETE.>")
"""What reads a whole stream."""
SNAPSHOTS = "$JS.SNAPSHOT.>"
"""Where the parts of a snapshot are acknowledged, and sent when it is restored."""
MANAGE_THRESHOLD = "2m"


_PURPOSES = {
    APP_USER: "applications: publish and read virtual streams",
    VSTREAM_USER: "plan, apply, repair and labs",
    PROBE_USER: "vstream probe",
    AUDIT_USER: "vstream audit: reads every stream, changes none",
}


def make_user(
    role: str,
    publish: tuple[str, ...],
    *,
    hears: tuple[str, ...] = (),
    denied: tuple[str, ...] = (),
    name: str | None = None,
) -> User:
    """
    A user of the *role*, such as `app`, who may publish on *publish*, without *denied*, and hears answers and *hears*.

    It is called like its role where it has no *name* of its own.
    """
    return User(
        name=name or role,
        password_variable=password_variable(role),
        purpose=_PURPOSES[role],
        publish=tuple(dict.fromkeys(publish)),
        subscribe=(INBOX if role == APP_USER else f"{inbox_of(role)}.>", *hears),
        denied=denied,
        unheard=_UNHEARD.get(role, ()),
    )


def make_probe_and_audit_users(
    topology: Topology, below: str, reading: tuple[str, ...], region: str | None = None
) -> tuple[User, User]:
    """`probe`, which publishes *below* and asks for *reading*, and `audit`; of *region*, if there are some for each."""
    asked = f"{naming.ACCOUNT_API_PREFIX}.*"
    looking = tuple(f"{asked}.{subject}" for subject in LOOKS)
    probing = (*canary_subjects(topology, below), *reading, *looking, f"{asked}.STREAM.MSG.DELETE.*", WHO_AM_I)
    auditing = (*looking, *(f"{asked}.{subject}" for subject in READS_ALL), WHO_AM_I)
    probe_name, audit_name = (region and regional_user(role, region) for role in (PROBE_USER, AUDIT_USER))
    return make_user(PROBE_USER, probing, name=probe_name), make_user(AUDIT_USER, auditing, name=audit_name)


def management_subjects(prefix: str) -> tuple[str, ...]:
    """All that vstream asks of an account whose API is reached at *prefix*."""
    return tuple(f"{prefix}.{subject.removeprefix(f'{API}.')}" for subject in MANAGED)


def mapped_subjects(topology: Topology) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The subjects that are mapped, each with its regions: the roots, and what is below none of them."""
    everywhere = tuple(region.name for region in topology.regions)
    regions_by_subject: dict[str, tuple[str, ...]] = {}
    for stream in topology.streams:
        if stream.consistency.has_origin:
            continue  # what takes its publishes is imported as it is
        for subject in stream.subjects:
            root = next((candidate for candidate in topology.roots if algebra.is_subset(subject, candidate)), None)
            regions_by_subject[root or subject] = everywhere if root else stream.regions
    # A root costs what it costs without streams too, and needs no reload when there is one.
    return tuple({**dict.fromkeys(topology.roots, everywhere), **regions_by_subject}.items())


def list_published(topology: Topology, below: str) -> tuple[str, ...]:
    """Where applications publish, after mapping: each subject that is mapped is *below* that."""
    with_origin = (stream for stream in topology.streams if stream.consistency.has_origin)
    unmapped = (subject for stream in with_origin for subject in stream.subjects)
    return (*(f"{below}.{subject}" for subject, _ in mapped_subjects(topology)), *unmapped)


def canary_subjects(topology: Topology, below: str) -> tuple[str, ...]:
    """
    Where a probe may publish, after mapping: each subject that is mapped is *below* that.

    All of a root, so that a new stream below it changes nothing that servers load. A stream with an origin is not mapped.
    """
    tried = []
    for stream in topology.streams:
        for subject in (*([stream.canary] if stream.canary else []), *map(naming.probe_subject, stream.subjects)):
            if not any(algebra.is_subset(subject, root) for root in topology.roots):
                tried.append(subject if stream.consistency.has_origin else f"{below}.{subject}")
    return (*(f"{below}.{root}" for root in topology.roots), *tried)


def service_import(account: str, subject: str, to: str) -> Import:
    """What is asked of *account* on *subject*, and here on *to*."""
    return Import(kind=ShareKind.SERVICE, account=account, subject=subject, to=to)


def delivery_export(name: str, importers: tuple[str, ...]) -> Export:
    """What the account *name* delivers to *importers*."""
    return Export(kind=ShareKind.STREAM, subject=f"{naming.DELIVER_PREFIX}.{name}.>", accounts=importers)


def export_whole_api(importers: tuple[str, ...]) -> Export:
    """The whole API, for vstream's own users, who alone may publish where *importers* import it to."""
    return Export(kind=ShareKind.SERVICE, subject=f"{API}.>", accounts=importers, threshold=MANAGE_THRESHOLD)


def core_subscriptions(topology: Topology, region: str | None = None) -> tuple[str, ...]:
    """The subjects that applications of *region*, or of all, may subscribe to without JetStream."""
    subjects: list[str] = []
    for stream in topology.streams:
        if stream.core_subscribers and (region is None or region in stream.regions):
            subjects += stream.subjects
    return tuple(subjects)


def purge_subject(stream: VirtualStream) -> str:
    """What clients ask to purge *stream*: those of buckets do, of what they have deleted."""
    return f"{API}.STREAM.PURGE.{stream.name}"


class WriteBesideReadProfile(Profile):
    """What is read has the virtual name, what is written stands beside it: one rule for each root sends publishes there."""

    has_write_beside_read = True
    has_roots = True
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

    def mapping_rules(self, topology: Topology) -> tuple[MappingRule, ...]:
        """What clients publish goes to the write stream of their region: its subject is the same in all of them."""
        rules = []
        for subject, _ in mapped_subjects(topology):
            rules.append(
                MappingRule(
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
    written = [stream for stream in topology.streams if not stream.write_settings.keys().isdisjoint(regions)]
    subjects = []
    for name in (f"{stream.name}-{Role.WRITE.value}" for stream in written):
        subjects += [
            f"$JS.*.{name}.>",
            f"$JS.*.*.*.{name}",
            f"$JS.*.*.*.{name}.>",
            f"{API}.*.*.*.{name}",
            f"{API}.*.*.*.{name}.>",
        ]
    return tuple(subjects)
