"""What has become of a plan, and who is told meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from vstream.errors import VstreamError
from vstream.plan.model import Change, Gate, GateKind, Plan, is_pause, is_resumption
from vstream.plan.stages import PlanStage
from vstream.value_class import value_class


@value_class
class GateTimeout:
    """A gate that was not satisfied before the deadline, and what was missing."""

    gate: Gate
    missing: str


@value_class
class ApplyResult:
    """
    What became of each change of a plan, or of a part of it.

    A request without an answer may have taken effect: it is *uncertain*, neither done nor skipped.
    """

    done: tuple[Change, ...] = ()
    uncertain: tuple[Change, ...] = ()
    refused: tuple[Change, ...] = ()
    skipped: tuple[Change, ...] = ()
    skipped_stages: tuple[PlanStage, ...] = ()
    """Stages that did not begin, with all of their changes."""
    mappings_loaded: bool = False
    mappings_pending: bool = False
    """Whether servers still have different rules or accounts loaded, which only their operator can change."""
    unread_servers: tuple[str, ...] = ()
    """Servers whose loaded rules are unknown, so that removals were skipped."""
    gate_timeouts: tuple[GateTimeout, ...] = ()
    """Gates that were not satisfied in time: later stages were skipped."""
    retired: tuple[str, ...] = ()
    """Servers that were stopped and removed from the meta group."""
    resynced: tuple[str, ...] = ()
    """Read streams that were resynced after their source had moved or changed replicas."""
    not_resynced: tuple[str, ...] = ()
    """A sentence for each reader that was not resynced, and asks again later by itself."""
    failure: VstreamError | None = None
    """The first one."""

    def join(self, later: ApplyResult) -> ApplyResult:
        """What became of this part of a plan and of a *later* one."""
        return ApplyResult(
            done=self.done + later.done,
            uncertain=self.uncertain + later.uncertain,
            refused=self.refused + later.refused,
            skipped=self.skipped + later.skipped,
            skipped_stages=self.skipped_stages + later.skipped_stages,
            mappings_loaded=self.mappings_loaded or later.mappings_loaded,
            mappings_pending=self.mappings_pending or later.mappings_pending,
            unread_servers=self.unread_servers or later.unread_servers,
            gate_timeouts=self.gate_timeouts + later.gate_timeouts,
            retired=self.retired + later.retired,
            resynced=self.resynced + later.resynced,
            not_resynced=self.not_resynced + later.not_resynced,
            failure=self.failure or later.failure,
        )

    def list_open(self, plan: Plan) -> tuple[Change, ...]:
        """The changes of *plan* of which nothing has become yet."""
        ended = {id(change) for change in (*self.done, *self.uncertain, *self.refused, *self.skipped)}
        return tuple(change for change in plan.changes if id(change) not in ended)

    @property
    def never_paused(self) -> frozenset[str]:
        """The streams that were to be paused, and were not."""
        return frozenset(change.config.name for change in (*self.refused, *self.skipped) if is_pause(change))

    @property
    def left_paused(self) -> frozenset[str]:
        """The streams whose new servers did not hold everything in time."""
        return frozenset(
            timeout.gate.stream for timeout in self.gate_timeouts if timeout.gate.kind is GateKind.QUORUM_IS_CURRENT
        )

    def list_paused(self) -> tuple[str, ...]:
        """The streams that take no publishes: they were paused, in this run or an earlier one, and not resumed."""
        left = [change for change in (*self.refused, *self.skipped, *self.uncertain) if is_resumption(change)]
        return tuple(change.config.name for change in left if change.config.name not in self.never_paused)

    @property
    def is_complete(self) -> bool:
        """Whether everything in the plan was done."""
        return not (
            self.uncertain
            or self.refused
            or self.skipped
            or self.mappings_pending
            or self.gate_timeouts
            or self.failure
        )


@value_class
class ApplyObserver:
    """Who is told what happens."""

    on_done: Callable[[Change], None] = lambda _change: None
    on_wait: Callable[[Gate, str], None] = lambda _gate, _missing: None
    """Told what a gate lacks, at each look."""
    on_interrupted: Callable[[ApplyResult], None] = lambda _result: None
    """Told what has become of the plan if it is cancelled."""


NO_OBSERVER = ApplyObserver()
