"""What the consistency models can guarantee, counters included, and what streams must survive."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.formatting import summarize_names
from vstream.lint.detect import split_words
from vstream.lint.rule import Violation, once_per_place, rule
from vstream.lint.rules.topology.context import PhysicalSettings, TopologySubject
from vstream.syntax.yaml import Path
from vstream.topology.decode import list_levels
from vstream.topology.model import COUNTERS_SINCE, Consistency, Naming, Role, Topology, VirtualStream
from vstream.topology.profiles import profile_of
from vstream.topology.replication import physical_streams
from vstream.topology.survival import Ability, Failure, find_worst_cell
from vstream.topology.units import format_version


@rule("VS105", "model-cannot", Severity.ERROR)
@once_per_place
def model_cannot(subject: TopologySubject) -> Iterator[Violation]:
    """
    A setting cannot be applied to a mirror.

    ## Why is this bad?
    The read streams of `ordered`, `stretch` and `homed` streams are mirrors. Servers refuse a mirror with counters,
    schedules, batches, delete markers or a first sequence, or with a smaller message size than its origin
    (server/stream.go, checkStreamCfg), and `apply` stops there.
    """
    for physical in subject.physical:
        if not physical.is_mirror:
            continue
        for at, key, message, hint in _list_refusals(subject, physical):
            yield Violation(at=at, message=message, hint=hint, on_key=key)


def _list_refusals(subject: TopologySubject, physical: PhysicalSettings) -> Iterator[tuple[Path, bool, str, str]]:
    """What servers refuse for one mirror: its path, whether to point at the key, the message and the hint."""
    for path, level in list_levels(subject.document, physical.stream, physical.region, physical.role):
        for key, value in (level.config or {}).items():
            if key.lower() in _NOT_FOR_MIRRORS and value:
                yield (
                    (*path, "config", key),
                    True,
                    f"`{key}` cannot be set on the read streams of `{physical.stream}`, which are mirrors",
                    "write it under `write`: it then applies to the stream that stores publishes",
                )
    mine = physical.fields["max_msg_size"]
    theirs = []
    for stream in subject.topology.streams:
        if stream.name == physical.stream:
            for part in physical_streams(stream):
                if part.role in {Role.ORIGIN, Role.ORDER}:
                    theirs.append(part.fields["max_msg_size"])
    if any(isinstance(size, int) and 0 < mine < size for size in theirs):
        yield (
            subject.locate(physical, "max_msg_size"),
            False,
            f"the read streams of `{physical.stream}` accept only smaller messages than the stream they mirror",
            "give both the same `max_msg_size`",
        )


_NOT_FOR_MIRRORS = split_words(
    "allow_atomic allow_batched allow_msg_counter allow_msg_schedules first_seq subject_delete_marker_ttl"
)


@rule("VS129", "model-needs-stretch", Severity.ERROR)
def model_needs_stretch(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream's consistency model needs a stretch cluster, and the topology has none.

    ## Why is this bad?
    A `stretch` stream lives in the stretch cluster, and so does the stream that gives
    an `ordered` stream its order. The cluster of a region cannot replace it: it is lost with its region.
    """
    if subject.document.stretch is not None or profile_of(subject.topology).has_domains:
        return  # a domain could not have one (VS136)
    for stream in subject.topology.streams:
        if stream.consistency.needs_stretch:
            yield Violation(
                at=("streams", stream.name, "consistency"),
                message=f"consistency `{stream.consistency.value}` needs a stretch cluster",
                hint="add `stretch: {members: all}` to the topology, or choose `virtual` or `homed`",
            )


@rule("VS130", "home-missing", Severity.ERROR)
def home_missing(subject: TopologySubject) -> Iterator[Violation]:
    """
    A homed stream has no home among its regions.

    ## Why is this bad?
    All publishes go to one stream in one region. Only you know which: that region has the fastest writes, and while it
    is down, no region can write.
    """
    for stream in subject.topology.streams:
        home = subject.document.streams[stream.name].home
        if stream.consistency is not Consistency.HOMED:
            continue
        if home is None:
            yield Violation(
                at=("streams", stream.name),
                message=f"stream `{stream.name}` is homed, but has no `home`",
                hint=f"add `home: {stream.regions[0] if stream.regions else 'REGION'}`",
                on_key=True,
            )
        elif home in subject.document.regions and home not in stream.regions:
            yield Violation(
                at=("streams", stream.name, "home"),
                message=f"stream `{stream.name}` does not exist in its home `{home}`",
                hint=f"add `{home}` to the stream's `regions`, or choose one of them",
            )


