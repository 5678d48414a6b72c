"""Desired × observed → plan. A pure function."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vstream.plan import consumers, mapping_diff
from vstream.plan.account_entries import Entries, entries
from vstream.plan.canonical import canonical, is_known
from vstream.plan.gates import gates_of
from vstream.plan.plan import (
    Blocked,
    Change,
    Create,
    Delete,
    FieldChange,
    Note,
    Plan,
    Update,
    phase_of,
)
from vstream.plan.risk import classify, classify_source, refusal
from vstream.plan.transitions import (
    change_consistency,
    change_routing,
    change_sources,
    close_write_stream,
    ordering_stream,
    seed_region,
    start_sequence,
    takeover,
)
from vstream.topology.model import Role
from vstream.topology.stream_config import FORMER_PREFIX, REGION_KEY, ROLE_KEY, StreamConfig, source_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.subjects.mapping import Mapping as SubjectMapping
    from vstream.syntax.json_types import Json
    from vstream.topology.accounts import Account
    from vstream.topology.bundle import RenderedConsumer, RenderedStream
    from vstream.topology.consumer_config import ObservedConsumer
    from vstream.topology.model import ServerVersion
    from vstream.topology.stream_config import ObservedStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the servers say: streams by name, names that no server answered for, loaded rules by server."""

    streams: Mapping[str, ObservedStream]
    missing: tuple[str, ...] = ()
    rules: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """
    Server → what it has loaded: mapping source → destinations, each spelled as by `spell_destinations`,
    and the entries of accounts (`vstream.plan.account_entries`).
    """
    unread_servers: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    """Servers that the topology does not have."""
    consumers: Mapping[str, Mapping[str, ObservedConsumer]] = field(default_factory=dict)
    """Stream → name, of the streams that durables of the topology are on, or were."""
    silent_consumers: tuple[str, ...] = ()
    """Those that exist, and that no server answered for: `foo-read-west > reader`."""


def spell_destinations(mapping: SubjectMapping) -> tuple[str, ...]:
    """The destinations of a rule as sorted text: `west 100% _vs.foo.west.foo.>`."""
    return tuple(sorted(spell(one.cluster, one.weight, one.subject) for one in mapping.destinations))


def spell(cluster: str | None, weight: int, subject: str) -> str:
    """One destination of a rule as text."""
    return f"{cluster or '*'} {weight}% {subject}"


