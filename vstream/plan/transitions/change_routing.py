"""
What a routing profile does not allow a plan to do.

A live topology stays in the profile that it was made with: the streams of another have other names and accounts.
With `accounts` all of them are one text, which servers load at one moment of a plan. So new accounts must be loaded
before their streams are made, and old ones must stay until their streams are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import ACCOUNT, USERS, Blocked, FieldChange, Note, Update
from vstream.plan.stages import lists_client_subjects, lists_more_subjects
from vstream.topology import stream_config
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Role, Routing
from vstream.topology.naming import API, REGION_PREFIX, REPUBLISH_PREFIX
from vstream.topology.profiles import profile_of

_MAPPED = Routing.MAPPED.value
_ACCOUNTS = Routing.ACCOUNTS.value
_MOVE_HINT = (
    "say `routing: mapped` and `moves_to: accounts` first, apply it, and then `routing: accounts` and "
    "`moves_from: mapped` (docs/changes.md)"
)
_STEPS_HINT = (
    "keep the region for now, and take it out of the `regions` of each stream; "
    "once that is applied, take it out of the topology"
)
_MIN_CLUSTER_SERVERS = 2
_API_RULE = f"{API}.>"
"""What leads clients to the streams of `accounts`, and of no other layout."""
_STILL_IN_OLD_LAYOUT = (
    "notice nothing of this step: they stay in the layout that they are in, and the new one is made and fed beside it"
)
_LED_OVER = (
    "move over: once their server has loaded the mappings, they publish into the new streams and read "
    "from them; these have the history. Consumers of the old streams stay behind; those under `consumers` begin as their "
    "`deliver_policy` says. An earlier `Nats-Msg-Id` is not known there, and a publish while a server reloads may get "
    "no answer. There is no way back"
)
_TAKEN_OUT = (
    "lose the consumers of the old streams, if they still use any, and a publish while a server "
    "reloads may get no answer"
)
_NEVER_LEFT = "notice nothing of this step: they have not left the layout that stays"


def block_profile_change(context: DiffContext) -> tuple[Blocked, ...]:
    """
    Block a plan of a topology whose streams exist in the layout of another `routing`: nothing may touch them.

    Two layouts may exist beside the current one: that from which the topology moves away, and that to which it would
    have moved, while no client uses it.
    """
    if not context.desired_streams:
        return ()
    layouts = {_describe_layout(stream.config.name, stream.config) for stream in context.desired_streams}
    first = context.desired_streams[0].config
    routing, _ = _describe_layout(first.name, first)
    if routing == _ACCOUNTS:
        layouts.add((_MAPPED, True))
    elif routing == _MAPPED and _are_clients_in_mapped(context.owned_streams):
        layouts.add((_ACCOUNTS, False))
    owned = sorted(context.owned_streams.items())
    foreign = [(name, stream) for name, stream in owned if _describe_layout(name, stream.config) not in layouts]
    return tuple(_block_other_layout(name, stream, routing) for name, stream in foreign)


def _describe_layout(name: str, config: stream_config.StreamConfig) -> tuple[str, bool]:
    """The `routing` that a stream was made with, and whether clients have left it."""
    routing = config.metadata_value(stream_config.ROUTING_KEY)
    return _MAPPED if routing is None else routing, name.startswith(stream_config.FORMER_PREFIX)


def _are_clients_in_mapped(owned: Mapping[str, stream_config.ObservedStream]) -> bool:
    """Whether the account of clients answers for its own streams, and nothing was published into others beside."""
    has_mapped = any(_describe_layout(name, stream.config) == (_MAPPED, False) for name, stream in owned.items())
    beside = [stream for name, stream in owned.items() if _describe_layout(name, stream.config) == (_ACCOUNTS, False)]
    written = [stream for stream in beside if stream.config.metadata.get(stream_config.ROLE_KEY) == Role.WRITE.value]
    return has_mapped and not any(stream.messages for stream in written)


def _block_other_layout(name: str, stream: stream_config.ObservedStream, routing: str) -> Blocked:
    former_routing, is_former = _describe_layout(name, stream.config)
    if is_former:
        reason = "clients have left the layout that it is in"
        hint = "say `routing: accounts` and `moves_from: mapped` again: from there it goes forward only"
    else:
        reason = f"it was made with `routing: {former_routing}`, the topology says `{routing}`"
        hint = "a live topology cannot move from one to the other: change it back, or begin with new servers"
        if (former_routing, routing) == (_MAPPED, _ACCOUNTS):
            hint = _MOVE_HINT
    return Blocked(name=name, region=stream.config.region, reason=reason, hint=hint)


def block_stranded_streams(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Block streams of others in the account of clients, whose JetStream API is to lead elsewhere."""
    yield from planned
    for name, stream in sorted(context.streams.items()):
        if name.startswith(stream_config.FORMER_PREFIX) and stream.config.owner != context.topology.name:
            yield Blocked(
                name=name,
                region=None,
                reason="it is in the account of clients, who reach only virtual streams there with `routing: accounts`",
                hint="move it to another account, or delete it, first",
            )


def _list_domains(context: DiffContext) -> frozenset[str]:
    """The regions that are JetStream domains."""
    topology = context.topology
    return frozenset(region.name for region in topology.regions if profile_of(topology).has_domains)


