"""Recognise virtual streams on servers: by their metadata, otherwise by name and sources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vstream.errors import RefusedError
from vstream.plan.importing.discovered import (
    AT_ITS_CLUSTER,
    Discovered,
    MatchedStream,
    RegionLayout,
    UndescribedItem,
    locate_regions,
    with_place,
)
from vstream.topology import naming
from vstream.topology.fields import STREAM_PATTERN
from vstream.topology.model import Consistency, Naming, Role
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY, ObservedStream
from vstream.value_class import value_class

Lead = tuple[str, str]
"""The cluster whose clients a rule is for, and the region whose write stream it leads to."""
_WILDCARD = re.compile(r"\{\{\s*wildcard\(\s*([0-9]+)\s*\)\s*\}\}", re.IGNORECASE)


@value_class
class RecognisedStream:
    """A virtual stream that runs."""

    name: str
    consistency: Consistency
    subjects: tuple[str, ...]
    """Empty if nothing tells what clients publish on."""
    regions: tuple[str, ...]
    parts: tuple[MatchedStream, ...]
    home: str | None = None
    is_virtual_name_of_order: bool = False
    takes_over: str | None = None


@value_class
class RecognisedTopology:
    """Everything that a topology can describe of what runs, and the rest."""

    places: RegionLayout
    naming: Naming
    virtual: tuple[RecognisedStream, ...]
    undescribed: tuple[UndescribedItem, ...]


def recognise(system: Discovered, owner: str | None) -> RecognisedTopology:
    """The virtual streams of the topology *owner*, and those that nobody has marked."""
    parts, unmatched = match_streams(system.streams, owner)
    layout, unsure = locate_regions(system, parts)
    by_name: dict[str, list[MatchedStream]] = {}
    for part in parts:
        by_name.setdefault(part.virtual, []).append(with_place(part, layout))
    scheme = _guess_naming(parts)
    leads = _leads_by_stream(system)
    virtual: list[RecognisedStream] = []
    incomplete: list[UndescribedItem] = []
    for name, matched in sorted(by_name.items()):
        is_valid = re.match(STREAM_PATTERN, name) is not None
        recognised = _recognise_stream(name, matched, layout, scheme, leads.get(name, ())) if is_valid else None
        if recognised is not None:
            virtual.append(recognised)
        else:
            incomplete += _list_incomplete(name, matched, is_valid=is_valid)
    reported = [*unmatched, *incomplete, *unsure, *_find_dangling(virtual, system)]
    told = {*(part.stream.config.name for part in parts), *(item.name for item in reported)}
    plain = _list_plain(system, {*told, *(recognised.takes_over for recognised in virtual)})
    return RecognisedTopology(places=layout, naming=scheme, virtual=tuple(virtual), undescribed=(*reported, *plain))


def _list_incomplete(name: str, parts: Sequence[MatchedStream], *, is_valid: bool) -> Iterator[UndescribedItem]:
    """The *parts* of what would be the virtual stream *name*, and why it is none."""
    text = f"would be part of a virtual stream `{name}`, which is not a valid name"
    if is_valid:
        missing = "write streams or an origin" if all(part.role is Role.READ for part in parts) else "read streams"
        text = f"is part of a virtual stream `{name}` that has no {missing}"
    yield from (UndescribedItem(kind="stream", name=part.stream.config.name, text=text) for part in parts)


def _recognise_stream(
    name: str, parts: Sequence[MatchedStream], layout: RegionLayout, scheme: Naming, leads: Sequence[tuple[str, Lead]]
) -> RecognisedStream | None:
    roles = {part.role for part in parts}
    origin = next((part for part in parts if part.role is Role.ORIGIN), None)
    mirrored = {part.stream.config.mirror_name for part in parts if part.role is Role.READ}
    if Role.WRITE in roles and (Role.READ in roles or Role.ORDER in roles):
        ordered = any(
            mirror and (mirror == name or mirror.startswith(f"{name}-{Role.ORDER.value}-")) for mirror in mirrored
        )
        model = Consistency.ORDERED if Role.ORDER in roles or ordered else Consistency.VIRTUAL
        subjects = _find_subjects(parts, layout, scheme, leads) or _read_from_ordering_stream(name, parts)
    elif origin is not None:
        model = Consistency.HOMED if origin.place in layout.regions else Consistency.STRETCH
        if naming.is_paused(origin.stream.config):
            raise _make_pause_refusal(origin)
        subjects = _list_subjects(origin)
    else:
        return None
    has = {part.place for part in parts}
    return RecognisedStream(
        name=name,
        consistency=model,
        subjects=subjects,
        regions=tuple(region for region in layout.regions if region in has),
        parts=tuple(parts),
        home=origin.place if origin is not None and model is Consistency.HOMED else None,
        is_virtual_name_of_order=model is Consistency.ORDERED and name in mirrored,
        takes_over=_find_taken_over(name, parts) if model is Consistency.VIRTUAL else None,
    )


def _make_pause_refusal(origin: MatchedStream) -> RefusedError:
    name = origin.stream.config.name
    return RefusedError(
        f"`{name}` is paused, because it moves or is scaled up: nothing says what clients publish on",
        hint=f"`vstream apply` its topology, which resumes it; without that, `nats stream edit {name} --subjects …`",
    )


def _read_from_ordering_stream(name: str, parts: Iterable[MatchedStream]) -> tuple[str, ...]:
    """What an ordering stream that carries the virtual *name* says itself that clients publish on."""
    return next((_list_subjects(part) for part in parts if part.stream.config.name == name), ())


def _list_subjects(part: MatchedStream) -> tuple[str, ...]:
    subjects = part.stream.config.fields.get("subjects")
    return tuple(str(subject) for subject in subjects) if isinstance(subjects, list | tuple) else ()


def _guess_naming(parts: Iterable[MatchedStream]) -> Naming:
    """The naming that most write streams have."""
    blog = Counter[bool]()
    for part in parts:
        if part.role is Role.WRITE:
            names_place = all(subject.split(".")[1:2] == [part.place] for subject in _list_subjects(part))
            blog[names_place and not _is_isolated(part)] += 1
    return Naming.BLOG if blog[True] > blog[False] else Naming.ISOLATED


def _is_isolated(part: MatchedStream) -> bool:
    return _list_subjects(part) == (naming.physical_subject(Naming.ISOLATED, part.virtual, part.place, ">"),)


def _find_subjects(
    parts: Sequence[MatchedStream], layout: RegionLayout, scheme: Naming, leads: Sequence[tuple[str, Lead]]
) -> tuple[str, ...]:
    """What clients publish on: with the blog's naming the write streams say it, else the loaded rules that lead to them."""
    writes = [part for part in parts if part.role is Role.WRITE]
    if scheme is Naming.BLOG:
        listed = [
            subject for part in writes for subject in _list_subjects(part) if subject.split(".")[1:2] == [part.place]
        ]
        laid_out = [subject for subject in _transform_sources(parts) if subject in listed] + listed
        return tuple(dict.fromkeys(naming.virtual_subject(scheme, subject) for subject in laid_out))
    destinations = {(layout.regions.get(part.place), part.place) for part in writes}
    return tuple(dict.fromkeys(source for source, lead in leads if lead in destinations))


