"""From a scenario's workload to what each process of a run is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from vstream.runner.client_checks import Target
from vstream.runner.workload.spec import (
    ConsumerSpec,
    Login,
    PublisherSpec,
    ReaderSpec,
    SampledRegion,
    SamplerSpec,
    WorkerSpec,
)
from vstream.scenario.model import Publishers, ReaderKind, Readers, Retry, Try
from vstream.topology import naming

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vstream.runner.environment import Environment
    from vstream.scenario.model import Scenario
    from vstream.topology.model import Endpoint

_One = TypeVar("_One", Publishers, Readers)


def workers(scenario: Scenario, stage: Environment, capture: Path, start: int) -> tuple[WorkerSpec, ...]:
    """One for each region that clients are in. *start* is the capture's, on the monotonic clock."""
    found = (
        WorkerSpec(
            region=region.name,
            urls=stage.clients[region.name].urls,
            login=_login(stage.clients[region.name]),
            logs=stage.logs,
            start=start,
            seed=scenario.seed,
            capture=capture,
            publishers=tuple(_publishers(scenario, stage, region.name)),
            readers=tuple(_readers(scenario, stage, region.name)),
            consumers=tuple(_consumers(scenario, stage, region.name)),
        )
        for region in stage.topology.regions
    )
    return tuple(one for one in found if one.publishers or one.readers or one.consumers)


def sampler(stage: Environment, capture: Path, start: int) -> SamplerSpec:
    """All regions, each with the streams that live there."""
    names = {region.name for region in stage.topology.regions}
    others = {name: names - {name} for name in names}
    return SamplerSpec(
        start=start,
        logs=stage.logs,
        capture=capture,
        regions=tuple(
            SampledRegion(
                name=region.name,
                urls=stage.endpoints[region.name].urls,
                login=_login(stage.endpoints[region.name]),
                monitor=stage.endpoints[region.name].monitor,
                # What lives in the stretch cluster is asked for everywhere: some region may still reach it.
                streams=tuple(one.config.name for one in stage.bundle.streams if one.region not in others[region.name]),
            )
            for region in stage.topology.regions
        ),
    )


def targets(scenario: Scenario, stage: Environment, number: int, regions: tuple[str, ...]) -> tuple[Target, ...]:
    """What `try` step *number* tries: every virtual stream of each of *regions*."""
    return tuple(
        Target(
            region=region,
            cluster=stage.topology.region(region).cluster,
            stream=stream.name,
            read=stage.read_stream(stream.name, region),
            # What really bears the name is not mapped.
            bound=naming.local_name(stage.read_stream(stream.name, region))
            if stream.consistency.has_origin
            else stream.name,
            written=stage.written(stream.name, region),
            subject=_a_subject(scenario, stream.name, region) or naming.probe_subject(stream.subjects[0]),
            number=number,
        )
        for region in regions
        for stream in stage.topology.streams
        if region in stream.regions
    )


def tried_regions(scenario: Scenario) -> tuple[str, ...]:
    """The regions that some `try` step tries."""
    tries = (step.action for step in scenario.steps if isinstance(step.action, Try))
    return tuple(dict.fromkeys(region for one in tries for region in one.regions))


def _a_subject(scenario: Scenario, stream: str, region: str) -> str | None:
    for publishers in scenario.workload.publishers:
        if publishers.stream == stream:
            subject = publishers.subject.replace("{region}", region)
            return subject.replace("{key}", "0").replace("{n}", "0")
    return None


def _login(endpoint: Endpoint) -> Login | None:
    said = {one.name: getattr(endpoint, one.name) for one in fields(Login)}
    return Login(**said) if any(said.values()) else None


def _publishers(scenario: Scenario, stage: Environment, region: str) -> Iterator[PublisherSpec]:
    for number, one in _with_numbers(scenario.workload.publishers, region):
        yield PublisherSpec(
            client=f"{region}/publish-{one.stream}{number}",
            prefix=f"{region}/{one.stream}{number}/",
            stream=one.stream,
            written=stage.written(one.stream, region),
            subject=one.subject.replace("{region}", region),
            rate=one.rate,
            size=one.size,
            keys=one.keys,
            is_retrying=one.retry is Retry.SAME_ID,
            timeout=one.timeout,
            give_up=one.give_up,
        )


def _readers(scenario: Scenario, stage: Environment, region: str) -> Iterator[ReaderSpec]:
    written = scenario.workload.publishers
    for number, one in _with_numbers(scenario.workload.readers, region):
        if one.kind is ReaderKind.CONSUMER:
            continue
        yield ReaderSpec(
            client=f"{region}/{one.kind.value}-{one.stream}{number}",
            stream=one.stream,
            read=stage.read_stream(one.stream, region),
            rate=one.rate,
            timeout=one.timeout,
            is_sequential=one.kind is ReaderKind.SEQUENCE,
            subjects=tuple(
                (publishers.subject.replace("{region}", origin), publishers.keys, publishers.rate)
                for publishers in written
                if publishers.stream == one.stream
                for origin in publishers.regions
            ),
        )


def _consumers(scenario: Scenario, stage: Environment, region: str) -> Iterator[ConsumerSpec]:
    for number, one in _with_numbers(scenario.workload.readers, region):
        if one.kind is ReaderKind.CONSUMER:
            yield ConsumerSpec(
                client=f"{region}/consumer-{one.stream}{number}",
                stream=one.stream,
                physical=naming.local_name(stage.read_stream(one.stream, region)),
                name=f"vstream-{region}{number}",
                rate=one.rate,
                timeout=one.timeout,
            )


def _with_numbers(some: tuple[_One, ...], region: str) -> Iterator[tuple[str, _One]]:
    """Those of *region*, each with what tells it from others of its stream and kind: nothing for the first."""
    seen: Counter[tuple[str, ReaderKind | None]] = Counter()
    for one in some:
        if region in one.regions:
            kind = one.stream, one.kind if isinstance(one, Readers) else None
            seen[kind] += 1
            yield ("" if seen[kind] == 1 else f"-{seen[kind]}"), one
