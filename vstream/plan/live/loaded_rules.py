"""What one server has loaded of mapping rules and accounts, spelled as a plan does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vstream.errors import ServerError
from vstream.jetstream import monitoring
from vstream.jetstream.answers import convert_malformed_errors
from vstream.plan.rules import Entries, LoadedEntries, list_account_entries, spell
from vstream.render import jwt
from vstream.render.claims import WITH_TOKEN, make_digest_export
from vstream.topology import naming, physical
from vstream.topology.accounts import Account, Export, Import, ShareKind
from vstream.topology.model import Topology
from vstream.topology.naming import DIGEST_PREFIX, PHYSICAL_PREFIX
from vstream.topology.profiles import profile_of
from vstream.topology.signing import PUBLIC_KEY
from vstream.topology.stream_config import HIDDEN_PREFIXES, REGION_ACCOUNT_PREFIX

_STREAMED = "Streamed"
"""How servers call services that may answer more than once."""
_OF_DOMAIN = re.compile(r"\$JS\.[^.]+\.API\.")


def own_accounts(topology: Topology) -> tuple[str, ...]:
    """
    The accounts that *topology* alone writes; that of clients is none of them where streams are in others.

    Empty where there is one account, somebody else's.
    """
    if not topology.has_accounts:
        return ()
    if profile_of(topology).has_domains:
        return (physical.client_account(topology),)
    client_accounts = (physical.client_account(topology),) if profile_of(topology).has_physical_names else ()
    hidden = (account for account in physical.stream_accounts(topology) if account not in {None, naming.FORMER_ACCOUNT})
    return (*client_accounts, *(account for account in hidden if account is not None))


def is_reachable(account: str, loaded: LoadedEntries | None, asking: str) -> bool:
    """Whether a server that has *loaded* this hands requests of *asking* on to *account*; it may if that is unknown."""
    if not account.startswith(HIDDEN_PREFIXES):
        return True  # a domain, where there is nothing to hand on
    api = f"{naming.api_prefix(account)}."
    if account == naming.FORMER_ACCOUNT:
        return loaded is not None and f"{api}>" in loaded  # a rule of the account itself
    return loaded is None or any(key.startswith(f"import {asking} {api}") for key in loaded)


def leads_elsewhere(loaded: LoadedEntries | None) -> bool:
    """Whether a server that has *loaded* this leads the JetStream API of the account of clients to hidden accounts."""
    return loaded is not None and f"{naming.API}.>" in loaded


def find_leaving_accounts(topology: Topology, loaded: LoadedEntries | None, asking: str) -> tuple[str, ...]:
    """Accounts that a server which has *loaded* this hands requests of *asking* on to, and that *topology* has no more."""
    before = f"import {asking} {naming.ACCOUNT_API_PREFIX}."
    leaving = {key.removeprefix(before).partition(".")[0] for key in loaded or () if key.startswith(before)}
    former = {naming.FORMER_ACCOUNT} - {*physical.stream_accounts(topology)}
    if profile_of(topology).has_hidden_accounts or leads_elsewhere(loaded):
        leaving |= {account for account in former if is_reachable(account, loaded, asking)}
    return tuple(sorted(leaving - {*own_accounts(topology)}))


async def read_loaded_rules(url: str, account: str, own_names: Sequence[str], timeout: float) -> Entries:
    """
    What the server that monitors at *url* has loaded for *account*: its mapping rules.

    The accounts of regions have the same rules, and all of them are read; of those in *own_names* also what they export and
    import. An account that the server does not have is left out, and so are services that it lists as imported without
    listening there (`find_unserved_accounts`). Raises as `monitoring.get`, each request after *timeout* seconds.
    """
    with convert_malformed_errors(f"{url}/accountz"):
        if PUBLIC_KEY.fullmatch(account):
            return await _read_signed_rules(url, account, timeout)
        return await _read_rules(url, account, own_names, timeout)


async def _read_rules(url: str, account: str, own_names: Sequence[str], timeout: float) -> Entries:
    names = [name for name in own_names if name != account]
    detail, *own_details = await asyncio.gather(
        monitoring.read_account_detail(url, account, timeout), *(_read_detail(url, name, timeout) for name in names)
    )
    answers = zip(names, own_details, strict=True)
    details = {name: answer for name, answer in answers if answer is not None}
    known_accounts = frozenset((account, *own_names))
    shared = {account: detail, **details} if own_names else {}
    loaded = [read_account(name, account_detail, known_accounts) for name, account_detail in shared.items()]
    # To look for one subscription, a server goes through all that the account has.
    is_as_started = not own_names or not (await monitoring.read_varz(url, timeout)).was_reloaded
    unserved = frozenset[str]() if is_as_started else await find_unserved_accounts(url, loaded, timeout)
    with_rules = {account: detail} | {name: details[name] for name in details if _is_regional(name)}
    served = [_without_services(account) if account.name in unserved else account for account in loaded]
    return {**_list_rules(with_rules), **list_account_entries(served)}


async def _read_signed_rules(url: str, account: str, timeout: float) -> Entries:
    """
    The same in operator mode, where *account* is a public key: of it and of all accounts that it imports from.

    The accounts of regions import from each other. They have the names in their claims, and are compared by everything
    that these say (`render.claims.make_digest_export`).
    """
    await monitoring.look_up_account(url, account, timeout)
    client_detail = await monitoring.read_account_detail(url, account, timeout)
    keys = sorted({str(imported["account"]) for imported in client_detail.get("imports") or ()} - {account})
    imported_details = await asyncio.gather(*(_read_detail(url, key, timeout) for key in keys))
    details = {account: client_detail}
    existing = zip(keys, imported_details, strict=True)
    details |= {key: detail for key, detail in existing if detail is not None and not detail.get("is_system")}
    names = {key: str(detail.get("name_tag") or key) for key, detail in details.items()}
    if not _is_regional(names[account]):
        names[account] = naming.CLIENT_ACCOUNT
    loaded = {key: parse_signed_account(names[key], detail, names) for key, detail in details.items()}
    by_key = [replace(signed, name=key) for key, signed in loaded.items()]
    unserved = await find_unserved_accounts(url, by_key, timeout)
    with_rules = {names[key]: details[key] for key in details if key == account or _is_regional(names[key])}
    served = [_without_services(signed) if key in unserved else signed for key, signed in loaded.items()]
    return {**_list_rules(with_rules), **list_account_entries(served)}


def _is_regional(account: str) -> bool:
    return account.startswith(REGION_ACCOUNT_PREFIX)


def _list_rules(details: Mapping[str, Mapping[str, Any]]) -> Entries:
    """The mapping rules of accounts that should have the same ones; where they differ, each is prefixed with its account."""
    by_source: dict[str, dict[str, tuple[str, ...]]] = {}
    for account, detail in details.items():
        for source, to in (detail.get("mappings") or {}).items():
            # In a domain, servers themselves map the API of that name to the plain one.
            if not _OF_DOMAIN.match(source):
                by_source.setdefault(source, {})[account] = _spell_loaded(source, to)
    rules: Entries = {}
    for source, by_account in by_source.items():
        if len(by_account) == len(details) and len(set(by_account.values())) == 1:
            rules[source] = next(iter(by_account.values()))
        else:
            pairs = [(account, to) for account, destinations in sorted(by_account.items()) for to in destinations]
            rules[source] = tuple(f"{account} {to}" for account, to in pairs)
    return rules


async def find_unserved_accounts(url: str, accounts: Sequence[Account], timeout: float) -> frozenset[str]:
    """
    Those of *accounts* whose imported services the server at *url* knows, and does not serve.

    After a reload that made an account (2.11 to 2.15.1): it listens for what that imports from the next reload on
    (server/server.go, configureAccounts: not while reloading, and not for accounts that it did not have).
    """
    services: dict[str, str] = {}
    for account in accounts:
        for imported in account.imports:
            if imported.kind is ShareKind.SERVICE:
                services[account.name] = imported.to or imported.subject
    served = await asyncio.gather(
        *(monitoring.has_subscription(url, *service, timeout) for service in services.items())
    )
    return frozenset(name for name, is_served in zip(services, served, strict=True) if not is_served)


def _without_services(account: Account) -> Account:
    return replace(
        account, imports=tuple(imported for imported in account.imports if imported.kind is not ShareKind.SERVICE)
    )


async def _read_detail(url: str, account: str, timeout: float) -> Mapping[str, Any] | None:
    try:
        return await monitoring.read_account_detail(url, account, timeout)
    except ServerError:
        return None


def _spell_loaded(source: str, destinations: list[dict[str, Any]]) -> tuple[str, ...]:
    # Where every destination names a cluster, servers list the source itself for all other clusters.
    identity = {source, _spell_dollar(source), naming.with_placeholders(source)}
    spelled = []
    for destination in destinations:
        cluster, subject = destination.get("cluster"), str(destination.get("subject", ""))
        if cluster or subject not in identity:
            spelled.append(spell(cluster, int(destination.get("weight", 0)), subject))
    return tuple(sorted(spelled))


def _spell_dollar(source: str) -> str:
    """The server's own spelling of a wildcard source as a destination: `foo.$1` for `foo.*`."""
    tokens, number = [], 0
    for token in source.split("."):
        number += token == "*"
        tokens.append(f"${number}" if token == "*" else token)
    return ".".join(tokens)


