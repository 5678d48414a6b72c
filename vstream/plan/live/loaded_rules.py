"""What one server has loaded of mapping rules and accounts, spelled as a plan does."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vstream.errors import ServerError
from vstream.jetstream import monitoring
from vstream.plan.rules import Entries, account_entries, spell
from vstream.render import jwt
from vstream.render.claims import WITH_TOKEN, mark_of
from vstream.topology import naming, physical
from vstream.topology.accounts import Account, Export, Import, ShareKind
from vstream.topology.naming import DIGEST_PREFIX, PHYSICAL_PREFIX
from vstream.topology.profiles import profile_of
from vstream.topology.stream_config import HIDDEN_PREFIXES, REGION_ACCOUNT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.topology.model import Topology

PUBLIC_KEY = re.compile(r"A[A-Z2-7]{55}")
"""How accounts are called in operator mode."""
_STREAMED = "Streamed"
"""How servers call services that may answer more than once."""
_OF_DOMAIN = re.compile(r"\$JS\.[^.]+\.API\.")


def hidden_accounts(topology: Topology) -> tuple[str, ...]:
    """
    The accounts whose text is the topology's, but for that of clients where streams are in others.

    None where all of them are somebody else's.
    """
    if not topology.has_accounts:
        return ()
    if profile_of(topology).has_domains:
        return (physical.client_account(topology),)
    own = (physical.client_account(topology),) if profile_of(topology).has_physical_names else ()
    found = (account for account in physical.accounts_of(topology) if account not in {None, naming.FORMER_ACCOUNT})
    return (*own, *(account for account in found if account is not None))


def is_reachable(account: str, loaded: Mapping[str, tuple[str, ...]] | None, asking: str) -> bool:
    """Whether a server that has *loaded* this hands requests of *asking* on to *account*; it may if that is unknown."""
    if not account.startswith(HIDDEN_PREFIXES):
        return True  # a domain, where there is nothing to hand on
    api = f"{naming.api_prefix(account)}."
    if account == naming.FORMER_ACCOUNT:
        return loaded is not None and f"{api}>" in loaded  # a rule of the account itself
    return loaded is None or any(key.startswith(f"import {asking} {api}") for key in loaded)


def leads_elsewhere(loaded: Mapping[str, tuple[str, ...]] | None) -> bool:
    """Whether a server that has *loaded* this leads the JetStream API of the account of clients to hidden accounts."""
    return loaded is not None and f"{naming.API}.>" in loaded


def leaving_accounts(topology: Topology, loaded: Mapping[str, tuple[str, ...]] | None, asking: str) -> tuple[str, ...]:
    """Accounts that a server which has *loaded* this hands requests of *asking* on to, and that *topology* has no more."""
    before = f"import {asking} {naming.ACCOUNT_API_PREFIX}."
    found = {key.removeprefix(before).partition(".")[0] for key in loaded or () if key.startswith(before)}
    former = {naming.FORMER_ACCOUNT} - {*physical.accounts_of(topology)}
    if profile_of(topology).has_hidden_accounts or leads_elsewhere(loaded):
        found |= {one for one in former if is_reachable(one, loaded, asking)}
    return tuple(sorted(found - {*hidden_accounts(topology)}))


async def read_loaded_rules(url: str, account: str, hidden: Sequence[str], timeout: float) -> Entries:
    """
    What the server that monitors at *url* has loaded for *account*: its mapping rules.

    Accounts of regions have the same, and are read all. If there are *hidden* accounts, also what all of them export and import; one that the server does not have
    is left out, and so are services that it lists as imported without listening there (`idle`). Raises as
    `monitoring.get`, each request after *timeout* seconds.
    """
    if PUBLIC_KEY.fullmatch(account):
        return await _signed_on(url, account, timeout)
    apart = [one for one in hidden if one != account]
    detail, *others = await asyncio.gather(
        monitoring.account_detail(url, account, timeout), *(_detail_if_any(url, one, timeout) for one in apart)
    )
    ours = frozenset((account, *hidden))
    details = ((account, detail), *zip(apart, others, strict=True)) if hidden else ()
    loaded = [read_account(name, one, ours) for name, one in details if one is not None]
    dead = await unserved_accounts(url, loaded, timeout)
    return {
        **_rules(
            {
                account: detail,
                **{name: one for name, one in zip(apart, others, strict=True) if one and _is_regional(name)},
            }
        ),
        **account_entries([_without_services(one) if one.name in dead else one for one in loaded]),
    }


async def _signed_on(url: str, account: str, timeout: float) -> Entries:
    """
    The same in operator mode, where *account* is a public key: of it and of all accounts that it imports from.

    Those of regions import from each other. They are called as their claims say, and compared by all that these say (`render.claims.mark_of`).
    """
    await monitoring.load_account(url, account, timeout)
    clients = await monitoring.account_detail(url, account, timeout)
    others = sorted({str(one["account"]) for one in clients.get("imports") or ()} - {account})
    found = await asyncio.gather(*(_detail_if_any(url, key, timeout) for key in others))
    details = {account: clients} | {
        key: one for key, one in zip(others, found, strict=True) if one is not None and not one.get("is_system")
    }
    names = {key: str(one.get("name_tag") or key) for key, one in details.items()}
    if not _is_regional(names[account]):
        names[account] = naming.CLIENT_ACCOUNT
    loaded = {key: read_signed_account(names[key], one, names) for key, one in details.items()}
    dead = await unserved_accounts(url, [replace(one, name=key) for key, one in loaded.items()], timeout)
    mapped = {names[key]: one for key, one in details.items() if key == account or _is_regional(names[key])}
    return {
        **_rules(mapped),
        **account_entries([_without_services(one) if key in dead else one for key, one in loaded.items()]),
    }


def _is_regional(account: str) -> bool:
    return account.startswith(REGION_ACCOUNT_PREFIX)


def _rules(details: Mapping[str, Mapping[str, Any]]) -> Entries:
    """The mapping rules of accounts that shall have the same; where they have not, each with its account before it."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for account, detail in details.items():
        for source, to in (detail.get("mappings") or {}).items():
            # In a domain, servers themselves map the API of that name to the plain one.
            if not _OF_DOMAIN.match(source):
                found.setdefault(source, {})[account] = _spelled(source, to)
    return {
        source: next(iter(by_account.values()))
        if len(by_account) == len(details) and len(set(by_account.values())) == 1
        else tuple(f"{account} {one}" for account, some in sorted(by_account.items()) for one in some)
        for source, by_account in found.items()
    }


