"""
What servers have loaded besides mapping rules, as keyed entries that are compared like rules.

Keys are `import ACCOUNT SUBJECT`, `export ACCOUNT SUBJECT`, `account NAME` and `users`; rules have their
source, in which there is no space. What servers do not tell (users, and how long answers may take) is in a
digest that accounts.cfg carries as an export which nobody uses.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from vstream.render import jwt
from vstream.render.claims import WITH_TOKEN, mark_of
from vstream.topology.accounts import Account, Export, Import, ShareKind
from vstream.topology.naming import DIGEST_PREFIX, PHYSICAL_PREFIX
from vstream.topology.stream_config import HIDDEN_PREFIXES, REGION_ACCOUNT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Entries = dict[str, tuple[str, ...]]

RULE = "mapping"
"""The kind of a key without a space."""
ACCOUNT = "account"
USERS = "users"
_STREAMED = "Streamed"
"""How servers call services that may answer more than once."""


def kind_of(key: str) -> str:
    """What the entry at *key* is: `mapping`, `import`, `export`, `account` or `users`."""
    first, space, _ = key.partition(" ")
    return first if space or key == USERS else RULE


def entries(accounts: Sequence[Account]) -> Entries:
    """*accounts* as keyed entries."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for account in accounts:
        if account.name.startswith(HIDDEN_PREFIXES):
            found[f"{ACCOUNT} {account.name}"].append("jetstream" if account.has_jetstream else "no jetstream")
        for export in account.exports:
            if export.subject.startswith(f"{DIGEST_PREFIX}."):
                found[USERS].append(export.subject.removeprefix(f"{DIGEST_PREFIX}."))
                continue
            key = f"export {account.name} {export.subject}"
            found[key] += [f"{export.kind.value} to {taker}" for taker in export.accounts or ("everybody",)]
            if export.threshold is not None:
                found[key].append("answers more than once")
        for one in account.imports:
            found[f"import {account.name} {one.to or one.subject}"].append(
                f"{one.kind.value} {one.subject} of {one.account}"
            )
    return {key: tuple(sorted(values)) for key, values in found.items()}


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
