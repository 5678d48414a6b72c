"""From a valid document to a scenario: defaults are filled in, and bounds become expectations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from vstream.findings import Span
from vstream.scenario import model
from vstream.scenario.actions import ACTIONS, list_action_fields
from vstream.scenario.document import (
    PublishersDocument,
    ReadersDocument,
    ScenarioDocument,
    StepDocument,
    WorkloadDocument,
)
from vstream.scenario.expectations import decode_expectations
from vstream.scenario.fault_types import FaultSpec, Target
from vstream.syntax.yaml import Path, SourceMap
from vstream.timing import SECOND_NS
from vstream.topology import naming
from vstream.topology.model import Topology, VirtualStream

_DEFAULT_RATE = 50.0
_DEFAULT_SIZE_BYTES = (128, 128)
_DEFAULT_KEY_COUNT = 50
_DEFAULT_TIMEOUT_NS = 2 * SECOND_NS
_GIVE_UP_NS = 60 * SECOND_NS
_DEFAULT_READ_RATE = 10.0
_WITHIN_NS = 60 * SECOND_NS

T = TypeVar("T")


def resolve(
    document: ScenarioDocument, source: SourceMap, topology: Topology, *, text: str, topology_text: str, directory: str
) -> model.Scenario:
    """
    Fill in everything that *document* leaves open. *directory* is that of the file: paths are relative to it.

    Every step has to have one action; the rules see to that. Names that mean nothing stay as they are.
    """
    is_inline = not isinstance(document.topology, str)
    steps = tuple(_decode_steps(document, source, topology))
    templates = document.lab.templates
    return model.Scenario(
        name=document.name,
        description=document.description.strip(),
        seed=document.seed,
        topology_file=source.file if is_inline else join_path(directory, str(document.topology)),
        topology_text=topology_text,
        topology=topology,
        lab=model.LabSpec(
            versions=document.lab.versions,
            links=document.lab.links or ("proxy" if len(topology.regions) > 1 else "none"),
            templates=None if templates is None else join_path(directory, templates),
        ),
        workload=_decode_workload(document.workload, source, topology),
        steps=steps,
        expectations=tuple(decode_expectations(document, source, topology)),
        text=text,
    )


def join_path(directory: str, path: str) -> str:
    """*path* as seen from where *directory* is seen."""
    return path if path.startswith("/") or not directory else f"{directory}/{path}"


# Workload


def _decode_workload(workload: WorkloadDocument, source: SourceMap, topology: Topology) -> model.Workload:
    place: Path = ("workload",)
    streams = {stream.name: stream for stream in topology.streams}

    def streams_named(name: str | None) -> list[VirtualStream]:
        if name is None:
            return list(topology.streams)
        return [streams[name]] if name in streams else []

    if workload.publishers is None:
        span, everything = source.key_span(place), PublishersDocument()
        publishers = [_decode_publishers(workload, everything, stream, topology, span) for stream in topology.streams]
    else:
        publishers = []
        for index, written in enumerate(workload.publishers):
            at = source.value_span((*place, "publishers", index))
            for stream in streams_named(written.stream):
                publishers.append(_decode_publishers(workload, written, stream, topology, at))
    if workload.readers is None:
        both = (ReadersDocument(by="consumer"), ReadersDocument(by="direct"))
        span = source.key_span(place)
        readers = [_decode_readers(readers, stream, topology, span) for stream in topology.streams for readers in both]
    else:
        readers = []
        for index, readers_written in enumerate(workload.readers):
            at = source.value_span((*place, "readers", index))
            chosen = streams_named(readers_written.stream)
            readers += [_decode_readers(readers_written, stream, topology, at) for stream in chosen]
    return model.Workload(publishers=tuple(publishers), readers=tuple(readers))


def _decode_publishers(
    workload: WorkloadDocument, written: PublishersDocument, stream: VirtualStream, topology: Topology, span: Span
) -> model.Publishers:
    return model.Publishers(
        stream=stream.name,
        subject=written.subject or model.default_subject(stream.subjects[0]),
        regions=_decode_regions(written.regions, stream, topology),
        rate=_first_given(written.rate, workload.rate, _DEFAULT_RATE),
        size=_first_given(written.size, workload.size, _DEFAULT_SIZE_BYTES),
        keys=_first_given(written.keys, workload.keys, _DEFAULT_KEY_COUNT),
        retry=model.Retry(_first_given(written.retry, workload.retry, "none")),
        timeout=_first_given(written.timeout, workload.timeout, _DEFAULT_TIMEOUT_NS),
        give_up=_first_given(written.give_up, workload.give_up, _GIVE_UP_NS),
        span=span,
    )


def _first_given(first: T | None, second: T | None, default: T) -> T:
    if first is not None:
        return first
    return second if second is not None else default


def _decode_readers(written: ReadersDocument, stream: VirtualStream, topology: Topology, span: Span) -> model.Readers:
    return model.Readers(
        stream=stream.name,
        kind=model.ReaderKind(written.by),
        regions=_decode_regions(written.regions, stream, topology),
        rate=written.rate or _DEFAULT_READ_RATE,
        timeout=written.timeout or _DEFAULT_TIMEOUT_NS,
        span=span,
    )


def _decode_regions(names: tuple[str, ...] | str, stream: VirtualStream, topology: Topology) -> tuple[str, ...]:
    regions = []
    for region in topology.regions:
        if region.name in stream.regions and (names == "all" or region.name in names):
            regions.append(region.name)
    return tuple(regions)


# Steps


def _decode_steps(document: ScenarioDocument, source: SourceMap, topology: Topology) -> Iterator[model.Step]:
    names = {step.as_ for step in document.steps if step.as_}
    free = (f"f{number}" for number in range(1, len(document.steps) + len(names) + 2))
    ids = (name for name in free if name not in names)
    for index, step in enumerate(document.steps):
        actions = list_action_fields(step)
        if len(actions) != 1:
            continue
        yield model.Step(
            action=_decode_action(step, actions[0], step.as_ or next(ids), topology),
            span=source.value_span(("steps", index)),
            name=step.as_,
            at=step.at,
        )


def _decode_action(step: StepDocument, name: str, fault_id: str, topology: Topology) -> model.Action:
    value = getattr(step, name)
    action: model.Action
    match name:
        case "wait":
            action = model.Wait(nanoseconds=value)
        case "heal":
            action = model.Heal(ids=value or None)
        case "resync":
            action = model.Resync()
        case "converge":
            action = model.Converge(within=_WITHIN_NS if value is None else value)
        case "try_":
            action = model.Try(regions=value or tuple(region.name for region in topology.regions))
        case "run":
            action = (
                model.ChangeRegion(command=model.RegionCommand(value[0]), region=value[1], also=value[2:])
                if value[1:]
                else model.RepairMeta()
            )
        case _:
            action = model.Inject(fault=decode_fault_spec(step, name, topology), id=fault_id, lasting=step.for_)
    return action


def decode_fault_spec(step: StepDocument, name: str, topology: Topology) -> FaultSpec:
    """The fault in the field *name* of *step*."""
    action = ACTIONS[name]
    assert action.fault is not None
    value = getattr(step, name)
    match action.target:
        case Target.NOTHING:
            targets: tuple[str, ...] = ()
        case Target.STREAM:
            targets = (value,)
        case Target.SIDES:
            targets = tuple(",".join(side) for side in value)
        case Target.LINK:
            targets = resolve_link(value, topology)
        case _:
            targets = value or ()
    values = {option.name: getattr(step, option.name) for option in action.fault.options}
    options = {name: value for name, value in values.items() if value is not None}
    return FaultSpec(type=action.fault, targets=targets, options=options)


def resolve_link(value: tuple[str, ...], topology: Topology) -> tuple[str, ...]:
    """The two regions of a link; as they are written, if these are not the ends of one link of the topology."""
    if len(value) != 1:
        return value
    links = naming.link_ends(value[0], [region.name for region in topology.regions])
    return links[0] if len(links) == 1 else value
