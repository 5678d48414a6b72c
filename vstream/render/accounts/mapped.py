"""
The account of `routing: mapped` where vstream writes it, and how its streams and those of `routing: accounts` reach each other.

Servers map what one account asks of another, too: where the JetStream API of the account of clients leads elsewhere, its own is
asked for at `_vs.api.M_clients.…`, by one more rule. Flow control goes as between accounts of regions: an import of it as a service, in
both directions, would be a cycle, so what the account of clients is answered comes as a stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vstream.render.accounts.accounts import ACKS, GETS, PULLS, READS, user
from vstream.render.accounts.accounts import accounts as hidden_and_clients
from vstream.render.accounts.extras import purge_subject
from vstream.render.accounts.shared_subjects import FLOW, LOOKS, READS_ALL, WHO_AM_I, canaries, delivery_export, service
from vstream.subjects.mapping import Destination, Mapping
from vstream.topology import naming, profile_migration
from vstream.topology.accounts import (
    APP_USER,
    AUDIT_USER,
    PROBE_USER,
    VSTREAM_USER,
    Account,
    Export,
    Import,
    ShareKind,
    User,
)
from vstream.topology.naming import (
    ACCOUNT_API_PREFIX,
    API,
    DELIVER_PREFIX,
    FORMER_ACCOUNT,
    PHYSICAL_PREFIX,
    read_account,
)
from vstream.topology.stream_config import SOURCE_API_PREFIX

if TYPE_CHECKING:
    from vstream.topology.model import Topology

_OWN = f"{ACCOUNT_API_PREFIX}.{FORMER_ACCOUNT}"
_CREATE = "CONSUMER.CREATE.>"
OWN_API = Mapping(source=naming.OWN_API, destinations=(Destination(subject=f"{API}.>"),))
"""How the API of the account of clients itself is reached while a topology moves."""


def accounts(topology: Topology) -> tuple[Account, ...]:
    """The account of clients and streams; while the topology moves to `accounts`, fed from it, the accounts of that besides."""
    later = profile_migration.other_layout(topology)
    if later is not None:
        return _joined(later, topology, clients_in=topology)
    return (
        Account(
            name=naming.client_account(topology),
            purpose="clients and streams",
            has_jetstream=True,
            users=_users(topology),
        ),
    )


def accounts_with_former(topology: Topology) -> tuple[Account, ...]:
    """The accounts of `routing: accounts`; while the topology moves there, that of clients has streams that feed the others."""
    former = profile_migration.other_layout(topology)
    return hidden_and_clients(topology) if former is None else _joined(topology, former, clients_in=topology)


def _joined(topology: Topology, former: Topology, *, clients_in: Topology) -> tuple[Account, ...]:
    """
    The accounts of `routing: accounts`, whose read accounts take from that of clients, where *former* is.

    Clients may do what they need in either layout, also in the one that they are not in: servers that load mappings check
    for a moment who may publish what they lead to, and know only what was allowed before (seen on 2.12.8).
    """
    clients, *hidden = hidden_and_clients(topology)
    takers = tuple(read_account(region.name) for region in topology.regions)
    feeding = replace(
        clients,
        purpose="clients and streams",
        has_jetstream=True,
        users=tuple(
            _either(one, other, is_new=clients_in is topology)
            for one, other in zip(clients.users, _users(former), strict=True)
        ),
        exports=(
            *clients.exports,
            Export(kind=ShareKind.SERVICE, subject=f"{_OWN}.{_CREATE}", accounts=takers),
            delivery_export(FORMER_ACCOUNT, takers),
        ),
        imports=(
            *clients.imports,
            *(Import(kind=ShareKind.STREAM, account=taker, subject=FLOW) for taker in takers),
        ),
    )
    return (feeding, *(_fed(one, clients.name) if one.name in takers else one for one in hidden))


def _either(new: User, old: User, *, is_new: bool) -> User:
    """Who changes from *old* to *new* while clients publish may do both; whoever only looks, one of the two."""
    if new.name in {APP_USER, VSTREAM_USER}:
        return replace(new, publish=tuple(dict.fromkeys((*new.publish, *old.publish))))
    return new if is_new else old


def _fed(reading: Account, clients: str) -> Account:
    return replace(
        reading,
        exports=(*reading.exports, Export(kind=ShareKind.STREAM, subject=FLOW, accounts=(clients,))),
        imports=(
            *reading.imports,
            service(clients, f"{_OWN}.{_CREATE}", f"{SOURCE_API_PREFIX}.{FORMER_ACCOUNT}.{_CREATE}"),
            Import(
                kind=ShareKind.STREAM, account=clients, subject=f"{DELIVER_PREFIX}.{FORMER_ACCOUNT}.{reading.name}.>"
            ),
        ),
    )


def _users(topology: Topology) -> tuple[User, ...]:
    """Those that log in to the account of clients and streams, each with what it needs and nothing more."""
    written = tuple(
        naming.stored_subject(topology.naming, stream, region, subject)
        for stream in topology.streams
        for region in stream.regions
        for subject in stream.subjects
    )
    reading = (*READS, PULLS, GETS)
    purged = tuple(purge_subject(stream) for stream in topology.streams if stream.is_bucket)
    # Nothing is between core subscribers and streams that take all publishes in one place.
    heard = tuple(
        subject for stream in topology.streams if stream.consistency.has_origin for subject in stream.subjects
    )
    looking = tuple(f"{API}.{subject}" for subject in LOOKS)
    return (
        user(APP_USER, "applications: publish and read virtual streams", (*written, *reading, *purged), heard),
        user(
            VSTREAM_USER,
            "plan, apply, resync and labs",
            (*written, f"{API}.>", *ACKS, f"{ACCOUNT_API_PREFIX}.>", WHO_AM_I),
        ),
        user(
            PROBE_USER,
            "vstream probe",
            (*canaries(topology, f"{PHYSICAL_PREFIX}.*.*"), *reading, f"{API}.STREAM.MSG.DELETE.*", WHO_AM_I),
        ),
        user(
            AUDIT_USER,
            "vstream audit: reads every stream, changes none",
            (*looking, *(f"{API}.{subject}" for subject in READS_ALL), WHO_AM_I),
        ),
    )