def _leads_by_stream(system: Discovered) -> Mapping[str, list[tuple[str, Lead]]]:
    """By virtual stream, the subjects that mapping rules lead to its isolated write streams, and where each leads."""
    leads: dict[str, list[tuple[str, Lead]]] = {}
    for rules in system.rules.values():
        for source, destinations in rules.items():
            pattern = _number_wildcards(naming.with_placeholders(source))
            for destination in destinations:
                cluster, _, subject = destination.split(" ", 2)
                prefix, _, rest = subject.partition(".")
                stream, _, rest = rest.partition(".")
                region, _, rest = rest.partition(".")
                if prefix == naming.PHYSICAL_PREFIX and _number_wildcards(rest) == pattern:
                    leads.setdefault(stream, []).append((source, (cluster, region)))
    return leads


def _transform_sources(parts: Iterable[MatchedStream]) -> Iterable[str]:
    """The subjects that sources look for, in their order: it is that of the topology."""
    for part in parts:
        for source in part.stream.config.sources:
            yield from (subject for subject, _ in source.transforms)


def _number_wildcards(subject: str) -> str:
    """*subject* with its wildcards in the one of two spellings: `$1` for `{{wildcard(1)}}`."""
    return _WILDCARD.sub(r"$\1", subject)


def _find_taken_over(name: str, parts: Sequence[MatchedStream]) -> str | None:
    """The plain stream that every read stream sources beside the write streams."""
    prefix = f"{name}-{Role.WRITE.value}-"
    sources = [part.stream.config.source_names for part in parts if part.role is Role.READ]
    other_sources = [{name for name in names if not name.startswith(prefix)} for names in sources if names]
    common = set.intersection(*other_sources) if other_sources else set()
    return min(common) if common else None


def _find_dangling(virtual: Iterable[RecognisedStream], system: Discovered) -> Iterable[UndescribedItem]:
    """Sources of streams that do not exist."""
    for recognised in virtual:
        for part in recognised.parts:
            config = part.stream.config
            for source in (*config.source_names, config.mirror_name):
                if source is not None and source not in system.streams:
                    text = f"takes from `{source}`, which does not exist"
                    hint = "if it belongs to a region that will come back, add the region to the stream's `regions`"
                    yield UndescribedItem(kind="field", name=config.name, text=text, hint=hint)


