"""
The accounts of `routing: accounts`: who exports what to whom, and what users may do.

Clients are in one account, without JetStream. Three rules send the JetStream API, the
acknowledgements and the flow control of the clients of a region to that region's hidden read
account, one rule for each root sends their publishes to its hidden write account. In those accounts
streams are called like the virtual stream, so that what requests say in their bodies is right.

Imports of one account never overlap: of two that match one request both answer, and pulled
messages get lost. Nothing that changes a stream is shared with clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vstream.topology import naming
from vstream.topology.accounts import APP_USER, VSTREAM_USER, Account, Export, Import, ShareKind, User
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.profiles import shared
from vstream.topology.profiles.profile import stretch_account_of, stretch_accounts
from vstream.topology.stream_config import SOURCE_API_PREFIX

_CREATE = f"{naming.API}.CONSUMER.CREATE.>"


def account_of(stream: VirtualStream, role: Role, place: str) -> str:
    """The hidden account that a physical stream lives in."""
    if (stretch := stretch_account_of(stream, role, place)) is not None:
        return stretch
    return naming.account_of_writes(place) if role in {Role.WRITE, Role.CATALOG} else naming.account_of_reads(place)


def stream_accounts(topology: Topology) -> tuple[str, ...]:
    """Those for what is written, those for what is read, that of the stretch cluster, and what the topology moves away from."""
    regions = [region.name for region in topology.regions]
    former = (naming.FORMER_ACCOUNT,) if topology.moves_from else ()
    return (
        *map(naming.account_of_writes, regions),
        *map(naming.account_of_reads, regions),
        *stretch_accounts(topology),
        *former,
    )


def accounts(topology: Topology) -> tuple[Account, ...]:
    """All accounts but the system account: that of clients, then the hidden ones, region by region."""
    regions = [region.name for region in topology.regions]
    hidden = [
        *(_make_write_account(topology, region) for region in regions),
        *(_make_read_account(topology, region) for region in regions),
        *([_make_stretch_account(topology, topology.stretch.cluster)] if topology.stretch else []),
    ]
    return (_make_client_account(topology, [account.name for account in hidden]), *hidden)


def _make_client_account(topology: Topology, hidden: list[str]) -> Account:
    imports: list[Import] = []
    for region in topology.regions:
        imports += _list_region_imports(topology, region.name, hidden)
    for account, stream in _list_origins(topology):
        imports += [Import(kind=ShareKind.SERVICE, account=account, subject=subject) for subject in stream.subjects]
    imports += [
        shared.service_import(account, f"{naming.API}.>", f"{naming.api_prefix(account)}.>") for account in hidden
    ]
    return Account(
        name=naming.common_client_account(topology),
        purpose="clients: they see virtual streams only",
        has_jetstream=False,
        users=make_users(topology),
        imports=tuple(imports),
    )


def _list_region_imports(topology: Topology, region: str, hidden: list[str]) -> Iterator[Import]:
    """What the account of clients takes from the hidden accounts for clients in *region*."""
    at, written, read = (
        f"{naming.REGION_PREFIX}.{region}",
        naming.account_of_writes(region),
        naming.account_of_reads(region),
    )
    for subject in (*shared.READS, shared.PULLS, shared.GETS):
        yield shared.service_import(written if subject == shared.NAMES else read, subject, f"{at}.{subject}")
    for account in hidden:
        for subject in purge_subjects(topology, account, region):
            yield shared.service_import(account, subject, f"{at}.{subject}")
    for subject in _list_mapped_subjects(topology, region):
        yield shared.service_import(written, subject, f"{at}.{subject}")
    for subject in core_subscriber_subjects(topology, region):
        yield Import(kind=ShareKind.STREAM, account=written, subject=f"{naming.REPUBLISH_PREFIX}.{subject}", to=subject)
    yield Import(kind=ShareKind.STREAM, account=read, subject=shared.INBOX)


def _list_mapped_subjects(topology: Topology, region: str) -> Iterator[str]:
    """The subjects that clients in *region* publish on, and that are mapped."""
    return (subject for subject, regions in shared.mapped_subjects(topology) if region in regions)


def _list_export_services(subjects: Iterable[str], importer: str) -> Iterator[Export]:
    return (Export(kind=ShareKind.SERVICE, subject=subject, accounts=(importer,)) for subject in subjects)


def _make_write_account(topology: Topology, region: str) -> Account:
    name, clients = naming.account_of_writes(region), naming.common_client_account(topology)
    heard = [f"{naming.REPUBLISH_PREFIX}.{subject}" for subject in core_subscriber_subjects(topology, region)]
    readers = (*(naming.account_of_reads(item.name) for item in topology.regions), *stretch_accounts(topology))
    return Account(
        name=name,
        purpose=f"what is published in {region}",
        has_jetstream=True,
        exports=(
            *_list_export_services(_list_mapped_subjects(topology, region), clients),
            *(Export(kind=ShareKind.STREAM, subject=subject, accounts=(clients,)) for subject in heard),
            *_list_export_services([shared.NAMES], clients),
            *purge_exports(topology, name),
            *_list_source_exports(name, readers),
            shared.export_whole_api(importers=(clients,)),
        ),
    )


def _make_read_account(topology: Topology, region: str) -> Account:
    name, clients = naming.account_of_reads(region), naming.common_client_account(topology)
    homed = [stream for account, stream in _list_origins(topology) if account == name]
    elsewhere = [naming.account_of_reads(peer.name) for peer in topology.regions if peer.name != region]
    importers = tuple(elsewhere) if homed else ()
    fed = {_CREATE: (clients, *importers), shared.FLOW: (clients, *importers)}
    feeders = (*(naming.account_of_writes(peer.name) for peer in topology.regions), *stretch_accounts(topology))
    imports = [entry for account in feeders for entry in _list_source_imports(account, name)]
    for account, stream in _list_origins(topology):
        if account.startswith(naming.account_of_reads("")) and account != name and region in stream.regions:
            # Flow control for this stream alone: two accounts that import all of it from each other are a cycle.
            flow = f"$JS.FC.{stream.name}.>"
            imports += [entry for entry in _list_source_imports(account, name, flow) if entry not in imports]
    reads = [subject for subject in shared.READS if subject != shared.NAMES]
    return Account(
        name=name,
        purpose=f"what is read in {region}",
        has_jetstream=True,
        exports=(
            *(Export(kind=ShareKind.SERVICE, subject=verb, accounts=fed.get(verb, (clients,))) for verb in reads),
            *purge_exports(topology, name),
            _make_service_export(shared.PULLS, shared.PULL_THRESHOLD, clients),
            _make_service_export(shared.GETS, shared.GET_THRESHOLD, clients),
            Export(kind=ShareKind.STREAM, subject=shared.INBOX, accounts=(clients,)),
            *_list_export_services((subject for stream in homed for subject in stream.subjects), clients),
            *([shared.delivery_export(name, importers)] if importers else []),
            shared.export_whole_api(importers=(clients,)),
        ),
        imports=tuple(imports),
    )


def _make_stretch_account(topology: Topology, cluster: str) -> Account:
    name, clients = naming.stretch_account(cluster), naming.common_client_account(topology)
    regions = [region.name for region in topology.regions]
    origins = [stream for account, stream in _list_origins(topology) if account == name]
    return Account(
        name=name,
        purpose="streams in the stretch cluster",
        has_jetstream=True,
        exports=(
            *_list_export_services((subject for stream in origins for subject in stream.subjects), clients),
            *purge_exports(topology, name),
            *_list_source_exports(name, tuple(map(naming.account_of_reads, regions))),
            shared.export_whole_api(importers=(clients,)),
        ),
        imports=tuple(
            entry for region in regions for entry in _list_source_imports(naming.account_of_writes(region), name)
        ),
    )


def core_subscriber_subjects(topology: Topology, region: str) -> tuple[str, ...]:
    """
    What subscribers without JetStream hear from the write account of *region*, whose streams publish it again there.

    A publish that was imported as a service is not handed on to those who import it as a stream on the same server
    (server/client.go, processMsgResults). Publishes to streams with one origin are not mapped: subscribers in the
    account of clients hear them as they are.
    """
    subjects: list[str] = []
    for stream in topology.streams:
        if stream.core_subscribers and region in stream.regions and not stream.consistency.has_origin:
            subjects += stream.subjects
    return tuple(subjects)


def purge_subjects(topology: Topology, account: str, region: str) -> Iterator[str]:
    """
    What clients in *region* have purged in *account*.

    The one exception to disjoint imports: each account that holds a part of the bucket purges its own, and the client
    takes the first answer. What does not hear of it keeps what nobody reads any more.
    """
    for stream in topology.streams:
        parts = [(role, place) for role, places in stream.settings_by_role.items() for place in places]
        holders = {account_of(stream, role, place) for role, place in parts}
        if stream.is_bucket and account in holders and region in stream.regions:
            yield shared.purge_subject(stream)


def purge_exports(topology: Topology, account: str) -> tuple[Export, ...]:
    """The exports behind `purge_subjects`."""
    subjects = (subject for region in topology.regions for subject in purge_subjects(topology, account, region.name))
    to = (naming.common_client_account(topology),)
    return tuple(Export(kind=ShareKind.SERVICE, subject=subject, accounts=to) for subject in dict.fromkeys(subjects))


def _list_origins(topology: Topology) -> Iterator[tuple[str, VirtualStream]]:
    """Streams that take all publishes in one place, and the account that is in."""
    for stream in topology.streams:
        for place in stream.origin_settings:
            yield stretch_account_of(stream, Role.ORIGIN, place) or naming.account_of_reads(place), stream


def _list_source_exports(name: str, importers: tuple[str, ...]) -> Iterator[Export]:
    """What *importers* need to source or mirror streams of the account *name*."""
    yield Export(kind=ShareKind.SERVICE, subject=_CREATE, accounts=importers)
    yield Export(kind=ShareKind.SERVICE, subject=shared.FLOW, accounts=importers)
    yield shared.delivery_export(name, importers)


def _list_source_imports(account: str, importer: str, flow: str = shared.FLOW) -> Iterator[Import]:
    """What *importer* needs to source or mirror streams of *account*."""
    yield shared.service_import(
        account, _CREATE, f"{SOURCE_API_PREFIX}.{account}.{_CREATE.removeprefix(f'{naming.API}.')}"
    )
    yield Import(kind=ShareKind.SERVICE, account=account, subject=flow)
    yield Import(kind=ShareKind.STREAM, account=account, subject=f"{naming.DELIVER_PREFIX}.{account}.{importer}.>")


def _make_service_export(subject: str, threshold: str, importer: str) -> Export:
    return Export(kind=ShareKind.SERVICE, subject=subject, accounts=(importer,), threshold=threshold)


def make_users(topology: Topology) -> tuple[User, ...]:
    """Those that log in to the account of clients, each with what it needs and nothing more."""
    at = f"{naming.REGION_PREFIX}.*"
    virtual = (
        *(f"{at}.{subject}" for subject, _ in shared.mapped_subjects(topology)),
        *(subject for stream in topology.streams if stream.consistency.has_origin for subject in stream.subjects),
    )
    reading = tuple(f"{at}.{subject}" for subject in (*shared.READS, shared.PULLS, shared.GETS))
    purged = tuple(f"{at}.{shared.purge_subject(stream)}" for stream in topology.streams if stream.is_bucket)
    return (
        shared.make_user(APP_USER, (*virtual, *reading, *purged), hears=shared.core_subscriptions(topology)),
        shared.make_user(
            VSTREAM_USER,
            (*virtual, *reading, *shared.management_subjects(f"{naming.ACCOUNT_API_PREFIX}.*"), shared.WHO_AM_I),
        ),
        *shared.make_probe_and_audit_users(topology, at, reading),
    )
