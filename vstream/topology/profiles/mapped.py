"""
The account of `routing: mapped` where vstream writes it, and how its streams and those of `routing: accounts` reach each other.

Servers map what one account asks of another, too: where the JetStream API of the account of clients leads elsewhere, its own is
asked for at `_vs.api.M_clients.…`, by one more rule. Flow control goes as between accounts of regions: an import of it as a service, in
both directions, would be a cycle, so what the account of clients is answered comes as a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.topology import accounts, naming
from vstream.topology.accounts import Account, User
from vstream.topology.model import Naming, Role, Routing, Topology, VirtualStream
from vstream.topology.naming import (
    ACCOUNT_API_PREFIX,
    API,
    DELIVER_PREFIX,
    FORMER_ACCOUNT,
    PHYSICAL_PREFIX,
    account_of_reads,
)
from vstream.topology.profiles import hidden_accounts, shared
from vstream.topology.profiles.profile import Profile, ProfileManual, second_layout
from vstream.topology.profiles.shared import (
    canary_subjects,
    delivery_export,
    make_user,
    management_subjects,
    purge_subject,
    service_import,
)
from vstream.topology.stream_config import SOURCE_API_PREFIX

_FORMER_API = f"{ACCOUNT_API_PREFIX}.{FORMER_ACCOUNT}"
_CREATE = "CONSUMER.CREATE.>"
READ_RULES: tuple[tuple[str, str], ...] = (
    (f"{API}.STREAM.INFO.<stream>", f"{API}.STREAM.INFO.<read>"),
    (f"{API}.STREAM.MSG.GET.<stream>", f"{API}.STREAM.MSG.GET.<read>"),
    (f"{API}.DIRECT.GET.<stream>", f"{API}.DIRECT.GET.<read>"),
    (f"{API}.DIRECT.GET.<stream>.>", f"{API}.DIRECT.GET.<read>.>"),
    # CREATE (the form without a filter), LIST and NAMES.
    (f"{API}.CONSUMER.*.<stream>", f"{API}.CONSUMER.{{{{wildcard(1)}}}}.<read>"),
    # CREATE (with name and filter), INFO, DELETE, PAUSE, RESET and UNPIN.
    (f"{API}.CONSUMER.*.<stream>.>", f"{API}.CONSUMER.{{{{wildcard(1)}}}}.<read>.>"),
    (f"{API}.CONSUMER.MSG.NEXT.<stream>.*", f"{API}.CONSUMER.MSG.NEXT.<read>.{{{{wildcard(1)}}}}"),
    (f"{API}.CONSUMER.DURABLE.CREATE.<stream>.*", f"{API}.CONSUMER.DURABLE.CREATE.<read>.{{{{wildcard(1)}}}}"),
)
"""API requests by the virtual name, and where the region's clients are sent (server/jetstream_api.go)."""


