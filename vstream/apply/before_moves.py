"""What nobody can ask once streams move or are scaled: it is noted before a plan is carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from vstream.apply.interfaces import GateChecker
from vstream.plan.model import GateKind, Plan
from vstream.value_class import value_class


@value_class
class BeforeMoves:
    """How streams were before a plan moves or scales them."""

    leaders: Mapping[str, str | None]
    """Of the streams that will be moved or scaled; None where nobody said."""
    held: Mapping[str, Mapping[int, str]]
    """What is in each stream that will move: when some of its messages were stored, by sequence."""


async def note_before_moves(plan: Plan, checker: GateChecker) -> BeforeMoves:
    """Ask *checker* about what *plan* moves or scales."""
    changing_servers = (gate.stream for gate in plan.gates if gate.kind is GateKind.REPLICAS_ARE_CURRENT)
    streams = tuple(dict.fromkeys([*changing_servers, *plan.moving_streams]))
    leaders = await asyncio.gather(*map(checker.leader, streams))
    held = await asyncio.gather(*map(checker.note_before_move, plan.moving_streams))
    return BeforeMoves(
        leaders=dict(zip(streams, leaders, strict=True)), held=dict(zip(plan.moving_streams, held, strict=True))
    )