def diff(
    topology: str,
    desired: Sequence[RenderedStream],
    mappings: Sequence[SubjectMapping],
    observed: Observed,
    *,
    accounts: Sequence[Account] = (),
    adopt: frozenset[str] = frozenset(),
    server_version: ServerVersion = seed_region.SINCE,
    durables: Sequence[RenderedConsumer] = (),
    domains: frozenset[str] = frozenset(),
) -> Plan:
    """
    The plan that brings *observed* to *desired*.

    *adopt* names streams that vstream did not create and may take over; the name
    `all` stands for every one that the topology needs. *server_version* is the
    oldest that a server can have, *durables* the consumers that are to exist, *domains*
    the regions that are JetStream domains.
    """
    wanted = {stream.config.name for stream in desired}
    owned = {name: one for name, one in observed.streams.items() if one.config.owner == topology}
    if stays := change_routing.block_profile_change(desired, owned):
        return Plan(topology=topology, observed=_fingerprint(wanted, observed, {}), blocked=stays, owned=len(owned))
    forms = {
        name: canonical(one.config.fields) for name, one in observed.streams.items() if name in wanted or name in owned
    }
    changes: list[Change] = []
    blocked: list[Blocked] = []
    notes: list[Note] = []
    siblings: dict[str, list[RenderedStream]] = {}
    for stream in desired:
        siblings.setdefault(stream.virtual, []).append(stream)
    for stream in desired:
        for outcome in _toward(
            stream, topology, siblings[stream.virtual], observed, forms, adopt, server_version, notes
        ):
            if isinstance(outcome, Blocked):
                blocked.append(outcome)
            else:
                changes.append(outcome)
    changes = start_sequence.attach_readers(changes, desired, observed.streams, server_version)
    kept = wanted | takeover.streams_taken_over(desired)
    gone = {name: one for name, one in owned.items() if name not in kept}
    blocked.extend(
        (
            *change_routing.block_unreachable_accounts(gone, accounts, domains),
            *change_consistency.block_abandoned_streams(gone, desired, observed.streams),
        )
    )
    deletes = [_delete(one) for _, one in sorted(gone.items())]
    changes.extend((*close_write_stream.close_before_delete(deletes, desired, observed.streams), *deletes))
    blocked.extend(change_routing.block_unreachable_sources(changes, domains))
    durable_changes, durable_blocked = consumers.diff_consumers(
        topology,
        durables,
        observed.consumers,
        silent={*observed.missing, *observed.silent_consumers},
        stays=wanted,
        adopt=adopt,
    )
    changes.extend(durable_changes)
    blocked.extend(durable_blocked)
    changes.sort(key=lambda change: (phase_of(change), change.config.name))
    loaded: Entries = {mapping.source: spell_destinations(mapping) for mapping in mappings}
    unlike = tuple(
        mapping_diff.diff_rules(
            {**loaded, **entries(accounts)}, observed.rules, mapping_diff.own_rules(desired, owned, forms)
        )
    )
    notes.extend(
        (
            *change_routing.note_duplicate_imports(unlike, accounts),
            *change_routing.note_profile_change(desired, gone, unlike),
        )
    )
    blocked.extend(
        (
            *change_routing.block_mixed_account_changes(unlike),
            *change_routing.block_half_moved_streams(unlike, gone),
            *change_routing.block_stranded_streams(observed.streams, topology),
            *takeover.block_takeovers(desired, observed.streams),
        )
    )
    gates = (
        *gates_of(changes, desired, observed.streams),
        *takeover.takeover_gates(desired, observed.streams, is_mapping=bool(unlike)),
    )
    return Plan(
        topology=topology,
        observed=_fingerprint(wanted, observed, forms),
        changes=tuple(changes),
        blocked=tuple(sorted(blocked, key=lambda one: one.name)),
        rules=unlike,
        unread_servers=observed.unread_servers,
        leaving=observed.leaving,
        gates=tuple(takeover.without_missing_streams(gates, {*observed.streams, *observed.missing})),
        notes=tuple(notes),
        owned=len(owned),
    )


def _toward(
    stream: RenderedStream,
    topology: str,
    siblings: Sequence[RenderedStream],
    observed: Observed,
    forms: Mapping[str, Mapping[str, Json]],
    adopt: frozenset[str],
    server_version: ServerVersion,
    notes: list[Note],
) -> Iterator[Change | Blocked]:
    """What brings one physical stream, one of *siblings*, to what it shall be, in order; or why nothing does."""
    name = stream.config.name
    found = observed.streams.get(name)
    is_absent = found is None and name not in observed.missing
    follows = (stream.takes_over or "").startswith(FORMER_PREFIX)  # it gets the history from there
    if is_absent and not follows and (donor := seed_region.donor_of(stream, siblings, observed.streams)):
        if server_version >= seed_region.SINCE and stream.account is None:
            yield from seed_region.plan_copy(stream, donor)
            return
        notes.append(seed_region.short_history(stream))
    elif found is not None and seed_region.is_copy(found) and found.config.owner == topology:
        yield from seed_region.resume_copy(stream, found, tuple(_field_changes(stream, forms[name], notes)))
        return
    elif found is not None and change_consistency.can_become_sourced(stream, found, observed.streams, server_version):
        others = tuple(one for one in _field_changes(stream, forms[name], notes) if one.field != "mirror")
        if refused := _refused(stream, others, observed, server_version):
            yield _blocked(stream, *refused)
        else:
            yield from seed_region.resume_copy(stream, found, others)
        return
    outcome = _compare(topology, stream, observed, forms, adopt, server_version, notes)
    if isinstance(outcome, Create) and stream.role is Role.ORDER:
        yield from ordering_stream.create_ordering_stream(outcome)
    elif isinstance(outcome, Update) and found is not None:
        yield from _handed_over(stream, found, outcome, observed.streams)
    elif outcome is not None:
        yield outcome


