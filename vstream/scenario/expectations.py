"""Expectations, one per bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vstream.scenario.document import ExpectDocument, ScenarioDocument
from vstream.scenario.fields import Bound, Bounds, split_pair
from vstream.scenario.model import SAFETY, Compare, Expectation, Measure
from vstream.syntax.yaml import Path, SourceMap
from vstream.topology.model import Topology

_ANYTHING: Final = Bound(Compare.AT_LEAST, 0.0)
"""`any`. It must be written: without a bound, safety is expected."""

_BY_REGION: Final = (
    Measure.PUBLISHED,
    Measure.READ,
    Measure.DELIVERED,
    Measure.CONTROL_PLANE,
    Measure.PUBLISH_TIME,
    Measure.PUBLISH_GAP,
    Measure.READ_TIME,
)
_BY_PAIR: Final = (Measure.PROPAGATION, Measure.VISIBLE)
_WHOLE: Final = (Measure.CONVERGED, *SAFETY)


def decode_expectations(document: ScenarioDocument, source: SourceMap, topology: Topology) -> Iterator[Expectation]:
    """The expectations that are written, in their order. What holds of every stream besides, the verdict knows."""
    for index, group in enumerate(document.expect):
        yield from _decode_group(group, source, ("expect", index), _find_regions_tried(document, group.in_, topology))


def _decode_group(
    group: ExpectDocument, source: SourceMap, path: Path, tried: tuple[str, ...]
) -> Iterator[Expectation]:
    def make_expectation(
        measure: Measure, bound: Bound, *inside: str, region: str | None = None, origin: str | None = None
    ) -> Expectation:
        return Expectation(
            measure=measure,
            compare=bound.compare,
            value=bound.value,
            span=source.value_span((*path, measure.value, *inside)),
            window=group.in_,
            region=region,
            stream=group.stream,
            origin=origin,
        )

    for measure in _BY_REGION:
        for region, bound in _list_bounds(group, measure):
            yield make_expectation(measure, bound, *([region] if region else []), region=region)
    for measure in _BY_PAIR:
        for name, bound in _list_bounds(group, measure):
            origin, region = split_pair(str(name))
            yield make_expectation(measure, bound, str(name), region=region, origin=origin)
    for measure in _WHOLE:
        if measure.value in group.model_fields_set:
            yield make_expectation(measure, getattr(group, measure.value) or _ANYTHING)
    if "same_order" in group.model_fields_set:
        is_one = group.same_order
        yield make_expectation(Measure.SAME_ORDER, _ANYTHING if is_one is None else Bound(Compare.EQUAL, float(is_one)))
    yield from _list_trials(group, source, path, tried)


def _list_bounds(group: ExpectDocument, measure: Measure) -> Iterator[tuple[str | None, Bound]]:
    bounds: Bounds = getattr(group, measure.value.replace("-", "_"))
    return ((name, bound) for name, bound in bounds if bound is not None)


def _list_trials(group: ExpectDocument, source: SourceMap, path: Path, tried: tuple[str, ...]) -> Iterator[Expectation]:
    for region, operation, works in group.works:
        for name in (region,) if region is not None else tried:
            yield Expectation(
                measure=Measure.WORKS,
                compare=Compare.EQUAL,
                value=float(works),
                span=source.value_span((*path, "works", *([region] if region else []), operation)),
                window=group.in_,
                region=name,
                stream=group.stream,
                operation=operation,
            )


def _find_regions_tried(document: ScenarioDocument, window: str | None, topology: Topology) -> tuple[str, ...]:
    """The regions in which the step called *window* tries operations."""
    everywhere = tuple(region.name for region in topology.regions)
    return next((step.try_ or everywhere for step in document.steps if window and step.as_ == window), everywhere)