def block_unreachable_accounts(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Block streams that go, and whose account or domain would go before them."""
    yield from planned
    domains = _list_domains(context)
    accounts = {account.name for account in context.bundle.accounts}
    if accounts and not domains and not any(name.startswith(stream_config.HIDDEN_PREFIXES) for name in accounts):
        return  # a topology that does not move after all: the accounts go last
    for name, stream in sorted(context.undesired_streams.items()):
        account, separator, _ = name.rpartition(stream_config.ACCOUNT_SEPARATOR)
        if separator and account not in accounts | domains and not account.startswith(stream_config.FORMER_PREFIX):
            yield Blocked(
                name=name,
                region=stream.config.region,
                reason=f"its account `{account}` would be removed before other streams have copied everything from it",
                hint=_STEPS_HINT,
            )


def block_unreachable_sources(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Block streams that would drop a source in a domain that the topology does not have: nobody can ask there."""
    yield from planned
    domains = _list_domains(context)
    if not domains:
        return
    for change in planned:
        if not isinstance(change, Update):
            continue
        for origin in change.dropped_sources:
            if stream_config.is_in_domain(origin) and (stream_config.account_in_name(origin) or "") not in domains:
                yield Blocked.of(
                    change,
                    reason=f"nobody can ask `{stream_config.account_in_name(origin)}` whether everything of `{origin}` has been taken",
                    hint=_STEPS_HINT,
                )


def block_mixed_account_changes(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Block new accounts where something else goes at the same time: servers would load both in one moment."""
    yield from planned
    if all(rule.only_adds for rule in context.rule_changes):
        return
    for rule in context.rule_changes:
        if rule.kind == ACCOUNT and rule.before is None:
            yield Blocked(
                name=rule.source.partition(" ")[2],
                region=None,
                reason="servers load a new account before streams are created, and removals after streams are deleted; "
                "this plan has both",
                hint="take two steps: apply the additions first, then the removals",
            )


def block_half_moved_streams(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Block the deletion of a layout that other changes of what servers load would cut off."""
    yield from planned
    if all(rule.only_removes for rule in context.rule_changes):
        return
    for name, stream in sorted(context.undesired_streams.items()):
        if name.startswith(stream_config.FORMER_PREFIX):
            yield Blocked(
                name=name,
                region=stream.config.region,
                reason="it still passes messages on, and other loaded rules or accounts change, too",
                hint="apply `moves_from: mapped` with everything else first, then take that alone out of the topology",
            )


def swaps_subjects(stream: RenderedStream, fields: Sequence[FieldChange]) -> bool:
    """Whether *fields* add subjects to a stream that carries those of clients, and take others out."""
    if not lists_client_subjects(stream.config, stream.role):
        return False
    changes = [change for change in fields if change.path == "subjects"]
    adds = any(lists_more_subjects(change.before, change.after) for change in changes)
    return adds and any(lists_more_subjects(change.after, change.before) for change in changes)


def note_duplicate_imports(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """
    Note what publishers notice of another token for an account whose publishes are imported by hidden ones.

    A server adds the imports of the new token before it drops those of the old one (server/accounts.go,
    updateAccountClaimsWithRefresh), and what is published in between takes both.
    """
    yield from planned
    digests = [{*(rule.before or ())} ^ {*(rule.after or ())} for rule in context.rule_changes if rule.source == USERS]
    for account in context.bundle.accounts:
        if not any((imported.to or "").startswith(f"{REGION_PREFIX}.") for imported in account.imports):
            continue
        # An account whose token changes has two digests: as it is loaded, and as it is to be.
        if any(sum(digest.startswith(f"{account.name}.") for digest in both) > 1 for both in digests):
            yield Note(
                name=account.name,
                text="is pushed again: for a moment on each server, what is published without `Nats-Msg-Id` is stored twice",
            )


def note_deaf_subscribers(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """
    Note who hears nothing of an account that servers of a cluster load one after the other.

    One that does not have an account yet drops what the others of its cluster tell it about subscriptions to it, and they never
    say it again (nats-server 8560).
    """
    yield from planned
    accounts = [rule for rule in context.rule_changes if rule.kind == ACCOUNT]
    new = {account.source.partition(" ")[2] for account in accounts if account.before is None}
    sizes = Counter(address.region for address in context.bundle.servers)
    if not context.owned_streams or max(sizes.values(), default=0) < _MIN_CLUSTER_SERVERS:
        return
    for account in context.bundle.accounts:
        heard = {
            imported.account for imported in account.imports if imported.subject.startswith(f"{REPUBLISH_PREFIX}.")
        }
        if account.name not in new and not new.isdisjoint(heard):
            yield Note(
                name=account.name,
                text=f"imports from {', '.join(sorted(new & heard))}, which is new: core subscribers that are connected while servers "
                "reload one by one may hear nothing of it until they connect again (nats-server 8560)",
            )


def note_profile_change(planned: Sequence[PlanItem], context: DiffContext) -> Iterator[PlanItem]:
    """Note what clients notice of the planned step, where a topology moves to `accounts` (docs/changes.md)."""
    yield from planned
    text = _write_profile_note(context)
    if text is not None:
        yield Note(name="clients", text=text)


def _write_profile_note(context: DiffContext) -> str | None:
    if not (context.undesired_streams or context.rule_changes):
        return None
    staying = {_describe_layout(stream.config.name, stream.config) for stream in context.desired_streams}
    undesired = {_describe_layout(name, stream.config) for name, stream in context.undesired_streams.items()}
    new, old, former = (_ACCOUNTS, False), (_MAPPED, False), (_MAPPED, True)
    if former in undesired:
        return _TAKEN_OUT
    if former in staying and any(rule.source == _API_RULE for rule in context.rule_changes):
        return _LED_OVER
    if old in staying and new in undesired:
        return _NEVER_LEFT
    if old in staying and new in staying and context.rule_changes:
        return _STILL_IN_OLD_LAYOUT
    return None