def _fingerprint(wanted: set[str], observed: Observed, forms: Mapping[str, Mapping[str, Json]]) -> str:
    """A digest of everything that a plan depends on: streams it wants or owns, and the loaded rules."""
    streams = {name: [form, observed.streams[name].created] for name, form in forms.items()}
    durables = {
        one.config.name: [consumers.canonical(one.config.fields), one.created]
        for some in observed.consumers.values()
        for one in some.values()
    }
    silent = sorted((wanted & set(observed.missing)) | set(observed.silent_consumers))
    state = [streams, silent, {k: dict(v) for k, v in observed.rules.items()}, durables]
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _handed_over(
    stream: RenderedStream, found: ObservedStream, update: Update, observed: Mapping[str, ObservedStream]
) -> Iterator[Update | Blocked]:
    """*update*, in the steps that it takes so that no source starts over."""
    if change_sources.is_stopped(found):
        yield change_sources.start_sources(update)
    elif not change_sources.reconfigured_sources(update.fields):
        yield update
    elif change_sources.drops_source(update.fields):
        yield _blocked(
            stream,
            "some of its sources change and others go, which is done in another order",
            "let the topology have the regions that the stream has now, apply it, and then take regions out",
        )
    elif left_out := change_sources.subject_left_out(stream.config.name, update.fields, observed):
        origin, subject = left_out
        yield _blocked(
            stream,
            f"it would no longer take `{subject}` from `{origin}`, and what is stored there and not sourced yet "
            "would be left out for good",
            "change `naming` or `subjects` back: a live stream keeps the subjects that its messages are stored under",
        )
    else:
        yield change_sources.stop_sources(stream, found, update.fields, adopts=update.adopts)
        yield change_sources.start_sources(update)


def _compare(
    topology: str,
    stream: RenderedStream,
    observed: Observed,
    forms: Mapping[str, Mapping[str, Json]],
    adopt: frozenset[str],
    server_version: ServerVersion,
    notes: list[Note],
) -> Change | Blocked | None:
    name = stream.config.name
    found = observed.streams.get(name)
    if found is None:
        if name in observed.missing:
            return Blocked(
                name=name,
                region=stream.region,
                reason="it exists, but no server answered for it",
                hint=f"is `{stream.region}` down? plan again when it is back",
            )
        return Create(config=stream.config, region=stream.region, role=stream.role)
    is_adopted = found.config.owner != topology
    if (kept := _kept(topology, stream, found, adopt)) is not None:
        return kept
    fields = tuple(_field_changes(stream, forms[name], notes))
    if not fields:
        return None
    refused = _refused(stream, fields, observed, server_version)
    if refused is not None:
        return _blocked(stream, *refused)
    return Update(
        config=StreamConfig(
            name=name,
            fields=_new_fields(start_sequence.preserve_start_sequences(stream.config, forms[name]), found.config),
        ),
        region=stream.region,
        role=stream.role,
        fields=fields,
        adopts=is_adopted,
    )


def _blocked(stream: RenderedStream, reason: str, hint: str) -> Blocked:
    return Blocked(name=stream.config.name, region=stream.region, reason=reason, hint=hint)


