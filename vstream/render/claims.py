"""
The accounts of a topology as claims, for operator mode: what the routing profile says, once more.

Two things differ from configuration files. Exports of one account may not overlap (jwt/v2 refuses that), so the whole
API, which vstream manages a hidden account by, is exported verb by verb. And who may import is not a list: each import
carries a token that the exporting account has signed.

What a user may do stands with the key that signs users of its role, in the account: credentials stay as permissions change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vstream.subjects import algebra
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.syntax.document import Json
from vstream.topology.accounts import SYSTEM_USER, Account, Export, Import, ShareKind, User
from vstream.topology.model import AccountLimits, Topology
from vstream.topology.naming import API, DIGEST_PREFIX
from vstream.topology.profiles.shared import ANSWERS, GET_THRESHOLD, GETS, MANAGED, PULL_THRESHOLD, PULLS
from vstream.topology.signing import OPERATOR, SIGNER, SYSTEM_ACCOUNT, Signer, account_key, role_key
from vstream.topology.units import parse_duration

EARLIEST = 1
"""When rendered tokens were issued: before all that are pushed, so that a server which starts again keeps what it has."""
WITH_TOKEN = "whoever has a token"
"""Who may import what is exported."""
_NO_LIMIT = -1
_EVERYTHING = {"subs": _NO_LIMIT, "data": _NO_LIMIT, "payload": _NO_LIMIT}
_ACCOUNT_LIMITS: dict[str, Json] = {
    **_EVERYTHING,
    "imports": _NO_LIMIT,
    "exports": _NO_LIMIT,
    "wildcards": True,
    "disallow_bearer": True,
    "conn": _NO_LIMIT,
    "leaf": _NO_LIMIT,
}
_JETSTREAM: dict[str, Json] = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), _NO_LIMIT)
_WHOLE_API = f"{API}.>"
_MANAGED: dict[str, str | None] = {**dict.fromkeys(MANAGED), PULLS: PULL_THRESHOLD, GETS: GET_THRESHOLD}
"""What vstream asks of a hidden account, and how long answers may take where there are several."""
_TOKEN_FIELDS = ("iat", "jti", "iss")
"""What of a token's claims says when it was signed, and by whom."""


def split_api_by_verb(accounts: Sequence[Account]) -> tuple[Account, ...]:
    """*accounts* with the whole API exported and imported verb by verb."""
    split = []
    for account in accounts:
        split.append(replace(account, exports=tuple(_split_exports(account)), imports=tuple(_split_imports(account))))
    return tuple(split)


def _split_exports(account: Account) -> Iterator[Export]:
    whole = next((candidate for candidate in account.exports if candidate.subject == _WHOLE_API), None)
    if whole is None:
        yield from account.exports
        return
    exported = {export.subject for export in account.exports}
    for export in account.exports:
        if export is not whole and not _is_managed(export.subject):
            managers = whole.accounts if export.subject in _MANAGED else ()
            yield replace(export, accounts=tuple(dict.fromkeys((*export.accounts, *managers))))
    for subject, threshold in _MANAGED.items():
        if subject not in exported:
            yield replace(whole, subject=subject, threshold=threshold)


def _is_managed(subject: str) -> bool:
    """Whether *subject* is a part of one that vstream asks for: exported for itself it would overlap."""
    return subject not in _MANAGED and any(algebra.is_subset(subject, managed) for managed in _MANAGED)


def _split_imports(account: Account) -> Iterator[Import]:
    for entry in account.imports:
        if entry.subject != _WHOLE_API or entry.to is None:
            yield entry
            continue
        for subject in _MANAGED:
            yield replace(entry, subject=subject, to=entry.to.removesuffix(">") + subject.removeprefix(f"{API}."))


def operator_view(
    topology: Topology, profile: dict[str, Any], mappings: Sequence[MappingRule], signer: Signer
) -> dict[str, Any]:
    """What the tokens of *topology* are rendered from; *mappings* are those of the accounts of clients."""
    accounts: Sequence[Account] = profile["accounts"]
    purposes = {SYSTEM_ACCOUNT: "for moving leaders", **{entry.name: entry.purpose for entry in accounts}}
    all_claims = [system_claims(signer)]
    for account in split_api_by_verb(accounts):
        rules = mappings if account.name in profile["mapped"] else ()
        all_claims.append(account_claims(account, rules, profile["denied"], signer, topology.limits))
    preloaded = []
    for claims in all_claims:
        preloaded.append(
            {
                "name": claims["name"],
                "purpose": purposes[str(claims["name"])],
                "key": claims["sub"],
                "token": signer.sign(claims, SIGNER),
            }
        )
    return {
        "topology": topology,
        "operator": signer.sign(operator_claims(topology.name, signer), OPERATOR),
        "system": signer.public_key(account_key(SYSTEM_ACCOUNT)),
        "preloaded": preloaded,
    }