def read_account(name: str, detail: Mapping[str, Any], own_accounts: frozenset[str]) -> Account:
    """
    The account *name* as a server tells it in `account_detail` of `/accountz?acc=NAME` (server/monitor.go, AccountInfo).

    Of its imports, this has those from *own_accounts*, and all under vstream's own prefix. Of the exports of an account
    of clients, it has the mark and what *own_accounts* may import: the rest is its owner's.
    """
    is_clients = name.startswith(REGION_ACCOUNT_PREFIX) or not name.startswith(HIDDEN_PREFIXES)
    exports = []
    for export in detail.get("exports") or ():
        importers = tuple(export.get("approved_accounts") or ())
        is_mark = export["subject"].startswith(f"{DIGEST_PREFIX}.")
        if not is_clients or is_mark or not own_accounts.isdisjoint(importers):
            exports.append(_parse_export(export, importers))
    imports = []
    for imported in detail.get("imports") or ():
        is_own = str(imported.get("local_subject")).startswith(f"{PHYSICAL_PREFIX}.")
        if is_own or imported.get("account") in own_accounts:
            imports.append(_import(imported, imported["account"]))
    return _read_account(name, detail, exports, imports)


def parse_signed_account(name: str, detail: Mapping[str, Any], names: Mapping[str, str]) -> Account:
    """The account *name* as a server tells it in operator mode; *names* are those of the public keys of accounts."""
    exported = detail.get("exports") or ()
    exports = [_parse_export(export, (WITH_TOKEN,) if export.get("token_req") else ()) for export in exported]
    if token := detail.get("jwt"):
        exports.append(make_digest_export(jwt.decode(token)))
    valid = [imported for imported in detail.get("imports") or () if not imported.get("invalid")]
    imports = [_import(imported, names[imported["account"]]) for imported in valid if imported.get("account") in names]
    return _read_account(name, detail, exports, imports)


def _read_account(name: str, detail: Mapping[str, Any], exports: list[Export], imports: list[Import]) -> Account:
    has_jetstream = bool(detail.get("jetstream_enabled"))
    return Account(name=name, purpose="", has_jetstream=has_jetstream, exports=tuple(exports), imports=tuple(imports))


def _parse_export(export: Mapping[str, Any], importers: tuple[str, ...]) -> Export:
    return Export(
        kind=ShareKind(export["type"]),
        subject=export["subject"],
        accounts=importers,
        threshold="" if export.get("response_type") == _STREAMED else None,
    )


def _import(imported: Mapping[str, Any], account: str) -> Import:
    return Import(
        kind=ShareKind(imported["type"]), account=account, subject=imported["subject"], to=imported.get("local_subject")
    )