@rule("VS150", "order-not-named", Severity.ERROR)
def order_not_named(subject: TopologySubject) -> Iterator[Violation]:
    """
    `virtual_name: order` is set where the ordering stream cannot have the virtual name.

    ## Why is this bad?
    With `routing: mapped` clients and streams share an account, so clients that use the virtual name reach an ordering
    stream of that name. With `accounts` and `regional`, the ordering stream is in a separate account, which clients do
    not reach: they use their region's copy, on which they can create consumers anyway. With `naming: blog` the write
    streams list subjects below the virtual ones, and servers refuse an ordering stream that lists these.
    """
    topology = subject.topology
    for name, stream in subject.document.streams.items():
        if stream.virtual_name != "order" or stream.consistency != Consistency.ORDERED.value:
            continue  # of another model, it has no effect (VS123)
        if not profile_of(topology).has_physical_names:
            message = f"with `routing: {topology.routing.value}`, clients do not find the ordering stream of `{name}`"
            hint = (
                "remove `virtual_name`: clients can create consumers on their region's copy; or use `routing: mapped`"
            )
        elif topology.naming is Naming.BLOG:
            message = f"with `naming: blog`, the write streams of `{name}` list subjects that its ordering stream would list too"
            hint = "use `naming: isolated`, or remove `virtual_name`"
        else:
            continue
        yield Violation(at=("streams", name, "virtual_name"), message=message, hint=hint, on_key=True)


@rule("VS125", "key-value-diverges", Severity.WARNING)
def key_value_diverges(subject: TopologySubject) -> Iterator[Violation]:
    """
    A key/value bucket or an object store is declared as a virtual stream.

    ## Why is this bad?
    Two regions that write the same key at the same time see the two writes in
    different orders, and keep different values for ever. `create` succeeds in
    several regions at once, and `update` compares revisions of two different
    streams. Buckets whose keys are each written in one region only are safe. An
    `ordered` stream does not diverge, but its revisions cannot be compared either.
    """
    for stream in subject.topology.streams:
        if stream.consistency.has_origin or stream.is_bucket:
            continue
        for index, subject_pattern in enumerate(stream.subjects):
            root = subject_pattern.partition(".")[0]
            if root not in _BUCKETS:
                continue
            described = f"{_BUCKETS[root]} over several regions"
            is_ordered = stream.consistency is Consistency.ORDERED
            yield Violation(
                at=("streams", stream.name, "subjects", index),
                message=f"{described} compares revisions of two different streams: `create` and `update` guarantee nothing"
                if is_ordered
                else f"{described} diverges where two of them write the same key",
                hint=f"declare it under `{_SECTIONS[root]}`, where each model states its guarantees; or choose `homed` or `stretch`",
            )


_SECTIONS = {"$KV": "kv", "$O": "objects"}
_BUCKETS = {"$KV": "a key/value bucket", "$O": "an object store"}


_FORGETS = ("max_age", "max_msgs", "max_bytes")


@rule("VS146", "counter-cannot", Severity.ERROR)
@once_per_place
def counter_cannot(subject: TopologySubject) -> Iterator[Violation]:
    """
    A counter stream has a setting that counters do not allow.

    ## Why is this bad?
    Counters exist since nats-server 2.12: an older one stores increments as ordinary messages, and nothing adds up.
    Servers refuse counters with `discard: new` and with TTLs of single messages (server/stream.go, checkStreamCfg), and
    refuse any message that is not an increment, such as a canary or an older message of a plain stream.
    """
    for name, stream in subject.document.streams.items():
        if not stream.counters:
            continue
        at: Path = ("streams", name)
        if subject.topology.server_version < COUNTERS_SINCE:
            yield Violation(
                at=(*at, "counters"),
                message=f"counters need nats-server {format_version(COUNTERS_SINCE)}, the topology says "
                f"{format_version(subject.topology.server_version)}",
                hint=f'raise `server_version` to "{format_version(COUNTERS_SINCE)}" if all servers are that new',
                on_key=True,
            )
        for word, why in (
            ("canary", "servers refuse a message that is not an increment, and would add one that is"),
            ("takes_over", "the messages of a plain stream are not increments"),
        ):
            if getattr(stream, word) is not None:
                yield Violation(
                    at=(*at, word),
                    message=f"`{word}` cannot be combined with the counters of `{name}`: {why}",
                    hint="remove it",
                    on_key=True,
                )
    for physical in subject.physical:
        if not subject.document.streams[physical.stream].counters:
            continue
        for word, field, bad in (("discard", "discard", "new"), ("allow_msg_ttl", "allow_msg_ttl", True)):
            if physical.fields.get(field) == bad:
                yield Violation(
                    at=subject.locate(physical, word),
                    message=f"servers refuse the counters of `{physical.stream}` with `{word}`",
                    hint="remove it",
                )


