"""Names that point to something else in the topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.topology.buckets import unused_writers
from vstream.lint.rules.wording import closest
from vstream.syntax.quoting import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path
    from vstream.topology.document import LevelDocument, StretchDocument, TopologyDocument


@rule("VS101", "unknown-region", Severity.ERROR)
def unknown_region(subject: TopologySubject) -> Iterator[Violation]:
    """
    Something names a region that the topology does not define.

    ## Why is this bad?
    No server carries that cluster name, so neither a write stream nor a read
    stream can be placed there.
    """
    document = subject.document
    region_names = list(document.regions)
    for at, region, title, on_key in _region_names(document):
        if region not in document.regions:
            yield Violation(
                at=at,
                message=f"{title} unknown region {quote_value(region)}",
                hint=closest(region, region_names, "defined regions"),
                on_key=on_key,
            )


def _region_names(document: TopologyDocument) -> Iterator[tuple[Path, str, str, bool]]:
    """Every place that names a region: its path, the name, who names it, and whether it is a key."""
    for name, stream in document.streams.items():
        for index, region in enumerate(stream.regions if stream.regions != "all" else ()):
            yield ("streams", name, "regions", index), region, f"stream `{name}` uses", False
        if stream.home is not None:
            yield ("streams", name, "home"), stream.home, f"stream `{name}` has its home in", False
        for region in stream.overrides:
            yield ("streams", name, "overrides", region), region, f"stream `{name}` overrides", True
        for durable, consumer in stream.consumers.items():
            for index, region in enumerate(consumer.regions if consumer.regions != "all" else ()):
                yield (
                    ("streams", name, "consumers", durable, "regions", index),
                    region,
                    f"consumer `{durable}` of stream `{name}` uses",
                    False,
                )
    for region in document.hubs.hosts:
        yield ("hubs", "hosts", region), region, "`hubs` name", True
    for region in document.connect:
        yield ("connect", region), region, "`connect` names", True
    members = document.stretch.members if document.stretch else "all"
    for index, region in enumerate(members if members != "all" else ()):
        # A list has a place for each index, a map for each key.
        has_host = isinstance(members, dict) and members[region] is not None
        yield (
            ("stretch", "members", region if has_host else index),
            region,
            "the stretch cluster has a member in",
            has_host,
        )


@rule("VS114", "unknown-preset", Severity.ERROR)
def unknown_preset(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream extends a preset that the topology does not define.

    ## Why is this bad?
    Its settings would be missing without a word.
    """
    presets = list(subject.document.presets)
    for name, stream in subject.document.streams.items():
        for index, preset in enumerate(stream.extends):
            if preset not in presets:
                yield Violation(
                    at=("streams", name, "extends", index),
                    message=f"stream `{name}` extends unknown preset {quote_value(preset)}",
                    hint=closest(preset, presets, "defined presets"),
                )


@rule("VS123", "setting-without-effect", Severity.WARNING)
def setting_without_effect(subject: TopologySubject) -> Iterator[Violation]:
    """
    Something is set where it changes nothing.

    ## Why is this bad?
    Whoever wrote it believes that it holds. An override for a region in which the
    stream does not exist, ports of servers that have no host names (they get a
    layout of their own), or `writers` of a bucket with one origin, is a mistake or a leftover.
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
    yield from _unused_words(document)
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
    if stretch and "ports" in stretch.model_fields_set and not _has_hosts(stretch):
        yield Violation(
            at=("stretch", "ports"),
            message="the members of the stretch cluster have no host names, so these ports have no effect",
            hint="write `members` as a map of regions to host names, or remove the ports",
            on_key=True,
        )


def _unused_words(document: TopologyDocument) -> Iterator[Violation]:
    """Words that the consistency model of their stream gives no meaning to."""
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
                message=f"stream `{name}` is `{stream.consistency}` and has no ordering stream, so this has no effect",
                hint="write `consistency: ordered`, or remove `virtual_name`",
                on_key=True,
            )
        has_origin = stream.consistency in {"stretch", "homed"}
        for region, override in stream.overrides.items():
            if has_origin and region != stream.home and override.write.model_fields_set:
                yield Violation(
                    at=("streams", name, "overrides", region, "write"),
                    message=f"nothing of stream `{name}` takes publishes in region `{region}`, so this has no effect",
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


def _has_hosts(stretch: StretchDocument) -> bool:
    return stretch.members != "all" and None not in stretch.members.values()
