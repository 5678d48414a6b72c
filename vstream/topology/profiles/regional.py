"""
The accounts of `routing: regional`: one for each region, with its clients and its streams, and who may log in.

What is read is called like the virtual stream, what is written stands beside it, as in a domain: one rule for each
root sends publishes to the latter. A user belongs to one region, so no rule names a cluster: the text of all accounts
is the same on every server, and a user who connects elsewhere is in the region of the account all the same.

Accounts that source from each other need each other's flow control, on the same subject. Two that both import it as a
service are a cycle, which servers refuse (server/accounts.go, checkServiceImportsForCycles). So of each two the first
imports both ways: as a service what it answers, as a stream what it is answered.
"""

from __future__ import annotations

from collections.abc import Iterator

from vstream.topology.accounts import APP_USER, VSTREAM_USER, Account, Export, Import, ShareKind, User, regional_user
from vstream.topology.bundle import SYSTEM_PASSWORD_PATH, passwords_path
from vstream.topology.model import Role, Routing, Topology, VirtualStream
from vstream.topology.naming import (
    ACCOUNT_API_PREFIX,
    ADVISORIES,
    API,
    DELIVER_PREFIX,
    PUBLISH_PREFIX,
    api_prefix,
    region_account,
    stretch_account,
)
from vstream.topology.profiles import shared
from vstream.topology.profiles.profile import ProfileManual, stretch_account_of, stretch_accounts
from vstream.topology.profiles.shared import WriteBesideReadProfile, write_stream_api_subjects
from vstream.topology.stream_config import SOURCE_API_PREFIX

_CREATE = f"{API}.CONSUMER.CREATE.>"


class RegionalProfile(WriteBesideReadProfile):
    """See the module."""

    routing = Routing.REGIONAL
    publish_us = 9.0
    has_region_accounts = True
    since = (2, 11)
    operator_since = (2, 12)
    # The API of any account by its name. That of their own clients reach as everybody does.
    denied = (f"{ACCOUNT_API_PREFIX}.>", f"{SOURCE_API_PREFIX}.>")
    passwords_path = SYSTEM_PASSWORD_PATH
    starter = """\
routing: regional           # an account for each region, docs/routing.md; servers include accounts.cfg and passwords-west.cfg
roots: [v.>]                # everything below belongs to virtual streams: one mapping rule for all of them
"""
    summary = "an account per region, for those who can give each region users of its own; every model, at little cost"
    manual = ProfileManual(
        accounts="`APP_west` for clients and streams of the west, `S_stretch`",
        streams="`APP_west/foo-write`, `APP_west/foo`",
        mapping_rules="one per root or subject of `virtual` and `ordered` streams",
        creating_consumers="**yes**",
        mirrored_consumers="**in the client's region**, on its copy",
        changing_streams="not as `app`, but for purging the region's copy of a bucket",
        core_subscribers="of `virtual` and `ordered` streams",
        users="**per region**: `app-west`, `vstream-west`, …",
        files="`accounts.cfg`, `passwords-west.cfg` per region, `system-password.cfg`, the same on every server",
        servers="2.11 and newer",
        runbooks="no",
    )

    def account_of(self, stream: VirtualStream, role: Role, place: str) -> str:
        """The region's account, or that of the stretch cluster."""
        return stretch_account_of(stream, role, place) or region_account(place)

    def stream_accounts(self, topology: Topology) -> tuple[str, ...]:
        """One for each region, and that of the stretch cluster."""
        return (*(region_account(region.name) for region in topology.regions), *stretch_accounts(topology))

    def client_account(self, topology: Topology, region: str | None) -> str:
        """That of the region, where one is meant."""
        return super().client_account(topology, region) if region is None else region_account(region)

    def account_of_reads(self, region: str) -> str:
        """See Profile."""
        return region_account(region)

    def user_name(self, user: str, region: str) -> str:
        """Servers refuse one name in two accounts."""
        return regional_user(user, region)

    def accounts(self, topology: Topology) -> tuple[Account, ...]:
        """The accounts of all regions, then that of the stretch cluster, which nobody logs in to."""
        return _make_accounts(topology)

    def inner_passwords(self, topology: Topology) -> dict[str, str]:
        """One file for each region."""
        return {region_account(region.name): passwords_path(region.name) for region in topology.regions}