def account_claims(
    account: Account, mappings: Sequence[MappingRule], denied: Sequence[str], signer: Signer, limits: AccountLimits
) -> dict[str, Json]:
    """The claims of one of the accounts `split_api_by_verb`; *mappings* are its own, *denied* what no user without a role publishes."""
    nats: dict[str, Json] = {
        "imports": [_make_import(entry, account.name, signer) for entry in account.imports],
        "exports": [_make_export(entry) for entry in account.exports],
        "limits": {
            **_ACCOUNT_LIMITS,
            **(_without_nulls(conn=limits.connections, subs=limits.subscriptions) if account.users else {}),
            **({**_JETSTREAM, **_without_nulls(consumer=limits.consumers)} if account.has_jetstream else {}),
        },
        **_make_signing_keys(account.users, denied, signer),
        **({"mappings": {entry.source: _list_destinations(entry) for entry in mappings}} if mappings else {}),
        "type": "account",
        "version": 2,
    }
    return {"iat": EARLIEST, "name": account.name, "sub": signer.public_key(account_key(account.name)), "nats": nats}


def _without_nulls(**values: int | None) -> dict[str, Json]:
    return {key: value for key, value in values.items() if value is not None}


def system_claims(signer: Signer) -> dict[str, Json]:
    """The claims of the system account, whose only user may do everything there."""
    nats: dict[str, Json] = {
        "limits": dict(_ACCOUNT_LIMITS),
        "signing_keys": [_make_scope(SYSTEM_USER, "vstream, and moving leaders", {}, signer)],
        "type": "account",
        "version": 2,
    }
    return {
        "iat": EARLIEST,
        "name": SYSTEM_ACCOUNT,
        "sub": signer.public_key(account_key(SYSTEM_ACCOUNT)),
        "nats": nats,
    }


def operator_claims(name: str, signer: Signer) -> dict[str, Json]:
    """The claims of the operator, which servers have in their configuration. It signs accounts with another key."""
    nats: dict[str, Json] = {
        "signing_keys": [signer.public_key(SIGNER)],
        "system_account": signer.public_key(account_key(SYSTEM_ACCOUNT)),
        "strict_signing_key_usage": True,
        "type": "operator",
        "version": 2,
    }
    return {"iat": EARLIEST, "name": name, "sub": signer.public_key(OPERATOR), "nats": nats}


def user_claims(user: str, account: str, key: str, signer: Signer) -> dict[str, Json]:
    """The claims of a user with the public *key*, without its permissions."""
    nats: dict[str, Json] = {"issuer_account": signer.public_key(account_key(account)), "type": "user", "version": 2}
    return {"iat": EARLIEST, "name": user, "sub": key, "nats": nats}


def _make_signing_keys(users: Sequence[User], denied: Sequence[str], signer: Signer) -> dict[str, Json]:
    if not users:
        return {}
    scopes: list[Json] = []
    for user in users:
        scopes.append(
            _make_scope(
                user.name,
                user.purpose,
                {
                    "pub": {"allow": list(user.publish), **({"deny": list(user.denied)} if user.denied else {})},
                    "sub": {"allow": list(user.subscribe), **({"deny": list(user.unheard)} if user.unheard else {})},
                },
                signer,
            )
        )
    by_default: dict[str, Json] = {"pub": {"deny": [*denied]} if denied else {}, "sub": {"deny": [ANSWERS]}}
    return {"signing_keys": scopes, "default_permissions": by_default}


def _make_scope(user: str, purpose: str, permissions: dict[str, Json], signer: Signer) -> dict[str, Json]:
    return {
        "kind": "user_scope",
        "key": signer.public_key(role_key(user)),
        "role": user,
        "template": {"pub": {}, "sub": {}, **permissions, **_EVERYTHING},
        "description": purpose,
    }