async def unserved_accounts(url: str, accounts: Sequence[Account], timeout: float) -> frozenset[str]:
    """
    Those of *accounts* whose imported services the server at *url* knows, and does not serve.

    After a reload that made an account (2.11 to 2.15.1): it listens for what that imports from the next reload on
    (server/server.go, configureAccounts: not while reloading, and not for accounts that it did not have).
    """
    services = {
        account.name: one.to or one.subject
        for account in accounts
        for one in account.imports
        if one.kind is ShareKind.SERVICE
    }
    served = await asyncio.gather(*(monitoring.has_subscription(url, *one, timeout) for one in services.items()))
    return frozenset(name for name, is_served in zip(services, served, strict=True) if not is_served)


def _without_services(account: Account) -> Account:
    return replace(account, imports=tuple(one for one in account.imports if one.kind is not ShareKind.SERVICE))


async def _detail_if_any(url: str, account: str, timeout: float) -> Mapping[str, Any] | None:
    try:
        return await monitoring.account_detail(url, account, timeout)
    except ServerError:
        return None


def _spelled(source: str, destinations: list[dict[str, Any]]) -> tuple[str, ...]:
    # Where every destination names a cluster, servers list the source itself for all other clusters.
    identity = {source, _dollar(source), naming.with_placeholders(source)}
    return tuple(
        sorted(
            spell(one.get("cluster"), int(one.get("weight", 0)), str(one.get("subject", "")))
            for one in destinations
            if one.get("cluster") or one.get("subject") not in identity
        )
    )


def _dollar(source: str) -> str:
    """The server's own spelling of a wildcard source as a destination: `foo.$1` for `foo.*`."""
    tokens, number = [], 0
    for token in source.split("."):
        number += token == "*"
        tokens.append(f"${number}" if token == "*" else token)
    return ".".join(tokens)


def read_account(name: str, detail: Mapping[str, Any], ours: frozenset[str]) -> Account:
    """
    The account *name* as a server tells it in `account_detail` of `/accountz?acc=NAME` (server/monitor.go, AccountInfo).

    Of what it imports, that from the accounts *ours*, and all under vstream's own prefix. Of what an account of
    clients exports, the mark and what *ours* may import: the rest is its owner's.
    """
    is_clients = name.startswith(REGION_ACCOUNT_PREFIX) or not name.startswith(HIDDEN_PREFIXES)
    return Account(
        name=name,
        purpose="",
        has_jetstream=bool(detail.get("jetstream_enabled")),
        exports=tuple(
            Export(
                kind=ShareKind(one["type"]),
                subject=one["subject"],
                accounts=tuple(one.get("approved_accounts") or ()),
                threshold="" if one.get("response_type") == _STREAMED else None,
            )
            for one in detail.get("exports") or ()
            if not is_clients
            or one["subject"].startswith(f"{DIGEST_PREFIX}.")
            or not ours.isdisjoint(one.get("approved_accounts") or ())
        ),
        imports=tuple(
            Import(
                kind=ShareKind(one["type"]), account=one["account"], subject=one["subject"], to=one.get("local_subject")
            )
            for one in detail.get("imports") or ()
            if one.get("account") in ours or str(one.get("local_subject")).startswith(f"{PHYSICAL_PREFIX}.")
        ),
    )


def read_signed_account(name: str, detail: Mapping[str, Any], names: Mapping[str, str]) -> Account:
    """The account *name* as a server tells it in operator mode; *names* are those of the public keys of accounts."""
    token = detail.get("jwt")
    return Account(
        name=name,
        purpose="",
        has_jetstream=bool(detail.get("jetstream_enabled")),
        exports=(
            *(
                Export(
                    kind=ShareKind(one["type"]),
                    subject=one["subject"],
                    accounts=(WITH_TOKEN,) if one.get("token_req") else (),
                    threshold="" if one.get("response_type") == _STREAMED else None,
                )
                for one in detail.get("exports") or ()
            ),
            *((mark_of(jwt.decode(token)),) if token else ()),
        ),
        imports=tuple(
            Import(
                kind=ShareKind(one["type"]),
                account=names[one["account"]],
                subject=one["subject"],
                to=one.get("local_subject"),
            )
            for one in detail.get("imports") or ()
            if one.get("account") in names and not one.get("invalid")
        ),
    )
