"""Settings of streams: what they may be, whose they are, and what has no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vstream.findings import Severity
from vstream.formatting import format_count
from vstream.lint.api_fields import STREAM_FIELDS
from vstream.lint.rule import Violation, once_per_place, rule
from vstream.lint.rules.topology.buckets import unused_writers
from vstream.lint.rules.topology.context import PhysicalSettings, TopologySubject
from vstream.syntax.yaml import Path
from vstream.topology import schema_errors
from vstream.topology.decode import SETTING_WORDS
from vstream.topology.document import LevelDocument, TopologyDocument
from vstream.topology.fields import MIN_AGE_NS
from vstream.topology.model import DEDUPE_OFF_SINCE, Role
from vstream.topology.units import format_version, spell_nanoseconds


@rule("VS104", "too-many-replicas", Severity.ERROR)
def too_many_replicas(subject: TopologySubject) -> Iterator[Violation]:
    """
    A physical stream needs more replicas than its region has servers.

    ## Why is this bad?
    The servers answer `no suitable peers for placement`, and `apply` stops there.
    """
    seen: set[tuple[Path, str]] = set()
    for physical in subject.physical:
        servers = len(subject.topology.servers_at(physical.region))
        replicas = physical.fields["num_replicas"]
        if replicas <= servers:
            continue
        at = subject.locate(physical, "replicas")
        if (at, physical.region) not in seen:
            seen.add((at, physical.region))
            yield Violation(
                at=at,
                message=f"stream `{physical.stream}` wants {replicas} replicas, "
                f"{subject.describe_place(physical.region)} has {format_count(servers, 'server')}",
                hint=_fewer_replicas(subject, physical),
            )


def _fewer_replicas(subject: TopologySubject, physical: PhysicalSettings) -> str:
    if physical.region not in subject.document.regions:
        return "lower `replicas`, or give the stretch cluster more members"
    if physical.stream not in subject.written:
        return "lower `replicas`"
    return f"lower `replicas`, or set it for this region under `overrides: {{{physical.region}: …}}`"


@rule("VS107", "outage-not-stated", Severity.ERROR)
def outage_not_stated(subject: TopologySubject) -> Iterator[Violation]:
    """
    A write stream sets no limit on how long it keeps its messages.

    ## Why is this bad?
    The write stream's `max_age` is the longest outage that loses nothing: a region that is cut off for longer never
    receives what expired meanwhile. Without a limit the write streams grow for ever. Only you know the right value.
    """
    seen: set[str] = set()
    for physical in subject.physical:
        if physical.role is not Role.WRITE or physical.stream in seen or subject.list_paths(physical, "max_age"):
            continue
        if subject.may_set_more(physical):
            continue
        seen.add(physical.stream)
        yield Violation(
            at=("streams", physical.stream),
            message=(
                f"stream `{physical.stream}` sets no `max_age`, which decides how long an outage may last without loss"
            ),
            hint="set `write: {max_age: 24h}` here or under `defaults` (`unlimited` keeps everything)",
            on_key=True,
        )


@rule("VS113", "bad-duplicate-window", Severity.ERROR)
@once_per_place
def bad_duplicate_window(subject: TopologySubject) -> Iterator[Violation]:
    """
    A duplicate window has a value that servers refuse or misread.

    ## Why is this bad?
    A window may not be longer than `max_age` nor shorter than 100 ms (server/stream.go, checkStreamCfg). Before 2.14 a
    window of 0 meant 2 minutes, in which a read stream drops the second of two messages with the same `Nats-Msg-Id`
    from two regions, and regions keep different ones.
    """
    for physical in subject.physical:
        message = None if physical.is_mirror else _find_window_problem(subject, physical)
        if message:
            window = physical.fields["duplicate_window"]
            yield Violation(
                at=subject.locate(physical, "duplicate_window"),
                message=f"the {physical.role.value} stream's duplicate_window of "
                f"{spell_nanoseconds(window) if window else '0s'} {message}",
                hint="set `duplicate_window` between 100ms and `max_age`",
            )


def _find_window_problem(subject: TopologySubject, physical: PhysicalSettings) -> str | None:
    window, max_age = physical.fields["duplicate_window"], physical.fields["max_age"]
    if max_age and window > max_age:
        return f"is longer than its max_age of {spell_nanoseconds(max_age)}"
    if 0 < window < MIN_AGE_NS:
        return "is shorter than the 100ms that servers accept"
    if window == 0 and (
        physical.role in {Role.WRITE, Role.ORIGIN} or subject.topology.server_version < DEDUPE_OFF_SINCE
    ):
        return "means 2 minutes to a server"
    return None


@rule("VS116", "read-stream-refuses", Severity.ERROR)
@once_per_place
def read_stream_refuses(subject: TopologySubject) -> Iterator[Violation]:
    """
    A read stream refuses messages once it is full.

    ## Why is this bad?
    With `discard: new`, a full read stream refuses messages of its sources. Servers retry for ever, and the region
    falls behind without an error.
    """
    for physical in subject.physical:
        if physical.role in {Role.READ, Role.ORDER} and physical.fields["discard"] == "new":
            yield Violation(
                at=subject.locate(physical, "discard"),
                message=(
                    f"the {physical.role.value} stream of `{physical.stream}` would refuse messages of its "
                    "sources once it is full"
                ),
                hint="use `discard: old` on it; `write: {discard: new}` pushes back on publishers",
            )


@rule("VS127", "rollup-without-purge", Severity.ERROR)
@once_per_place
def rollup_without_purge(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream allows roll-ups and denies purging.

    ## Why is this bad?
    A roll-up purges all earlier messages. Servers refuse the stream: "roll-ups require the purge permission".
    """
    for physical in subject.physical:
        if physical.fields["allow_rollup_hdrs"] and physical.fields["deny_purge"]:
            yield Violation(
                at=subject.locate(physical, "deny_purge"),
                message=f"the {physical.role.value} stream of `{physical.stream}` allows roll-ups, which purge messages",
                hint="remove `deny_purge` or `allow_rollup`",
            )


