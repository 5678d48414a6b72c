"""
What a routing profile does not allow a plan to do.

A live topology stays in the profile that it was made with: the streams of another have other names and accounts.
With `accounts` all of them are one text, which servers load at one moment of a plan: what is new must be loaded before
its streams are made, what goes must stay until its streams are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.plan.account_entries import ACCOUNT, USERS
from vstream.plan.plan import Blocked, Note, Update, lists_more, names_clients_subjects
from vstream.topology.model import Role, Routing
from vstream.topology.naming import API, REGION_PREFIX
from vstream.topology.stream_config import (
    ACCOUNT_SEPARATOR,
    FORMER_PREFIX,
    HIDDEN_PREFIXES,
    REGION_KEY,
    ROLE_KEY,
    ROUTING_KEY,
    account_in,
    is_in_domain,
    source_name,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from vstream.plan.plan import Change, FieldChange, RuleChange
    from vstream.topology.accounts import Account
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.stream_config import ObservedStream, StreamConfig

_MAPPED, _ACCOUNTS = Routing.MAPPED.value, Routing.ACCOUNTS.value


def block_profile_change(desired: Sequence[RenderedStream], owned: Mapping[str, ObservedStream]) -> tuple[Blocked, ...]:
    """
    Streams that the topology has in the layout of another `routing`: nothing may touch them.

    But those that it moves away from, which are asked for aside, and those that it would have moved to, while clients
    are not there.
    """
    if not desired:
        return ()
    layouts = [_layout(one.config.name, one.config) for one in desired]
    said, _ = layouts[0]
    here = {*layouts}
    if said == _ACCOUNTS:
        here.add((_MAPPED, True))
    elif said == _MAPPED and _are_clients_here(owned):
        here.add((_ACCOUNTS, False))
    return tuple(
        _of_another(name, one, said) for name, one in sorted(owned.items()) if _layout(name, one.config) not in here
    )


def _layout(name: str, config: StreamConfig) -> tuple[str, bool]:
    """The `routing` that a stream was made with, and whether clients have left it."""
    return config.metadata.get(ROUTING_KEY, _MAPPED), name.startswith(FORMER_PREFIX)


def _are_clients_here(owned: Mapping[str, ObservedStream]) -> bool:
    """Whether the account of clients answers for its own streams, and nothing was published into others beside."""
    is_own = any(_layout(name, one.config) == (_MAPPED, False) for name, one in owned.items())
    return is_own and not any(
        one.messages and one.config.metadata.get(ROLE_KEY) == Role.WRITE.value
        for name, one in owned.items()
        if _layout(name, one.config) == (_ACCOUNTS, False)
    )


def _of_another(name: str, one: ObservedStream, said: str) -> Blocked:
    was, is_former = _layout(name, one.config)
    if is_former:
        reason = "clients have left the layout that it is in"
        hint = "say `routing: accounts` and `moves_from: mapped` again: from there it goes forward only"
    else:
        reason = f"it was made with `routing: {was}`, the topology says `{said}`"
        hint = (
            _MOVE
            if (was, said) == (_MAPPED, _ACCOUNTS)
            else "a live topology cannot move from one to the other: change it back, or begin with new servers"
        )
    return Blocked(name=name, region=one.config.metadata.get(REGION_KEY), reason=reason, hint=hint)


_MOVE = (
    "say `routing: mapped` and `moves_to: accounts` first, apply it, and then `routing: accounts` and "
    "`moves_from: mapped` (docs/changes.md)"
)


def block_stranded_streams(observed: Mapping[str, ObservedStream], topology: str) -> Iterator[Blocked]:
    """Streams of others in the account of clients, whose JetStream API is to lead elsewhere."""
    for name, one in sorted(observed.items()):
        if name.startswith(FORMER_PREFIX) and one.config.owner != topology:
            yield Blocked(
                name=name,
                region=None,
                reason="it is in the account of clients, who reach only virtual streams there with `routing: accounts`",
                hint="move it to another account, or delete it, first",
            )


_STEPS = (
    "keep the region for now, and take it out of the `regions` of each stream; "
    "once that is applied, take it out of the topology"
)


def block_unreachable_accounts(
    gone: Mapping[str, ObservedStream], accounts: Sequence[Account], domains: Collection[str]
) -> Iterator[Blocked]:
    """Of the streams that go, those whose account, or domain, would go before them."""
    kept = {*domains, *(account.name for account in accounts)}
    if accounts and not domains and not any(name.startswith(HIDDEN_PREFIXES) for name in kept):
        return  # a topology that does not move after all: the accounts go last
    for name, one in sorted(gone.items()):
        account, separator, _ = name.rpartition(ACCOUNT_SEPARATOR)
        if separator and account not in kept and not account.startswith(FORMER_PREFIX):
            yield Blocked(
                name=name,
                region=one.config.metadata.get(REGION_KEY),
                reason=f"its account `{account}` would be gone before others have taken everything of it",
                hint=_STEPS,
            )


def block_unreachable_sources(changes: Sequence[Change], domains: Collection[str]) -> Iterator[Blocked]:
    """Streams that would take no more from a domain that the topology does not have, so that nobody can ask it."""
    for change in changes if domains else ():
        for one in change.fields if isinstance(change, Update) else ():
            if one.after is not None or not one.field.startswith("sources.") or not isinstance(one.before, dict):
                continue
            origin = source_name(one.before, change.config.name)
            if is_in_domain(origin) and (account_in(origin) or "") not in domains:
                yield Blocked(
                    name=change.config.name,
                    region=change.region if isinstance(change, Update) else None,
                    reason=f"nobody can ask `{account_in(origin)}` whether everything of `{origin}` has been taken",
                    hint=_STEPS,
                )


def block_mixed_account_changes(rules: Sequence[RuleChange]) -> Iterator[Blocked]:
    """Accounts that are new, where something else goes at the same time."""
    if all(rule.only_adds for rule in rules):
        return
    for rule in rules:
        if rule.kind == ACCOUNT and rule.before is None:
            yield Blocked(
                name=rule.source.partition(" ")[2],
                region=None,
                reason="the account is new, which servers load before streams are made; other things go, which they "
                "load afterwards",
                hint="take two steps: apply what is new first, then what goes",
            )


def block_half_moved_streams(rules: Sequence[RuleChange], gone: Mapping[str, ObservedStream]) -> Iterator[Blocked]:
    """Streams of a layout that clients have not left yet, or that would be cut off by something else that changes."""
    if all(rule.only_removes for rule in rules):
        return
    for name, one in sorted(gone.items()):
        if name.startswith(FORMER_PREFIX):
            yield Blocked(
                name=name,
                region=one.config.metadata.get(REGION_KEY),
                reason="it still hands on what it has, and what servers load changes otherwise too",
                hint="apply `moves_from: mapped` with everything else first, then take that alone out of the topology",
            )


def swaps_subjects(stream: RenderedStream, fields: Sequence[FieldChange]) -> bool:
    """Whether *fields* add subjects to a stream that carries those of clients, and take others out."""
    if not names_clients_subjects(stream.config, stream.role):
        return False
    changed = [one for one in fields if one.field == "subjects"]
    return any(lists_more(one.before, one.after) and lists_more(one.after, one.before) for one in changed)


def note_duplicate_imports(unlike: Sequence[RuleChange], accounts: Sequence[Account]) -> Iterator[Note]:
    """
    What publishers notice of another token for an account whose publishes are imported by hidden ones.

    A server adds the imports of the new token before it drops those of the old one (server/accounts.go,
    updateAccountClaimsWithRefresh), and what is published in between takes both.
    """
    tokens = [{*(rule.before or ())} ^ {*(rule.after or ())} for rule in unlike if rule.source == USERS]
    for account in accounts:
        # Of an account by token, what servers have loaded of it stands twice: as it was, and as it is to be.
        changed = [[one for one in said if one.startswith(f"{account.name}.")] for said in tokens]
        if any(len(one) > 1 for one in changed) and any(
            (one.to or "").startswith(f"{REGION_PREFIX}.") for one in account.imports
        ):
            yield Note(
                name=account.name,
                text="is pushed anew: for a moment on each server, what is published without `Nats-Msg-Id` is stored twice",
            )


_API_RULE = f"{API}.>"
"""What leads clients to the streams of `accounts`, and of no other layout."""
_BESIDE = (
    "notice nothing of this step: they stay in the layout that they are in, and the new one is made and fed beside it"
)
_LED_OVER = (
    "are led over: from the moment in which their server loads the mappings, they publish into the new streams and read "
    "from these, which have the history. Consumers of the old streams stay behind; those under `consumers` begin as their "
    "`deliver_policy` says. A `Nats-Msg-Id` of before is not known there, and a publish while a server reloads may have "
    "no answer. There is no way back"
)
_TAKEN_OUT = (
    "notice that consumers of the old streams go with these, if they still use any, and that a publish while a server "
    "reloads may have no answer"
)
_BACK = "notice nothing of this step: they have not left the layout that stays"


def note_profile_change(
    desired: Sequence[RenderedStream], gone: Mapping[str, ObservedStream], unlike: Sequence[RuleChange]
) -> Iterator[Note]:
    """What clients notice of the step that is planned, where a topology moves to `accounts` (docs/changes.md)."""
    here = {_layout(one.config.name, one.config) for one in desired}
    going = {_layout(name, one.config) for name, one in gone.items()}
    new, old, former = (_ACCOUNTS, False), (_MAPPED, False), (_MAPPED, True)
    text = None
    if former in going:
        text = _TAKEN_OUT
    elif former in here and any(rule.source == _API_RULE for rule in unlike):
        text = _LED_OVER
    elif old in here and new in going:
        text = _BACK
    elif old in here and new in here and unlike:
        text = _BESIDE
    if text is not None:
        yield Note(name="clients", text=text)
