"""Regions that are lost for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.topology.model import Consistency
from vstream.topology.profiles import profile_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path


@rule("VS176", "lost-region-unfit", Severity.ERROR)
def lost_region_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    A region is `lost`, and the topology cannot do without it.

    ## Why is this bad?
    Where a region is lost, its streams are given up, and each `homed` stream that was at home there gets another home.
    That needs a region that is left. It is only known how to do it with `routing: mapped`: with the other profiles, users or
    domains belong to a region. And a stretch cluster keeps its members: replace the server instead.
    """
    document, topology = subject.document, subject.topology
    lost = {name: region.lost for name, region in document.regions.items() if region.lost is not None}
    for name, homes in lost.items():
        at: Path = ("regions", name, "lost")
        if not profile_of(topology).has_physical_names:
            message = f"a region cannot be given up with `routing: {topology.routing.value}` yet"
            yield Violation(at=at, message=message, hint="take the region out of the streams' `regions` instead")
        elif len(lost) == len(document.regions):
            yield Violation(at=at, message="every region is lost", hint="take `lost` out of those that are not")
        elif document.stretch is not None and (document.stretch.members == "all" or name in document.stretch.members):
            message = f"the stretch cluster has a member in region `{name}`, which is lost"
            hint = "start that member elsewhere, and take the region out of the streams' `regions` instead"
            yield Violation(at=at, message=message, hint=hint)
        for stream in homes:
            is_homed = stream in document.streams and document.streams[stream].consistency == Consistency.HOMED.value
            if not is_homed:
                hint = "name streams with `consistency: homed` only: the others have no home"
                yield Violation(
                    at=(*at, stream), message=f"there is no homed stream `{stream}`", hint=hint, on_key=True
                )