@rule("VS111", "field-belongs-to-vstream", Severity.ERROR)
def field_belongs_to_vstream(subject: TopologySubject) -> Iterator[Violation]:
    """
    `config` or `metadata` sets a value that only vstream may set.

    ## Why is this bad?
    Names, subjects, sources, placement and retention make the virtual stream work; other values would break it in a way
    that only shows during an outage. Fields that have their own key in the topology language are set by that key.
    """
    for path, level in subject.setting_levels():
        for key in level.config or {}:
            name = key.lower()  # Servers read keys in any mixture of cases.
            if name in schema_errors.NOT_IN_STREAMS:
                message = f"`{key}` is set by vstream: {schema_errors.NOT_IN_STREAMS[name]}"
                hint = schema_errors.advice_for(name)
            elif name in SETTING_WORDS:
                message = f"`{key}` has its own key in the topology language"
                hint = f"write `{SETTING_WORDS[name]}` beside `config`"
            else:
                continue
            yield Violation(at=(*path, "config", key), message=message, hint=hint, on_key=True)
        yield from check_metadata(path, level.metadata or {})


def check_metadata(path: Path, metadata: Iterable[str]) -> Iterator[Violation]:
    """Find keys of *metadata* at *path* that are not the user's to write."""
    for key in metadata:
        if key.startswith(("vstream.", "_nats.")):
            message = f"metadata `{key}` is written by {'vstream' if key[0] == 'v' else 'the servers'}"
            yield Violation(at=(*path, "metadata", key), message=message, hint="choose another prefix", on_key=True)


@rule("VS112", "needs-newer-server", Severity.ERROR)
def needs_newer_server(subject: TopologySubject) -> Iterator[Violation]:
    """
    A setting needs a newer server than the topology's `server_version`.

    ## Why is this bad?
    An older server silently drops unknown fields (2.11 and before) or refuses them (2.12 and later).
    """
    oldest = subject.topology.server_version
    for path, level in subject.setting_levels():
        written: list[tuple[Path, str]] = [((*path, "config", key), key) for key in level.config or {}]
        if level.allow_msg_ttl is not None:
            written.append(((*path, "allow_msg_ttl"), "allow_msg_ttl"))
        for at, key in written:
            field = STREAM_FIELDS.get(key.lower())
            if field is not None and oldest < (since := field.since):
                yield Violation(
                    at=at,
                    message=f"`{key}` needs nats-server {format_version(since)}, the topology says {format_version(oldest)}",
                    hint=f'raise `server_version` to "{format_version(since)}" if all servers are that new',
                    on_key=True,
                )


