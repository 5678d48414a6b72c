"""What the commands of `vstream chaos` do: which servers, what is printed, and in which format."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from vstream.chaos.blast_radius import Impact
from vstream.chaos.faults.base import Injection
from vstream.chaos.inject import HealResult, InjectionRequest, InjectionResult, RestartResult, inject, inject_for
from vstream.cli.asyncio_runner import run
from vstream.cli.views import chaos as view
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import show_readiness
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology
from vstream.value_class import value_class


@value_class
class ChaosSession:
    """One command on some servers. *output* collects what `--format json` prints at the end."""

    target: TargetServers
    topology: Topology
    command: str
    is_json: bool
    is_forced: bool
    timeout: float
    output: dict[str, Any] = field(default_factory=dict)

    def run(self, injection: Injection, *, hold: float | None) -> None:
        """Inject it; with *hold*, heal it after that many seconds."""
        try:
            with show_readiness() as show:
                request = InjectionRequest(
                    target=self.target,
                    topology=self.topology,
                    command=self.command,
                    is_forced=self.is_forced,
                    timeout=self.timeout,
                    on_impact=self._print_impact,
                    on_restarted=self._print_restarted,
                    on_progress=show,
                )
                if hold is None:
                    self._print_injected(run(inject(request, injection)))
                    return
                on_injected, on_healed = self._print_injected, self._print_healed
                run(inject_for(request, injection, seconds=hold, on_injected=on_injected, on_healed=on_healed))
        finally:
            if self.is_json:
                print_json("chaos-fault", self.output)

    def _print_impact(self, impact: Impact) -> None:
        self.output.setdefault("asked", self.command)
        effects = view.impact_as_dict(impact)
        if self.output.get("effects") == effects:
            return
        self.output["effects"] = effects
        console.print_note(f"{self.command} will leave:")
        for line in view.render_impact(impact):
            console.stderr().print(line)

    def _print_injected(self, injected: InjectionResult) -> None:
        if injected.restarted:
            return  # each was printed
        entry = injected.entry
        self.output.update(
            asked=self.command, evidence=injected.evidence, fault=None if entry is None else view.fault_as_dict(entry)
        )
        if not self.is_json:
            console.stdout().print(injected.evidence if entry is None else f"{entry.id}: {injected.evidence}")

    def _print_healed(self, healed: HealResult) -> None:
        self.output["healthy_after_seconds"] = view.healthy_after_seconds(healed)
        if not self.is_json:
            console.stdout().print(view.heal_line(healed))

    def _print_restarted(self, restarted: RestartResult) -> None:
        self.output.setdefault("restarted", []).append(
            {
                "server": restarted.server,
                "version": restarted.version,
                "stopping_seconds": restarted.stopping,
                "recovering_seconds": restarted.recovering,
            }
        )
        if not self.is_json:
            console.stdout().print(view.restart_line(restarted))