@rule("VS147", "counter-forgets", Severity.ERROR)
@once_per_place
def counter_forgets(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream that sums the counters of several regions removes them after a while.

    ## Why is this bad?
    The last message of a write stream holds the sum of its region, and other streams add the difference to the last one
    that they saw. A write stream that has removed a counter starts again at 0, and every region subtracts the whole
    sum. A read stream that has removed a counter shows only what regions have counted since. `max_msgs_per_subject: 1`
    bounds such a stream safely: the last message of each counter is the whole sum.
    """
    for physical in subject.physical:
        adds_up = physical.role in {Role.WRITE, Role.ORDER, Role.READ} and not physical.is_mirror
        if not adds_up or not subject.document.streams[physical.stream].counters:
            continue
        for word in _FORGETS:
            limit = physical.fields[word]
            places = subject.list_paths(physical, word)
            if isinstance(limit, int) and limit > 0 and places:
                yield Violation(
                    at=places[-1],
                    message=f"the {physical.role.value} streams of `{physical.stream}` would forget counters, which makes sums wrong in every region from then on",
                    hint=f"write `{word}: unlimited` for this stream; `max_msgs_per_subject: 1` bounds it",
                )


@rule("VS175", "survival-not-met", Severity.ERROR)
def survival_not_met(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream does not survive what `survive` demands.

    ## Why is this bad?
    `survive` states what must keep working when a server, a zone or a region fails, and this topology cannot deliver
    it. What a stream survives depends on its consistency model, its replicas, its regions and the stretch cluster.
    `vstream survive` shows the whole table with a reason for each cell, and `--rehearse` tries it on a lab.
    """
    streams = [stream for stream in subject.topology.streams if _is_whole(subject.topology, stream)]
    for failure in Failure:
        general = getattr(subject.document.survive, failure.value)
        settled = [stream for stream in streams if not _demands_of(subject, stream, failure)]
        for index, word in enumerate(general):
            yield from _unmet(subject.topology, settled, failure, Ability(word), ("survive", failure.value, index))
        for stream in streams:
            for index, word in enumerate(_demands_of(subject, stream, failure)):
                at = ("streams", stream.name, "survive", failure.value, index)
                yield from _unmet(subject.topology, [stream], failure, Ability(word), at)


def _demands_of(subject: TopologySubject, stream: VirtualStream, failure: Failure) -> list[str]:
    """What the stream itself demands, which then counts instead of what the topology demands of all."""
    demanded: list[str] = getattr(subject.document.streams[stream.name].survive, failure.value)
    return demanded


def _unmet(
    topology: Topology, streams: list[VirtualStream], failure: Failure, ability: Ability, at: Path
) -> Iterator[Violation]:
    cells = [find_worst_cell(topology, stream, failure, ability) for stream in streams]
    unmet = [cell for cell in cells if not cell.ruling.answer.is_survival]
    if not unmet:
        return
    names = summarize_names([cell.stream for cell in unmet])
    incident = f" ({unmet[0].incident.name})" if unmet[0].incident is not None else ""
    yield Violation(
        at=at,
        message=f"`{failure.value}: {ability.value}` does not hold for {names}{incident}: {unmet[0].ruling.reason}",
        hint="`vstream survive` shows what each stream survives and why; change the stream, or remove the demand",
    )


def _is_whole(topology: Topology, stream: VirtualStream) -> bool:
    """Whether all that the stream needs is there: what is missing has an error of its own."""
    regions = {region.name for region in topology.regions}
    places = {*regions, *((topology.stretch.cluster,) if topology.stretch else ())}
    parts = physical_streams(stream)
    takes_writes = any(part.role in {Role.WRITE, Role.ORIGIN} for part in parts)
    has_order = not stream.consistency.needs_stretch or topology.stretch is not None
    is_placed = set(stream.regions) <= regions and all(part.place in places for part in parts)
    return bool(stream.regions) and takes_writes and has_order and is_placed
