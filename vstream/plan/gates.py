"""Gates: what must hold on the servers before a plan goes on from one phase to the next."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from vstream.plan.plan import Delete, Handover, Phase, Update
from vstream.plan.transitions.seed_region import is_copy
from vstream.topology.model import Role
from vstream.topology.stream_config import FORMER_PREFIX, STREAM_KEY, source_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.plan.plan import Change
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.stream_config import ObservedStream


class GateKind(Enum):
    """What a gate asks."""

    COPIED = "copied"
    """*stream* holds all that the one of *others*, which it mirrors, holds, and it is known where each source goes on."""
    AT_REST = "at rest"
    """*stream*, which takes from nobody, has stored all that was on its way."""
    FED = "fed"
    """*stream* has taken everything of *others*."""
    PASSED_ON = "passed on"
    """Each of *others*, which go like *stream* and are to hand on what it has, has taken everything of it, and nothing more comes."""
    DRAINED = "drained"
    """Each of *others* has taken everything of *stream*, and nothing more comes into it."""
    UNCHANGED = "unchanged"
    """Nothing has come into *stream* since *others* had taken everything of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One condition on one physical stream. *others* are physical streams too."""

    kind: GateKind
    stream: str
    others: tuple[str, ...] = ()

    @property
    def before(self) -> Phase:
        """The phase that waits for it."""
        return _BEFORE[self.kind]

    def __str__(self) -> str:
        """What must hold, as a clause that follows `until`."""
        others = ", ".join(f"`{one}`" for one in self.others)
        match self.kind:
            case GateKind.COPIED:
                return f"`{self.stream}` holds all that {others} holds"
            case GateKind.AT_REST:
                return f"`{self.stream}` has stored what was on its way"
            case GateKind.FED:
                return f"`{self.stream}` has everything of {others}"
            case GateKind.DRAINED | GateKind.PASSED_ON:
                return f"{others} {_have(self.others)} everything of `{self.stream}`, and nothing more comes into it"
            case GateKind.UNCHANGED:
                return f"nothing has come into `{self.stream}` since {others} had everything of it"


_BEFORE = {
    GateKind.COPIED: Phase.STOPPED_COPIES,
    GateKind.AT_REST: Phase.SOURCED_COPIES,
    GateKind.FED: Phase.MAPPINGS,
    GateKind.PASSED_ON: Phase.FORMER_STREAMS,
    GateKind.DRAINED: Phase.DROPPED_SOURCES,
    GateKind.UNCHANGED: Phase.DELETED_READ_STREAMS,
}


def gates_of(
    changes: Sequence[Change], desired: Sequence[RenderedStream], observed: Mapping[str, ObservedStream]
) -> tuple[Gate, ...]:
    """What *changes* must wait for, in the order of the phases."""
    found = [
        *_copies(changes, observed),
        *_drained(changes),
        *_unchanged(changes, desired, observed),
        *_passed_on(changes, desired, observed),
    ]
    return tuple(sorted(found, key=lambda gate: (gate.before, gate.stream)))


def _copies(changes: Sequence[Change], observed: Mapping[str, ObservedStream]) -> Iterator[Gate]:
    for change in changes:
        if not isinstance(change, Update):
            continue
        name = change.config.name
        if change.handover is Handover.STOP:
            for one in change.fields:
                if one.field == "mirror" and isinstance(one.before, dict):
                    yield Gate(kind=GateKind.COPIED, stream=name, others=(str(one.before["name"]),))
        elif change.handover is Handover.SOURCE:
            yield Gate(kind=GateKind.AT_REST, stream=name)
            found = observed.get(name)
            if found is None or is_copy(found) or found.config.mirror_name is not None:
                yield Gate(kind=GateKind.FED, stream=name, others=change.config.source_names)


def _drained(changes: Sequence[Change]) -> Iterator[Gate]:
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for change in changes:
        for field in change.fields if isinstance(change, Update) and change.handover is None else ():
            if field.field.startswith("sources.") and isinstance(field.before, dict) and field.after is None:
                readers[source_name(field.before, change.config.name)].append(change.config.name)
    for origin, names in readers.items():
        yield Gate(kind=GateKind.DRAINED, stream=origin, others=tuple(dict.fromkeys(names)))


def _unchanged(
    changes: Sequence[Change], desired: Sequence[RenderedStream], observed: Mapping[str, ObservedStream]
) -> Iterator[Gate]:
    for change in changes:
        if (
            not isinstance(change, Delete)
            or change.role is not Role.WRITE
            or change.config.name.startswith(FORMER_PREFIX)
        ):
            continue
        virtual = change.config.metadata.get(STREAM_KEY)
        readers = tuple(
            one.config.name
            for one in desired
            if one.virtual == virtual and one.config.source_names and one.config.name in observed
        )
        if readers:
            yield Gate(kind=GateKind.UNCHANGED, stream=change.config.name, others=readers)


def _passed_on(
    changes: Sequence[Change], desired: Sequence[RenderedStream], observed: Mapping[str, ObservedStream]
) -> Iterator[Gate]:
    """
    Of a layout that the topology has moved away from: its read streams have what its write streams have, before they are read to the end.

    And nothing came later, before they go. Each was followed by the read stream of its own region.
    """
    going = [one for one in changes if isinstance(one, Delete) and one.config.name.startswith(FORMER_PREFIX)]
    # Once nobody follows them any more, it only counts that nothing has come since.
    followed = {gate.stream for gate in _drained(changes)}
    for change in going:
        name, virtual = change.config.name, change.config.metadata.get(STREAM_KEY)
        if change.role is Role.WRITE:
            between = tuple(
                one.config.name
                for one in going
                if one.role is Role.READ and one.config.metadata.get(STREAM_KEY) == virtual
            )
            if not followed.isdisjoint(between):
                yield Gate(kind=GateKind.PASSED_ON, stream=name, others=between)
            if between:
                yield Gate(kind=GateKind.UNCHANGED, stream=name, others=between)
            continue
        followers = tuple(
            one.config.name
            for one in desired
            if one.virtual == virtual
            and one.region == change.region
            and one.role is Role.READ
            and one.config.name in observed
        )
        if followers:
            yield Gate(kind=GateKind.UNCHANGED, stream=name, others=followers)


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"