def _list_plain(system: Discovered, told: set[str | None]) -> Iterable[UndescribedItem]:
    """Streams that are no part of a virtual one, without those *told* of already."""
    for name, observed in sorted(system.streams.items()):
        if name in told or observed.config.owner is not None:
            continue
        fields = observed.config.fields
        listed = fields.get("subjects")
        subjects = ", ".join(str(subject) for subject in listed) if isinstance(listed, list) else ""
        where = f" in `{observed.cluster}`" if observed.cluster else ""
        text = f"is no part of a virtual stream: {observed.messages:,} messages{where}"
        can_be = fields.get("retention", "limits") == "limits" and subjects and not observed.config.source_names
        is_bucket = name.startswith(("KV_", "OBJ_"))
        hint = f"a virtual stream with `subjects: [{subjects}]` can take it over: `takes_over: {name}`"
        yield UndescribedItem(kind="stream", name=name, text=text, hint=hint if can_be and not is_bucket else None)


def match_streams(
    streams: Mapping[str, ObservedStream], owner: str | None
) -> tuple[list[MatchedStream], list[UndescribedItem]]:
    """
    The parts that virtual streams have among *streams*, and what is marked in a way that cannot be.

    For streams with the metadata of the topology *owner*, that counts; streams without any are recognised by their
    sources. Streams of other topologies are left out.
    """
    parts: list[MatchedStream] = []
    undescribed: list[UndescribedItem] = []
    other_owners = Counter[str]()
    for name, observed in sorted(streams.items()):
        if observed.config.owner is None:
            continue
        if observed.config.owner != owner:
            other_owners[observed.config.owner] += 1
        elif part := _match_by_marks(observed):
            parts.append(part)
        else:
            text = "has vstream's metadata, but not the name that follows from it"
            undescribed.append(UndescribedItem(kind="stream", name=name, text=text))
    for other_owner, number in sorted(other_owners.items()):
        hint = f"`--name {other_owner}` imports that one"
        undescribed.append(
            UndescribedItem(kind="topology", name=other_owner, text=f"owns {number:,} streams", hint=hint)
        )
    matched = {part.stream.config.name for part in parts}
    free = {
        name: observed for name, observed in streams.items() if observed.config.owner is None and name not in matched
    }
    parts.extend(_match_by_wiring(free))
    return parts, undescribed


def stream_name(virtual: str, role: Role, place: str) -> str:
    """The name of a physical stream of *virtual*. An ordering stream can have the virtual name instead."""
    return virtual if role is Role.ORIGIN else f"{virtual}-{role.value}-{place}"


def _match_by_marks(stream: ObservedStream) -> MatchedStream | None:
    marks = stream.config.metadata
    role = next((role for role in Role if role.value == marks.get(ROLE_KEY)), None)
    virtual, place = marks.get(STREAM_KEY), marks.get(REGION_KEY)
    if role is None or not virtual or not place:
        return None
    names = {stream_name(virtual, role, place), *([virtual] if role is Role.ORDER else [])}
    if stream.config.name not in names:
        return None
    return MatchedStream(virtual=virtual, role=role, place=place, stream=stream)


def _match_by_wiring(streams: Mapping[str, ObservedStream]) -> Iterator[MatchedStream]:
    """What is called and wired as physical streams are: a name alone says nothing."""
    readers = [part for name, observed in sorted(streams.items()) if (part := _find_reader(name, observed))]
    mirrored = {part.stream.config.mirror_name for part in readers}
    for name, observed in sorted(streams.items()):
        write_prefix = f"{name}-{Role.WRITE.value}-"
        if name in mirrored and any(source.startswith(write_prefix) for source in observed.config.source_names):
            readers.append(MatchedStream(virtual=name, role=Role.ORDER, place=AT_ITS_CLUSTER, stream=observed))
    yield from readers
    sourced = {source for part in readers for source in part.stream.config.source_names}
    for name, observed in sorted(streams.items()):
        if observed.config.source_names or observed.config.mirror_name:
            continue
        split = _split(name, Role.WRITE)
        if split and name in sourced:
            yield MatchedStream(virtual=split[0], role=Role.WRITE, place=split[1], stream=observed)
        elif name in mirrored:
            yield MatchedStream(virtual=name, role=Role.ORIGIN, place=AT_ITS_CLUSTER, stream=observed)


def _find_reader(name: str, stream: ObservedStream) -> MatchedStream | None:
    """The stream called *name* if it is one that is read from, or decides on an order."""
    config = stream.config
    for role in (Role.READ, Role.ORDER):
        split = _split(name, role)
        if split is None:
            continue
        virtual, place = split
        write, order = f"{virtual}-{Role.WRITE.value}-", f"{virtual}-{Role.ORDER.value}-"
        mirror = config.mirror_name or ""
        is_fed = any(source.startswith(write) for source in config.source_names)
        if is_fed or (role is Role.READ and (mirror == virtual or mirror.startswith(order))):
            return MatchedStream(virtual=virtual, role=role, place=place, stream=stream)
    return None


def _split(name: str, role: Role) -> tuple[str, str] | None:
    """The virtual stream and the place in *name*: `foo`, `west` of `foo-write-west`."""
    virtual, separator, place = name.partition(f"-{role.value}-")
    return (virtual, place) if separator and virtual and place else None
