"""From a scenario's workload to the instructions for each process of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from vstream.runner.client_checks import Target
from vstream.runner.environment import Environment
from vstream.runner.workload.spec import (
    ConsumerSpec,
    PublisherSpec,
    ReaderSpec,
    SampledRegion,
    SamplerSpec,
    WorkerSpec,
)
from vstream.scenario.model import Publishers, ReaderKind, Readers, Retry, Scenario, Try
from vstream.topology import naming

_One = TypeVar("_One", Publishers, Readers)


def workers(scenario: Scenario, stage: Environment, capture: Path, start: int) -> tuple[WorkerSpec, ...]:
    """One per region with clients. *start* is the capture's start on the monotonic clock."""
    specs = []
    for region in stage.topology.regions:
        spec = WorkerSpec(
            region=region.name,
            endpoint=stage.clients[region.name],
            logs=stage.logs,
            start=start,
            seed=scenario.seed,
            capture=capture,
            publishers=tuple(_publishers(scenario, stage, region.name)),
            readers=tuple(_readers(scenario, stage, region.name)),
            consumers=tuple(_consumers(scenario, stage, region.name)),
        )
        if spec.publishers or spec.readers or spec.consumers:
            specs.append(spec)
    return tuple(specs)


def sampler(stage: Environment, capture: Path, start: int) -> SamplerSpec:
    """All regions, each with its physical streams."""
    names = {region.name for region in stage.topology.regions}
    elsewhere = {name: names - {name} for name in names}
    regions = []
    for region in stage.topology.regions:
        regions.append(
            SampledRegion(
                name=region.name,
                endpoint=stage.endpoints[region.name],
                # What lives in the stretch cluster is asked for everywhere: some region may still reach it.
                streams=tuple(
                    stream.config.name for stream in stage.bundle.streams if stream.region not in elsewhere[region.name]
                ),
            )
        )
    return SamplerSpec(
        start=start,
        logs=stage.logs,
        capture=capture,
        regions=tuple(regions),
    )


def targets(scenario: Scenario, stage: Environment, number: int, regions: tuple[str, ...]) -> tuple[Target, ...]:
    """The targets of `try` step *number*: every virtual stream in each of *regions*."""
    targets = []
    for region in regions:
        for stream in stage.topology.streams:
            if region in stream.regions:
                targets.append(
                    Target(
                        region=region,
                        cluster=stage.topology.region(region).cluster,
                        stream=stream.name,
                        read=stage.read_stream(stream.name, region),
                        # What really bears the name is not mapped.
                        bound=naming.local_name(stage.read_stream(stream.name, region))
                        if stream.consistency.has_origin
                        else stream.name,
                        written=stage.write_stream(stream.name, region),
                        subject=_a_subject(scenario, stream.name, region) or naming.probe_subject(stream.subjects[0]),
                        number=number,
                    )
                )
    return tuple(targets)


def tried_regions(scenario: Scenario) -> tuple[str, ...]:
    """The regions of all `try` steps."""
    tries = (step.action for step in scenario.steps if isinstance(step.action, Try))
    return tuple(dict.fromkeys(region for action in tries for region in action.regions))


def _a_subject(scenario: Scenario, stream: str, region: str) -> str | None:
    for publishers in scenario.workload.publishers:
        if publishers.stream == stream:
            subject = publishers.subject.replace("{region}", region)
            return subject.replace("{key}", "0").replace("{n}", "0")
    return None


def _publishers(scenario: Scenario, stage: Environment, region: str) -> Iterator[PublisherSpec]:
    for number, publishers in _with_numbers(scenario.workload.publishers, region):
        yield PublisherSpec(
            client=f"{region}/publish-{publishers.stream}{number}",
            prefix=f"{region}/{publishers.stream}{number}/",
            stream=publishers.stream,
            written=stage.write_stream(publishers.stream, region),
            subject=publishers.subject.replace("{region}", region),
            rate=publishers.rate,
            size=publishers.size,
            keys=publishers.keys,
            is_retrying=publishers.retry is Retry.SAME_ID,
            timeout=publishers.timeout,
            give_up=publishers.give_up,
        )


def _readers(scenario: Scenario, stage: Environment, region: str) -> Iterator[ReaderSpec]:
    written = scenario.workload.publishers
    for number, readers in _with_numbers(scenario.workload.readers, region):
        if readers.kind is ReaderKind.CONSUMER:
            continue
        subjects = []
        for publishers in written:
            if publishers.stream == readers.stream:
                for origin in publishers.regions:
                    subjects.append((publishers.subject.replace("{region}", origin), publishers.keys, publishers.rate))
        yield ReaderSpec(
            client=f"{region}/{readers.kind.value}-{readers.stream}{number}",
            stream=readers.stream,
            read=stage.read_stream(readers.stream, region),
            rate=readers.rate,
            timeout=readers.timeout,
            is_sequential=readers.kind is ReaderKind.SEQUENCE,
            subjects=tuple(subjects),
        )


def _consumers(scenario: Scenario, stage: Environment, region: str) -> Iterator[ConsumerSpec]:
    for number, readers in _with_numbers(scenario.workload.readers, region):
        if readers.kind is ReaderKind.CONSUMER:
            yield ConsumerSpec(
                client=f"{region}/consumer-{readers.stream}{number}",
                stream=readers.stream,
                physical=naming.local_name(stage.read_stream(readers.stream, region)),
                name=f"vstream-{region}{number}",
                rate=readers.rate,
                timeout=readers.timeout,
            )


def _with_numbers(some: tuple[_One, ...], region: str) -> Iterator[tuple[str, _One]]:
    """Those of *region*, each with what tells it from others of its stream and kind: nothing for the first."""
    seen: Counter[tuple[str, ReaderKind | None]] = Counter()
    for item in some:
        if region in item.regions:
            kind = item.stream, item.kind if isinstance(item, Readers) else None
            seen[kind] += 1
            yield ("" if seen[kind] == 1 else f"-{seen[kind]}"), item
