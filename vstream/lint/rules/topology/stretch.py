"""The stretch cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.wording import count
from vstream.topology.model import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path

_FEWEST = 3


@rule("VS128", "stretch-members", Severity.WARNING)
def stretch_members(subject: TopologySubject) -> Iterator[Violation]:
    """
    The stretch cluster has one or two members, or an even number of them.

    ## Why is this bad?
    More than half of the members must be up. A stretch cluster in one or two regions
    stops with the loss of either, which is what it is there to survive; one in four
    survives the loss of one region, as three do. Three members survive one region,
    five survive two.
    """
    stretch = subject.topology.stretch
    if stretch is None:
        return
    number = len(stretch.members)
    if number >= _FEWEST and number % 2:
        return
    survives = "no loss of a region" if number < _FEWEST else f"the loss of {(number - 1) // 2}, as {number - 1} do"
    written = subject.document.stretch is not None and "members" in subject.document.stretch.model_fields_set
    yield Violation(
        at=("stretch", "members") if written else ("stretch",),
        message=f"a stretch cluster of {count(number, 'member')} survives {survives}",
        hint="use three or five members",
        on_key=True,
    )


@rule("VS131", "stretch-single-copy", Severity.WARNING)
def stretch_single_copy(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream in the stretch cluster has fewer than three replicas.

    ## Why is this bad?
    With one replica it lives in one region, like a homed stream, and stops with it.
    `replicas` counts for all physical streams of a stream; those in the stretch
    cluster have 3 or 5 where nothing is said.
    """
    stretch = subject.topology.stretch
    seen: set[Path] = set()
    for physical in subject.physical:
        replicas = physical.fields["num_replicas"]
        if stretch is None or physical.region != stretch.cluster or replicas >= _FEWEST:
            continue
        at = subject.place(physical, "replicas")
        # Too few members is VS128's finding.
        if len(stretch.members) >= _FEWEST and at not in seen:
            seen.add(at)
            word = "order" if physical.role is Role.ORDER else "write"
            yield Violation(
                at=at,
                message=f"the {physical.role.value} stream of `{physical.stream}` has {count(replicas, 'replica')} in the "
                "stretch cluster: the loss of one region can stop it",
                hint=f"write `{word}: {{replicas: 3}}`, or say `replicas` under `read` only",
            )