def _make_export(export: Export) -> dict[str, Json]:
    claim: dict[str, Json] = {"subject": export.subject, "type": export.kind.value, "token_req": True}
    if export.threshold is not None:
        claim |= {"response_type": "Stream", "response_threshold": parse_duration(export.threshold)}
    return claim


def _make_import(entry: Import, importer: str, signer: Signer) -> dict[str, Json]:
    activation: dict[str, Json] = {
        "iat": EARLIEST,
        "sub": signer.public_key(account_key(importer)),
        "nats": {"subject": entry.subject, "kind": entry.kind.value, "type": "activation", "version": 2},
    }
    return {
        "subject": entry.subject,
        "account": signer.public_key(account_key(entry.account)),
        "token": signer.sign(activation, account_key(entry.account)),
        **({"local_subject": entry.to} if entry.to else {}),
        "type": entry.kind.value,
    }


def _list_destinations(mapping: MappingRule) -> list[Json]:
    destinations: list[Json] = []
    for destination in mapping.destinations:
        destinations.append(
            {
                "subject": destination.subject,
                "weight": destination.weight,
                **({"cluster": destination.cluster} if destination.cluster else {}),
            }
        )
    return destinations


def parse_accounts(tokens: Sequence[dict[str, Any]]) -> tuple[Account, ...]:
    """The accounts in these claims, without the system account and without users."""
    names = {str(token["sub"]): str(token["name"]) for token in tokens}
    accounts = []
    for token in tokens:
        if token["name"] != SYSTEM_ACCOUNT:
            accounts.append(
                Account(
                    name=str(token["name"]),
                    purpose="",
                    has_jetstream=bool(token["nats"]["limits"].get("disk_storage")),
                    exports=(
                        *(_parse_export(export) for export in token["nats"].get("exports") or ()),
                        make_digest_export(token),
                    ),
                    imports=tuple(_parse_import(item, names) for item in token["nats"].get("imports") or ()),
                )
            )
    return tuple(accounts)


def parse_mappings(claims: dict[str, Any]) -> tuple[MappingRule, ...]:
    """The mapping rules in an account's claims."""
    mappings = []
    for source, destinations in (claims["nats"].get("mappings") or {}).items():
        mappings.append(MappingRule(source=source, destinations=tuple(map(_parse_destination, destinations))))
    return tuple(mappings)


def _parse_destination(destination: dict[str, Any]) -> Destination:
    return Destination(
        subject=destination["subject"], weight=destination.get("weight") or 100, cluster=destination.get("cluster")
    )


def mappings_of(tokens: Sequence[dict[str, Any]], account: str) -> tuple[MappingRule, ...]:
    """The mapping rules of *account*."""
    return next((parse_mappings(token) for token in tokens if token["name"] == account), ())


def make_digest_export(claims: dict[str, Any]) -> Export:
    """An export that represents everything in *claims* and who signed them: no server has it."""
    contents = {key: value for key, value in claims.items() if key not in _TOKEN_FIELDS}
    digest = hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]
    return Export(
        kind=ShareKind.STREAM, subject=f"{DIGEST_PREFIX}.{claims.get('name')}.{digest}.{claims.get('iss')}", accounts=()
    )


def with_loaded_exports(claims: dict[str, Any], loaded: dict[str, Any]) -> dict[str, Any]:
    """*claims* with what is *loaded* of them besides: exports that go while somebody may still import them."""
    subjects = {(export["type"], export["subject"]) for export in claims["nats"].get("exports") or ()}
    going = [
        export for export in loaded["nats"].get("exports") or () if (export["type"], export["subject"]) not in subjects
    ]
    if not going:
        return claims
    return {**claims, "nats": {**claims["nats"], "exports": [*(claims["nats"].get("exports") or ()), *going]}}


def _parse_export(export: dict[str, Any]) -> Export:
    return Export(
        kind=ShareKind(export["type"]),
        subject=export["subject"],
        accounts=(WITH_TOKEN,) if export.get("token_req") else (),
        threshold="" if "response_type" in export else None,
    )


def _parse_import(entry: dict[str, Any], names: dict[str, str]) -> Import:
    return Import(
        kind=ShareKind(entry["type"]),
        account=names.get(entry["account"], entry["account"]),
        subject=entry["subject"],
        to=entry.get("local_subject"),
    )