def _make_accounts(topology: Topology) -> tuple[Account, ...]:
    """The accounts of all regions, then that of the stretch cluster, which nobody logs in to."""
    regions = [region.name for region in topology.regions]
    stretch = topology.stretch
    everybody = (*map(region_account, regions), *((stretch_account(stretch.cluster),) if stretch else ()))
    managers = tuple(map(region_account, regions))
    accounts = []
    for region in regions:
        accounts.append(
            Account(
                name=region_account(region),
                purpose=f"clients and streams of {region}",
                has_jetstream=True,
                users=_make_users(topology, region),
                exports=_make_exports(topology, region_account(region), everybody, managers),
                imports=(
                    *_list_sourcing_imports(region_account(region), everybody),
                    *_list_origins_elsewhere(topology, region),
                    *(shared.service_import(account, f"{API}.>", f"{api_prefix(account)}.>") for account in everybody),
                ),
            )
        )
    if stretch:
        name = stretch_account(stretch.cluster)
        accounts.append(
            Account(
                name=name,
                purpose="streams in the stretch cluster",
                has_jetstream=True,
                exports=_make_exports(topology, name, everybody, managers),
                imports=tuple(_list_sourcing_imports(name, everybody)),
            )
        )
    return tuple(accounts)


def _make_exports(
    topology: Topology, name: str, everybody: tuple[str, ...], managers: tuple[str, ...]
) -> tuple[Export, ...]:
    peers = tuple(peer for peer in everybody if peer != name)
    before = everybody[: everybody.index(name)]
    feeding = (
        Export(kind=ShareKind.SERVICE, subject=_CREATE, accounts=peers),
        *(Export(kind=kind, subject=shared.FLOW, accounts=before) for kind in ShareKind if before),
        shared.delivery_export(name, peers),
    )
    origin_exports = []
    for account, stream in _list_origins(topology):
        if account == name and (
            importers := tuple(peer for peer in map(region_account, stream.regions) if peer != name)
        ):
            for subject in stream.subjects:
                origin_exports.append(Export(kind=ShareKind.SERVICE, subject=subject, accounts=importers))
    return (*origin_exports, *(feeding if peers else ()), shared.export_whole_api(importers=managers))


def _list_sourcing_imports(name: str, everybody: tuple[str, ...]) -> Iterator[Import]:
    """What the account *name* needs to source or mirror streams of the others, and for them to source its own."""
    for peer in everybody:
        if peer == name:
            continue
        yield shared.service_import(peer, _CREATE, f"{SOURCE_API_PREFIX}.{peer}.{_CREATE.removeprefix(f'{API}.')}")
        yield Import(kind=ShareKind.STREAM, account=peer, subject=f"{DELIVER_PREFIX}.{peer}.{name}.>")
        if everybody.index(name) < everybody.index(peer):
            yield from (Import(kind=kind, account=peer, subject=shared.FLOW) for kind in ShareKind)


def _list_origins(topology: Topology) -> Iterator[tuple[str, VirtualStream]]:
    """Streams that take all publishes in one place, and the account that is in."""
    for stream in topology.streams:
        for place in stream.origin_settings:
            yield stretch_account_of(stream, Role.ORIGIN, place) or region_account(place), stream


def _list_origins_elsewhere(topology: Topology, region: str) -> Iterator[Import]:
    """What clients of *region* publish to streams that take it elsewhere."""
    for account, stream in _list_origins(topology):
        if account != region_account(region) and region in stream.regions:
            yield from (Import(kind=ShareKind.SERVICE, account=account, subject=subject) for subject in stream.subjects)


def _make_users(topology: Topology, region: str) -> tuple[User, ...]:
    """Those of one region, each with what it needs and nothing more."""
    origin_subjects: list[str] = []
    for stream in topology.streams:
        if stream.consistency.has_origin and region in stream.regions:
            origin_subjects += stream.subjects
    virtual = (
        *(f"{PUBLISH_PREFIX}.{subject}" for subject, regions in shared.mapped_subjects(topology) if region in regions),
        *origin_subjects,
    )
    reading = (*shared.READS, shared.PULLS, shared.GETS)
    # Of the region's own copy, as with domains.
    purged = [
        shared.purge_subject(stream) for stream in topology.streams if stream.is_bucket and region in stream.regions
    ]
    return (
        shared.make_user(
            APP_USER,
            (*virtual, *reading, *purged),
            denied=write_stream_api_subjects(topology, [region]),
            hears=shared.core_subscriptions(topology, region),
            name=regional_user(APP_USER, region),
        ),
        shared.make_user(
            VSTREAM_USER,
            (*virtual, *reading, *shared.management_subjects(f"{ACCOUNT_API_PREFIX}.*"), shared.WHO_AM_I),
            hears=(ADVISORIES,),
            name=regional_user(VSTREAM_USER, region),
        ),
        *shared.make_probe_and_audit_users(topology, PUBLISH_PREFIX, reading, region),
    )