class MappedProfile(Profile):
    """See the module."""

    routing = Routing.MAPPED
    since = None
    operator_since = None
    publish_us = 7.0
    rule_us = 0.053  # every publish is compared with all of them
    has_physical_names = True
    has_roots = False
    has_every_operation = True
    may_name_account = True
    rules_lead_to = f"{PHYSICAL_PREFIX}."
    starter = """\
# routing: accounts         # hidden accounts, in which clients can create consumers too: docs/routing.md
"""
    starter_root = ""
    summary = "one account, 8 rules and more per stream"
    manual = ProfileManual(
        accounts="one, your own",
        streams="`foo-write-west`, `foo-read-west`",
        mapping_rules=(
            "8 and one per subject for each `virtual` or `ordered` stream; one per subject with [`virtual_name: "
            "order`](consistency.md#an-order-that-carries-the-virtual-name)"
        ),
        creating_consumers="no (10056); yes for `stretch`, `homed` and `virtual_name: order`, far from the client",
        mirrored_consumers="at the origin",
        changing_streams="by the physical name, if permitted",
        core_subscribers="of `stretch` and `homed` streams",
        users="yours",
        files="`mappings.cfg`; if the topology names the `account`, `accounts.cfg` and `passwords.cfg`",
        servers="2.10 and newer",
        runbooks="yes",
    )

    def account_of(self, stream: VirtualStream, role: Role, place: str) -> str | None:
        """That of clients, whose API leads elsewhere once the topology has moved away."""
        return FORMER_ACCOUNT if stream.is_former else None

    def local_name(self, stream: VirtualStream, role: Role, place: str) -> str:
        """`foo-write-west`; what clients mean by the virtual name is called so."""
        is_namesake = role is Role.ORIGIN or (role is Role.ORDER and stream.is_virtual_name_of_order)
        return stream.name if is_namesake else f"{stream.name}-{role.value}-{place}"

    def stream_accounts(self, topology: Topology) -> tuple[str | None, ...]:
        """That of clients; while the topology moves to `accounts`, those of that layout besides."""
        return (None,) if topology.moves_to is None else (None, *hidden_accounts.stream_accounts(topology))

    def account_of_reads(self, region: str) -> None:
        """See Profile."""

    def write_subjects(self, topology: Topology, stream: VirtualStream, region: str) -> tuple[str, ...]:
        """See Profile."""
        if topology.naming is Naming.ISOLATED:
            return (f"{PHYSICAL_PREFIX}.{stream.name}.{region}.>",)
        return tuple(
            naming.physical_subject(topology.naming, stream.name, region, subject) for subject in stream.subjects
        )

    def stored_subject(self, kind: Naming, stream: VirtualStream, region: str, subject: str) -> str:
        """See Profile."""
        return naming.physical_subject(kind, stream.name, region, subject)

    def published_subject(self, kind: Naming, subject: str) -> str:
        """See Profile."""
        return naming.virtual_subject(kind, subject)

    def source_transforms(self, topology: Topology, stream: VirtualStream, origin: str) -> tuple[tuple[str, str], ...]:
        """See Profile."""
        if topology.naming is Naming.ISOLATED:
            return ((f"{PHYSICAL_PREFIX}.{stream.name}.{origin}.>", ">"),)
        transforms = []
        for subject in stream.subjects:
            transforms.append(
                (
                    naming.physical_subject(topology.naming, stream.name, origin, subject),
                    naming.with_placeholders(subject),
                )
            )
        return tuple(transforms)

    def read_stream_declares_subjects(self, stream: VirtualStream) -> bool:
        """They would store what clients publish."""
        return False

    def accounts(self, topology: Topology) -> tuple[accounts.Account, ...]:
        """
        The account of clients and streams, if vstream writes it.

        While the topology moves to `accounts`, fed from it, the accounts of that besides.
        """
        if not topology.has_accounts:
            return ()
        later = second_layout(topology)
        if later is not None:
            return self.join_accounts(later, topology, clients_in=topology)
        return (
            accounts.Account(
                name=naming.common_client_account(topology),
                purpose="clients and streams",
                has_jetstream=True,
                users=self._make_users(topology),
            ),
        )

    def mapping_rules(self, topology: Topology) -> tuple[MappingRule, ...]:
        """Publishes go to the region's write stream, requests that name the virtual stream to its read stream."""
        return tuple(rule for stream in topology.streams for rule in self._list_stream_rules(topology, stream))

    def join_accounts(self, topology: Topology, former: Topology, *, clients_in: Topology) -> tuple[Account, ...]:
        """
        The accounts of `routing: accounts`, whose read accounts take from that of clients, where *former* is.

        Clients may do what they need in either layout, also in the one that they are not in: servers that load mappings check
        for a moment who may publish what they lead to, and know only what was allowed before (seen on 2.12.8).
        """
        clients, *hidden = hidden_accounts.accounts(topology)
        importers = tuple(account_of_reads(region.name) for region in topology.regions)
        users = []
        for new, old in zip(clients.users, self._make_users(former), strict=True):
            users.append(_merge_users(new, old, is_new=clients_in is topology))
        flow = [
            accounts.Import(kind=accounts.ShareKind.STREAM, account=name, subject=shared.FLOW) for name in importers
        ]
        feeding = replace(
            clients,
            purpose="clients and streams",
            has_jetstream=True,
            users=tuple(users),
            exports=(
                *clients.exports,
                accounts.Export(
                    kind=accounts.ShareKind.SERVICE, subject=f"{_FORMER_API}.{_CREATE}", accounts=importers
                ),
                delivery_export(FORMER_ACCOUNT, importers),
            ),
            imports=(
                *clients.imports,
                *flow,
            ),
        )
        return (feeding, *(_with_imported_feed(new, clients.name) if new.name in importers else new for new in hidden))

    def _make_users(self, topology: Topology) -> tuple[User, ...]:
        """Those that log in to the account of clients and streams, each with what it needs and nothing more."""
        stored_subjects = []
        for stream in topology.streams:
            for region in stream.regions:
                for subject in stream.subjects:
                    stored_subjects.append(self._stored_subject(topology, stream, region, subject))
        written = tuple(stored_subjects)
        reading = (*shared.READS, shared.PULLS, shared.GETS)
        purged = tuple(purge_subject(stream) for stream in topology.streams if stream.is_bucket)
        # Nothing is between core subscribers and streams that take all publishes in one place.
        heard = tuple(
            subject for stream in topology.streams if stream.consistency.has_origin for subject in stream.subjects
        )
        looking = tuple(f"{API}.{subject}" for subject in shared.LOOKS)
        return (
            make_user(accounts.APP_USER, (*written, *reading, *purged), hears=heard),
            make_user(
                accounts.VSTREAM_USER,
                (
                    *written,
                    *shared.MANAGED,
                    *(f"{API}.STREAM.SNAPSHOT.*", f"{API}.STREAM.RESTORE.*", shared.SNAPSHOTS),  # backups
                    *(*shared.ACKS, shared.ANSWERS),  # traces of a publish are published to whoever asks
                    *management_subjects(f"{ACCOUNT_API_PREFIX}.*"),
                    f"{naming.REPAIR_PREFIX}.>",
                    f"{naming.REPAIR_ALIVE_PREFIX}.*",
                    shared.WHO_AM_I,
                ),
                hears=(f"{naming.REPAIR_ALIVE_PREFIX}.*", naming.ADVISORIES),
            ),
            make_user(
                accounts.PROBE_USER,
                (
                    *canary_subjects(topology, f"{PHYSICAL_PREFIX}.*.*"),
                    *reading,
                    f"{API}.STREAM.MSG.DELETE.*",
                    shared.WHO_AM_I,
                ),
            ),
            make_user(
                accounts.AUDIT_USER, (*looking, *(f"{API}.{subject}" for subject in shared.READS_ALL), shared.WHO_AM_I)
            ),
        )

    def _list_stream_rules(self, topology: Topology, stream: VirtualStream) -> Iterator[MappingRule]:
        if stream.consistency.has_origin:
            return
        clusters = [(region, topology.region(region).cluster) for region in stream.regions]
        for subject in stream.subjects:
            spelled = naming.with_placeholders(subject)
            destinations = []
            for region, cluster in clusters:
                if region not in stream.takeover_regions:
                    stored = naming.physical_subject(topology.naming, stream.name, region, spelled)
                    is_for_others = region in stream.takeover_regions.values()
                    destinations.append(Destination(subject=stored, cluster=None if is_for_others else cluster))
            if stream.takeover_regions:
                destinations += _leave_unchanged(topology, stream, spelled)
            elif stream.is_virtual_name_of_order:
                destinations += (
                    Destination(
                        subject=naming.physical_subject(topology.naming, stream.name, naming.NO_REGION, spelled)
                    ),
                )
            yield MappingRule(source=subject, destinations=tuple(destinations))
        if stream.has_namesake:
            return
        for source, destination in READ_RULES:
            destinations = []
            for region, cluster in clusters:
                answering = destination.replace("<read>", self.local_name(stream, Role.READ, region))
                destinations.append(Destination(subject=answering, cluster=cluster))
            yield MappingRule(source=source.replace("<stream>", stream.name), destinations=tuple(destinations))

    def _stored_subject(self, topology: Topology, stream: VirtualStream, region: str, subject: str) -> str:
        if stream.consistency.has_origin:
            return subject
        return self.stored_subject(topology.naming, stream, region, subject)


