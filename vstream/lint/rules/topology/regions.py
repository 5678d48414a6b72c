"""Regions that are given up or drained: whether the others can do without them."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.syntax.yaml import Path
from vstream.topology.model import Consistency
from vstream.topology.profiles import profile_of


@rule("VS176", "lost-region-unfit", Severity.ERROR)
def lost_region_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    A region is `lost`, but the topology cannot work without it.

    ## Why is this bad?
    vstream gives up the streams of a lost region, and each `homed` stream that had its home there gets another home.
    That needs a region that is not lost. vstream can do it only with `routing: mapped`: with the other profiles, users
    or domains belong to a region.
    """
    document, topology = subject.document, subject.topology
    lost = {name: region.lost for name, region in document.regions.items() if region.lost is not None}
    for name, homes in lost.items():
        at: Path = ("regions", name, "lost")
        if not profile_of(topology).has_every_operation:
            message = f"a region cannot be given up with `routing: {topology.routing.value}` yet"
            yield Violation(at=at, message=message, hint="remove the region from the streams' `regions` instead")
        elif len(lost) == len(document.regions):
            yield Violation(at=at, message="every region is lost", hint="remove `lost` from those that are not")
        for stream in homes:
            is_homed = stream in document.streams and document.streams[stream].consistency == Consistency.HOMED.value
            if not is_homed:
                hint = "name streams with `consistency: homed` only: the others have no home"
                yield Violation(
                    at=(*at, stream), message=f"there is no homed stream `{stream}`", hint=hint, on_key=True
                )


@rule("VS177", "drained-region-unfit", Severity.ERROR)
def drained_region_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    A region is `drained`, but the region that it names cannot take its publishes.

    ## Why is this bad?
    Publishes of clients in a drained region go to the write streams of the region that `drained` names, and its `homed`
    streams have their home there. So `drained` must name another region, which is neither drained nor lost. A stream
    that exists in no such region cannot store these publishes. vstream can drain only with `routing: mapped`: with the
    other profiles, users or domains belong to a region.
    """
    document, topology = subject.document, subject.topology
    drained = {name: region.drained for name, region in document.regions.items() if region.drained is not None}
    left = [name for name, region in document.regions.items() if name not in drained and region.lost is None]
    for number, (name, taker) in enumerate(drained.items()):
        at: Path = ("regions", name, "drained")
        if not profile_of(topology).has_every_operation:
            message = f"a region cannot be drained with `routing: {topology.routing.value}` yet"
            yield Violation(
                at=at, message=message, hint="stop its publishers, and wait until `vstream status` shows no lag"
            )
        elif number:
            message = f"region `{next(iter(drained))}` is already drained"
            yield Violation(at=at, message=message, hint="drain one region at a time")
        elif taker not in left:
            hint = f"name one of {', '.join(left)}" if left else "remove `drained` from a region"
            yield Violation(at=at, message=f"`{taker}` cannot take what is published in `{name}`", hint=hint)
    for stream in topology.streams if left else ():
        alone = [name for name in stream.regions if name in drained and name not in stream.takeover_regions]
        for name in alone[:1]:
            message = f"stream `{stream.name}` is in no region that could take its publishes while `{name}` is drained"
            yield Violation(at=("regions", name, "drained"), message=message, hint="add a region to its `regions`")