def _kept(topology: str, stream: RenderedStream, found: ObservedStream, adopt: frozenset[str]) -> Blocked | None:
    """Why *found* stays as it is, whatever of it differs: it is another's, or something else."""
    name, owner = stream.config.name, found.config.owner
    if owner != topology and name not in adopt and "all" not in adopt:
        return _blocked(
            stream,
            f"it belongs to the topology `{owner}`" if owner else "it exists, and vstream did not create it",
            f"rename one of the two, or take it over with `--adopt {name}`",
        )
    was, wanted = found.config.metadata.get(ROLE_KEY), stream.role.value
    if owner == topology and was != wanted and (was is not None or wanted == Role.CATALOG.value):
        # A catalog holds no messages: its limits would delete them. An ordering stream and an origin have one name in
        # hidden accounts: in between, publishes would reach neither.
        return _blocked(
            stream,
            f"its role is `{was}`, and is to be `{wanted}`: that is another consistency model, or another home",
            "change the topology back, or give the virtual stream another name and move over",
        )
    return None


def _refused(
    stream: RenderedStream, fields: Sequence[FieldChange], observed: Observed, server_version: ServerVersion
) -> tuple[str, str] | None:
    """Why servers would refuse an update of *fields*, and what to do; None if they would not."""
    for change in fields:
        reason = refusal(change.field.partition(".")[0], change.before, change.after)
        if reason:
            return (
                f"`{change.field}` is {_shown(change.before)}, the topology says {_shown(change.after)}: {reason}",
                change_consistency.hint_for_mirror(stream, fields, observed.streams, server_version)
                or "change the topology back, or give the virtual stream another name and move over",
            )
    if change_routing.swaps_subjects(stream, fields):
        return (
            "some of its subjects go and others come, and the one is safe before the mappings change, the other after",
            "add what is new first and apply it, then take out what goes",
        )
    if {"num_replicas", "placement"} <= {change.field for change in fields}:
        return (
            "`num_replicas` and `placement` would change, and servers refuse to scale and move a stream in one step",
            "change one of the two in the topology and apply it, then the other",
        )
    return None


def _field_changes(stream: RenderedStream, before: Mapping[str, Json], notes: list[Note]) -> Iterator[FieldChange]:
    after = canonical(start_sequence.preserve_start_sequences(stream.config, before).fields)
    if before == after:
        return
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if name not in after and not is_known(name):
            notes.append(
                Note(
                    name=stream.config.name, text=f"has `{name}` = {_shown(old)}, which vstream does not know and keeps"
                )
            )
        elif name == "metadata":
            yield from _parts(name, _map(old), _map(new), stream.role)
        elif name == "sources":
            yield from _source_changes(old, new, stream.config.name)
        else:
            risk, why = classify(name, old, new, stream.role)
            yield FieldChange(field=name, before=old, after=new, risk=risk, why=why)


def _parts(name: str, before: Mapping[str, Json], after: Mapping[str, Json], role: Role) -> Iterator[FieldChange]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            risk, why = classify(name, before.get(key), after.get(key), role)
            yield FieldChange(field=f"{name}.{key}", before=before.get(key), after=after.get(key), risk=risk, why=why)


def _source_changes(before: Json, after: Json, taker: str) -> Iterator[FieldChange]:
    old, new = _by_source(before, taker), _by_source(after, taker)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            risk, why = classify_source(old.get(key), new.get(key))
            yield FieldChange(field=f"sources.{key}", before=old.get(key), after=new.get(key), risk=risk, why=why)


def _by_source(sources: Json, taker: str) -> dict[str, Any]:
    """Sources by name; a second source of one stream, which filters differently, gets a number."""
    found: dict[str, Any] = {}
    for source in sources if isinstance(sources, list) else []:
        name = key = source_name(source, taker)
        number = 2
        while key in found:
            key = f"{name}#{number}"
            number += 1
        found[key] = source
    return found


def _new_fields(desired: StreamConfig, found: StreamConfig) -> dict[str, Json]:
    kept = {key: value for key, value in found.fields.items() if not is_known(key) and key not in desired.fields}
    return {**kept, **desired.fields}


def _delete(found: ObservedStream) -> Delete:
    metadata = found.config.metadata
    role = next((role for role in Role if role.value == metadata.get(ROLE_KEY)), None)
    return Delete(config=found.config, region=metadata.get(REGION_KEY), role=role, messages=found.messages)


def _map(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