def _merge_users(new: accounts.User, old: accounts.User, *, is_new: bool) -> accounts.User:
    """Who changes from *old* to *new* while clients publish may do both; whoever only looks, one of the two."""
    if new.name in {accounts.APP_USER, accounts.VSTREAM_USER}:
        return replace(new, publish=tuple(dict.fromkeys((*new.publish, *old.publish))))
    return new if is_new else old


def _with_imported_feed(reading: accounts.Account, clients: str) -> accounts.Account:
    return replace(
        reading,
        exports=(
            *reading.exports,
            accounts.Export(kind=accounts.ShareKind.STREAM, subject=shared.FLOW, accounts=(clients,)),
        ),
        imports=(
            *reading.imports,
            service_import(clients, f"{_FORMER_API}.{_CREATE}", f"{SOURCE_API_PREFIX}.{FORMER_ACCOUNT}.{_CREATE}"),
            accounts.Import(
                kind=accounts.ShareKind.STREAM,
                account=clients,
                subject=f"{DELIVER_PREFIX}.{FORMER_ACCOUNT}.{reading.name}.>",
            ),
        ),
    )


def _leave_unchanged(topology: Topology, stream: VirtualStream, spelled: str) -> Iterator[Destination]:
    """
    What clusters without the stream do with a publish while one of its regions is drained: the same as always.

    Servers refuse the same destination for two clusters. So the one that takes a drained region's publishes has no cluster, and
    serves all that are not listed.
    """
    clusters = [region.cluster for region in topology.regions if region.name not in stream.regions]
    if topology.stretch is not None:
        clusters.append(topology.stretch.cluster)
    for cluster in clusters:
        yield Destination(subject=spelled, cluster=cluster)
