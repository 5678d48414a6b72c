"""Compare desired and observed state: the result is a plan. A pure function."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from vstream.plan import consumers
from vstream.plan.canonical import is_known, to_canonical_stream
from vstream.plan.context import DiffContext, Observed, PlanItem
from vstream.plan.gates import gates_of, list_interrupted_gates
from vstream.plan.model import (
    Blocked,
    Change,
    Create,
    Delete,
    FieldChange,
    Fingerprint,
    Note,
    Plan,
    Update,
)
from vstream.plan.risk import Rating, classify, classify_source, estimate_removal, explain_refusal
from vstream.plan.stages import stage_of
from vstream.plan.transitions import (
    change_consistency,
    change_routing,
    change_sources,
    pause_publishers,
    promote_home,
    remove_region,
    seed_region,
    start_sequence,
)
from vstream.syntax.document import Json, object_or_empty
from vstream.topology.bundle import Bundle, RenderedStream
from vstream.topology.model import Role, Topology
from vstream.topology.naming import is_paused
from vstream.topology.stream_config import (
    FORMER_PREFIX,
    RESTORE_KEY,
    ROLE_KEY,
    SCALED_KEY,
    ObservedStream,
    StreamConfig,
    list_unmeasured_dead_sources,
    source_name,
    with_noted_scaling,
)
from vstream.topology.units import format_version

Transition = Callable[[Sequence[PlanItem], DiffContext], Iterable[PlanItem]]
"""Goes over all that is planned, and gives what is planned instead."""

_MOVES_ALONE = (2, 15, 0)
"""No stream moves between servers of this version and those before: tried with 2.12, 2.14 and 2.15, both ways."""


def diff(topology: Topology, bundle: Bundle, observed: Observed, *, adopt: frozenset[str] = frozenset()) -> Plan:
    """
    The plan that changes *observed* into *bundle*, which *topology* renders to.

    *adopt* names streams and consumers that vstream did not create and may take over; the name `all` means every one
    that the topology needs.
    """
    context = DiffContext.of(topology, bundle, observed, adopt=adopt)
    if blocked := change_routing.block_profile_change(context):
        return Plan(
            topology=topology.name,
            observed_digest=Fingerprint(partial(_compute_digest, context, ())),
            blocked=blocked,
            left_paused=tuple(name for name, stream in context.owned_streams.items() if is_paused(stream.config)),
            owned_stream_count=len(context.owned_streams),
        )
    planned = [item for stream in bundle.streams for item in _compare_stream(stream, context)]
    for transition in _TRANSITIONS:
        planned = [*transition(planned, context)]
    return _plan_of(context, planned)


def _plan_of(context: DiffContext, planned: Sequence[PlanItem]) -> Plan:
    changes = [item for item in planned if isinstance(item, Change)]
    changes.sort(key=lambda change: (stage_of(change), change.config.name))
    blocked = [item for item in planned if isinstance(item, Blocked)]
    blocked.sort(key=lambda item: item.name)
    desired = context.desired_names
    compared = [name for name in context.streams if name in desired or name in context.owned_streams]
    gates = gates_of(changes, context)
    return Plan(
        topology=context.topology.name,
        observed_digest=Fingerprint(partial(_compute_digest, context, compared)),
        changes=tuple(changes),
        blocked=tuple(blocked),
        rule_changes=context.rule_changes,
        unread_servers=context.observed.unread_servers,
        leaving_servers=context.observed.leaving_servers,
        gates=gates,
        losses=context.observed.losses,
        interrupted_gates=tuple(gate for gate in list_interrupted_gates(changes, context) if gate not in gates),
        notes=tuple(item for item in planned if isinstance(item, Note)),
        owned_stream_count=len(context.owned_streams),
        desired_rule_count=context.desired_rule_count,
    )


def _compute_digest(context: DiffContext, names: Iterable[str]) -> str:
    """Of everything that a plan depends on: streams it wants or owns, which *names* are, and the loaded rules."""
    observed = context.observed
    streams = {name: [context.canonical_form_of(name), observed.streams[name].created] for name in names}
    all_consumers = [consumer for on_stream in observed.consumers.values() for consumer in on_stream.values()]
    durables = {}
    for consumer in all_consumers:
        durables[consumer.config.name] = [consumers.to_canonical_consumer(consumer.config.fields), consumer.created]
    silent = sorted((context.desired_names & set(observed.unanswered)) | set(observed.silent_consumers))
    rules = {server: dict(loaded) for server, loaded in observed.rules.items()}
    state = [streams, silent, rules, durables]
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _compare_stream(stream: RenderedStream, context: DiffContext) -> Iterator[PlanItem]:
    """
    The changes that make one physical stream as desired, in order; or why none can.

    The order counts. What nobody answered for is not created. What is being restored is not touched. An origin in its new
    home lacks, or is, a copy: it comes before both. And a copy differs on purpose: it is finished before anybody compares it.
    """
    observed = context.streams.get(stream.config.name)
    if observed is not None and context.equality.is_known_equal(stream.config.fields, observed.config.fields):
        return
    if blocked := _block_unanswered(stream, context) or _block_restored(stream, observed):
        yield blocked
    elif steps := promote_home.plan_new_home(stream, context):
        yield from steps
    elif observed is None:
        yield from _create(stream, context)
    elif seed_region.is_copy(observed) and observed.config.owner == context.topology.name:
        fields, notes = _compare_fields(stream, observed, context)
        yield from notes
        yield from seed_region.finish_copy(stream, observed, fields)
    else:
        yield from _compare_existing(stream, observed, context)


def _block_unanswered(stream: RenderedStream, context: DiffContext) -> Blocked | None:
    """Block what exists, and no server answered for; a dead origin that a copy can replace is forgotten instead."""
    name = stream.config.name
    if name in context.streams or name not in context.observed.unanswered:
        return None
    return None if promote_home.can_replace_dead_origin(stream, context) else Blocked.because_unanswered(stream)


def _block_restored(stream: RenderedStream, observed: ObservedStream | None) -> Blocked | None:
    if observed is None or observed.config.metadata_value(RESTORE_KEY) is None:
        return None
    return Blocked.of(
        stream,
        "it is being restored from a backup, and does not know yet how far it is in its sources",
        "wait until `vstream backup restore` has ended, or run that again if it was stopped",
    )


def _compare_existing(stream: RenderedStream, observed: ObservedStream, context: DiffContext) -> Iterator[PlanItem]:
    can_turn = change_consistency.can_become_sourced(stream, observed, context)
    if not can_turn and (blocked := _block_foreign(stream, observed, context)):
        yield blocked
        return
    fields, notes = _compare_fields(stream, observed, context)
    yield from notes
    if can_turn:
        other_fields = [change for change in fields if change.path != "mirror"]
        blocked = _block_refused(stream, other_fields, context)
        yield from [blocked] if blocked else seed_region.finish_copy(stream, observed, other_fields)
    elif fields:
        yield from _update(stream, observed, fields, context)


def _create(stream: RenderedStream, context: DiffContext) -> Iterator[PlanItem]:
    # What takes over a former stream gets the history from there.
    follows_former = (stream.takes_over or "").startswith(FORMER_PREFIX)
    donor = None if follows_former else seed_region.donor_of(stream, context)
    if donor is not None:
        if context.topology.server_version >= seed_region.SINCE and stream.account is None:
            yield from seed_region.plan_copy(stream, donor)
            return
        yield seed_region.note_short_history(stream)
    create = Create(config=stream.config, region=stream.region, role=stream.role)
    if stream.role is Role.ORDER:
        yield from change_consistency.create_ordering_stream(create)
    else:
        yield create


def _update(
    stream: RenderedStream, observed: ObservedStream, fields: Sequence[FieldChange], context: DiffContext
) -> Iterator[PlanItem]:
    """The update of *fields*, in steps such that no source starts over; or why it is impossible."""
    if blocked := _block_refused(stream, fields, context):
        yield blocked
        return
    desired = start_sequence.preserve_start_sequences(stream.config, _make_canonical_config(observed, context))
    left_open = list_unmeasured_dead_sources(observed.config)
    config = StreamConfig(name=desired.name, fields={**_unknown_fields(desired, observed.config), **desired.fields})
    if scaled_at := observed.config.metadata_value(SCALED_KEY):
        config = with_noted_scaling(config, scaled_at)
    update = Update(
        config=config,
        region=stream.region,
        role=stream.role,
        fields=tuple(fields),
        adopts=observed.config.owner != context.topology.name,
        dead_sources={origin: ends for origin, ends in left_open.items() if origin not in desired.source_names},
        needs_only_note=bool(left_open) and left_open.keys().isdisjoint(observed.config.source_names),
    )
    if change_sources.has_stopped_sourcing(observed):
        yield change_sources.start_sources(update)
    elif not change_sources.find_reconfigured_sources(fields):
        yield update
    elif change_sources.drops_source(fields):
        yield Blocked.of(
            stream,
            "some of its sources change and others are removed, which needs two plans",
            "keep the regions that the stream has now, apply, and then remove regions",
        )
    elif left_out := change_sources.find_subject_left_out(stream.config.name, fields, context):
        origin, subject = left_out
        yield Blocked.of(
            stream,
            f"it would no longer take `{subject}` from `{origin}`, and what is stored there and not sourced yet "
            "would be left out for good",
            "change `naming` or `subjects` back: a live stream keeps the subjects under which its messages are stored",
        )
    else:
        yield change_sources.stop_sources(stream, observed, fields, adopts=update.adopts)
        yield change_sources.start_sources(update)


def _unknown_fields(desired: StreamConfig, observed: StreamConfig) -> dict[str, Json]:
    """Fields of a newer server that vstream does not know: they are kept."""
    return {
        field: value for field, value in observed.fields.items() if not is_known(field) and field not in desired.fields
    }


def _make_canonical_config(observed: ObservedStream, context: DiffContext) -> StreamConfig:
    name = observed.config.name
    return StreamConfig(name=name, fields=context.canonical_form_of(name))


def _block_foreign(stream: RenderedStream, observed: ObservedStream, context: DiffContext) -> Blocked | None:
    """Block any change of an *observed* stream of another topology, or with another role."""
    name, owner = stream.config.name, observed.config.owner
    is_own = owner == context.topology.name
    if not is_own and not context.adopt & {name, "all"}:
        return Blocked.of(
            stream,
            f"it belongs to the topology `{owner}`" if owner else "it exists, and vstream did not create it",
            f"rename one of the two, or take it over with `--adopt {name}`",
        )
    role, desired_role = observed.config.metadata_value(ROLE_KEY), stream.role.value
    if is_own and role != desired_role and (role is not None or desired_role == Role.CATALOG.value):
        # A catalog holds no messages: its limits would delete them. An ordering stream and an origin have one name in
        # hidden accounts: in between, publishes would reach neither.
        return Blocked.of(
            stream,
            f"its role is `{role}`, and would become `{desired_role}`: that is another consistency model or home",
            "change the topology back, or give the virtual stream another name and move over",
        )
    return None


def _block_refused(stream: RenderedStream, fields: Sequence[FieldChange], context: DiffContext) -> Blocked | None:
    """Block an update of *fields* that servers would refuse."""
    for change in fields:
        reason = explain_refusal(change.path.partition(".")[0], change.before, change.after)
        if reason:
            return Blocked.of(
                stream,
                f"`{change.path}` is {_dump_json(change.before)}, the topology says {_dump_json(change.after)}: {reason}",
                change_consistency.hint_for_mirror(stream, fields, context)
                or "change the topology back, or give the virtual stream another name and move over",
            )
    if change_routing.swaps_subjects(stream, fields):
        return Blocked.of(
            stream,
            "it gains subjects and loses others: one is safe only before the mappings change, the other only after",
            "add the new subjects and apply, then remove the old ones",
        )
    if {"num_replicas", "placement"} <= {change.path for change in fields}:
        return Blocked.of(
            stream,
            "`num_replicas` and `placement` would change, and servers refuse to scale and move a stream in one step",
            "change one of the two in the topology and apply it, then the other",
        )
    return next((blocked for change in fields if (blocked := _block_other_version(stream, change, context))), None)


def _block_other_version(stream: RenderedStream, change: FieldChange, context: DiffContext) -> Blocked | None:
    """Block a move between servers of 2.15 and older ones: it never ends, and may leave the stream without a leader."""
    if change.path != "placement":
        return None
    clusters = [object_or_empty(placement).get("cluster") for placement in (change.before, change.after)]
    oldest = [version for cluster in clusters for version in context.list_versions(str(cluster))[:1]]
    if len({version >= _MOVES_ALONE for version in oldest}) <= 1:
        return None
    versions = [format_version(version) for version in oldest]
    return Blocked.of(
        stream,
        f"it would move from servers of {versions[0]} to servers of {versions[1]}: such a move never ends",
        "update the older ones, then run this again",
    )


def _compare_fields(
    stream: RenderedStream, observed: ObservedStream, context: DiffContext
) -> tuple[tuple[FieldChange, ...], tuple[Note, ...]]:
    """How *observed* differs from *stream*, field by field, and what is left as it is."""
    before = context.canonical_form_of(stream.config.name)
    desired = start_sequence.preserve_start_sequences(stream.config, _make_canonical_config(observed, context))
    after = to_canonical_stream(desired.fields)
    if before == after:
        return (), ()
    changes: list[FieldChange] = []
    notes: list[Note] = []
    for field in sorted(before.keys() | after.keys()):
        old, new = before.get(field), after.get(field)
        if old == new:
            continue
        if field not in after and not is_known(field):
            text = f"has `{field}` = {_dump_json(old)}, which vstream does not know and keeps"
            notes.append(Note(name=stream.config.name, text=text))
        elif field == "metadata":
            classify_key = partial(classify, field, role=stream.role)
            changes += _compare_entries(field, object_or_empty(old), object_or_empty(new), classify_key)
        elif field == "sources":
            old_sources, new_sources = (_sources_by_key(sources, stream.config.name) for sources in (old, new))
            changes += _compare_entries(field, old_sources, new_sources, classify_source)
        else:
            rating = classify(field, old, new, stream.role)
            removes = (
                estimate_removal(field, new, observed, context.observed.at) if rating.risk.is_destructive else None
            )
            changes.append(
                FieldChange(path=field, before=old, after=new, risk=rating.risk, why=rating.why, removal=removes)
            )
    return tuple(changes), tuple(notes)


def _compare_entries(
    field: str, old: Mapping[str, Any], new: Mapping[str, Any], classify_entry: Callable[[Any, Any], Rating]
) -> Iterator[FieldChange]:
    """The changes of a field that has entries with names: one for each entry."""
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if before != after:
            rating = classify_entry(before, after)
            yield FieldChange(path=f"{field}.{key}", before=before, after=after, risk=rating.risk, why=rating.why)


def _sources_by_key(sources: Json, reader: str) -> dict[str, Any]:
    """Sources by name; a second source of one stream, which filters differently, gets a number."""
    by_key: dict[str, Any] = {}
    numbers: Counter[str] = Counter()
    for source in sources if isinstance(sources, list) else []:
        key = name = source_name(source, reader)
        while key in by_key:
            numbers[name] += 1
            key = f"{name}#{numbers[name] + 1}"
        by_key[key] = source
    return by_key


def _note_renames(planned: Sequence[PlanItem], context: DiffContext) -> Iterator[PlanItem]:
    """Note a new virtual stream with the shape of a removed one: people expect a rename to keep messages."""
    yield from planned
    deleted: dict[str, set[tuple[str | None, Role | None]]] = {}
    messages: dict[str, int] = {}
    for item in planned:
        if isinstance(item, Delete):
            virtual = item.config.virtual or ""
            deleted.setdefault(virtual, set()).add((item.region, item.role))
            messages[virtual] = max(messages.get(virtual, 0), item.messages)
    for virtual, streams in context.siblings.items():
        if any(stream.config.name in context.streams for stream in streams):
            continue
        shape = {(stream.region, stream.role) for stream in streams}
        former = next((name for name, deleted_shape in deleted.items() if deleted_shape == shape), None)
        if former is None or former in context.siblings:
            continue
        del deleted[former]
        yield Note(
            name=virtual,
            text=f"has the shape of `{former}`, which goes. Renaming moves no messages: `{virtual}` begins empty, and what "
            f"`{former}` holds ({messages[former]:,} messages) is deleted. To keep them, keep `{former}` and add "
            f"`{virtual}` beside it with other subjects; `takes_over` is for plain streams only (docs/changes.md)",
        )


def _dump_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


_ADDING: tuple[Transition, ...] = (remove_region.delete_undesired_streams, consumers.diff_consumers)
_COMPLETING: tuple[Transition, ...] = (
    start_sequence.attach_readers,
    promote_home.replace_copies,  # reads deletions
    promote_home.continue_consumers,  # reads creations of consumers
)
_NOTING: tuple[Transition, ...] = (
    _note_renames,  # reads deletions
    change_routing.note_duplicate_imports,
    change_routing.note_deaf_subscribers,
    change_routing.note_profile_change,
)
_BLOCKING: tuple[Transition, ...] = (
    change_routing.block_unreachable_accounts,
    change_consistency.block_abandoned_streams,
    change_routing.block_unreachable_sources,
    change_routing.block_mixed_account_changes,
    change_routing.block_half_moved_streams,
    change_routing.block_stranded_streams,
    change_consistency.block_takeovers,
    seed_region.block_incomplete_readers,
)
_PAUSING: tuple[Transition, ...] = (pause_publishers.pause_while_moving,)
_FORGETTING: tuple[Transition, ...] = (remove_region.forget_dead_streams,)
_TRANSITIONS: tuple[Transition, ...] = (*_ADDING, *_COMPLETING, *_NOTING, *_BLOCKING, *_PAUSING, *_FORGETTING)
"""
Applied in turn to the results of comparing the streams one by one.

What adds changes comes first, as others read them; only what is dead comes last, as nobody takes its place or continues it. No
other order changes what a plan does: it decides which of the notes
is shown first, and which of the reasons that block one stream.
"""