@rule("VS123", "setting-without-effect", Severity.WARNING)
def setting_without_effect(subject: TopologySubject) -> Iterator[Violation]:
    """
    A setting has no effect.

    ## Why is this bad?
    It looks as if it applied. An override for a region in which the stream does not exist, ports of servers without
    host names (vstream chooses those ports), or `writers` of a bucket with a single origin is a mistake or a leftover.
    """
    document = subject.document
    for name, stream in document.streams.items():
        for region in stream.overrides if stream.regions != "all" else ():
            if region in document.regions and region not in stream.regions:
                yield Violation(
                    at=("streams", name, "overrides", region),
                    message=f"stream `{name}` does not exist in region `{region}`, so this override has no effect",
                    hint=f"add `{region}` to the stream's `regions`, or remove the override",
                    on_key=True,
                )
    yield from _check_unused_words(document)
    yield from unused_writers(subject)
    for region, settings in document.regions.items():
        if "ports" in settings.model_fields_set and None in settings.servers:
            yield Violation(
                at=("regions", region, "ports"),
                message=f"the servers of region `{region}` have no host names, so these ports have no effect",
                hint="list host names under `servers`, or remove the ports",
                on_key=True,
            )
    stretch = document.stretch
    if (
        stretch
        and stretch.leader in document.regions
        and stretch.members != "all"
        and stretch.leader not in stretch.members
    ):
        yield Violation(
            at=("stretch", "leader"),
            message=f"region `{stretch.leader}` has no member of the stretch cluster, so it cannot lead",
            hint="name one of its `members`",
        )
    has_no_hosts = stretch and (stretch.members == "all" or None in stretch.members.values())
    if stretch and "ports" in stretch.model_fields_set and has_no_hosts:
        yield Violation(
            at=("stretch", "ports"),
            message="the members of the stretch cluster have no host names, so these ports have no effect",
            hint="write `members` as a map of regions to host names, or remove the ports",
            on_key=True,
        )


def _check_unused_words(document: TopologyDocument) -> Iterator[Violation]:
    """Settings that have no effect in the consistency model of their stream."""
    for name, stream in document.streams.items():
        if stream.home is not None and stream.consistency != "homed":
            yield Violation(
                at=("streams", name, "home"),
                message=f"stream `{name}` is `{stream.consistency}`, so its `home` has no effect",
                hint="write `consistency: homed`, or remove `home`",
                on_key=True,
            )
        if stream.virtual_name == "order" and stream.consistency != "ordered":
            yield Violation(
                at=("streams", name, "virtual_name"),
                message=f"stream `{name}` is `{stream.consistency}` without an ordering stream, so this has no effect",
                hint="write `consistency: ordered`, or remove `virtual_name`",
                on_key=True,
            )
        has_origin = stream.consistency in {"stretch", "homed"}
        for region, override in stream.overrides.items():
            if has_origin and region != stream.home and override.write.model_fields_set:
                yield Violation(
                    at=("streams", name, "overrides", region, "write"),
                    message=f"no stream of `{name}` stores publishes in region `{region}`, so this has no effect",
                    hint="write it under the stream's own `write`, or remove it",
                    on_key=True,
                )
        levels: list[tuple[Path, LevelDocument]] = [(("streams", name), stream)]
        levels.extend((("streams", name, "overrides", region), level) for region, level in stream.overrides.items())
        for path, level in levels:
            if level.read.duplicate_window is not None and stream.consistency != "virtual":
                yield Violation(
                    at=(*path, "read", "duplicate_window"),
                    message=f"the read streams of `{name}` are mirrors, which do not deduplicate: this has no effect",
                    hint="write it under `write`" + (" or `order`" if stream.consistency == "ordered" else ""),
                    on_key=True,
                )
            if level.order.model_fields_set and (stream.consistency != "ordered" or "overrides" in path):
                yield Violation(
                    at=(*path, "order"),
                    message=f"stream `{name}` is `{stream.consistency}`, so `order` has no effect"
                    if stream.consistency != "ordered"
                    else f"the ordering stream of `{name}` lives in no region, so this override has no effect",
                    hint="write it beside `consistency: ordered`, or remove it",
                    on_key=True,
                )
