"""What the commands of `vstream chaos` have in common: which servers, what is said, and in which format."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.lab.find import the_lab
from vstream.cli.servers import find_servers
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from vstream.chaos.blast_radius import Impact
    from vstream.chaos.faults import Fault, LabFault
    from vstream.chaos.inject import HealResult, InjectionRequest, InjectionResult
    from vstream.chaos.journal import OpenFault
    from vstream.chaos.rolling_restart import RestartResult
    from vstream.chaos.target_servers import TargetServers
    from vstream.lab.lab import ReadinessProgress
    from vstream.lab.links.state import Cut, Pair
    from vstream.topology.model import Topology

Format = Annotated[str, typer.Option("--format", help="text or json.")]
TopologyFile = Annotated[Path, typer.Option("--topology", "-t", help="The topology that the servers run.")]
Hold = Annotated[
    str | None, typer.Option("--for", help="Heal after this long, such as 20s, or at Ctrl-C. Without it: `chaos heal`.")
]
Force = Annotated[bool, typer.Option("--yes-really", help="Also if it takes more than was asked for.")]
Timeout = Annotated[float, typer.Option(help="Seconds until all must be healthy again.", min=1)]
HEAL_TIMEOUT = 120.0
FORMATS = ("text", "json")
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One command on some servers. *said* collects what `--format json` prints at the end."""

    site: TargetServers
    topology: Topology
    asked: str
    is_json: bool
    is_forced: bool
    also_confirm: Callable[[], Awaitable[str]] | None = None
    said: dict[str, Any] = field(default_factory=dict)

    def called(self, asked: str, also_confirm: Callable[[], Awaitable[str]]) -> Job:
        """The same, with what became clear since."""
        return replace(self, asked=asked, also_confirm=also_confirm)

    def take(self, fault: LabFault, hold: str | None, timeout: float) -> None:
        """Inject *fault*; with *hold*, heal it after that time."""
        from vstream.chaos import inject  # noqa: PLC0415

        held = None if hold is None else seconds(hold, "--for")
        try:
            if held is None:
                self._injected(run(inject.inject(self._order(), fault)))
            else:
                with _progress() as show:
                    run(
                        inject.inject_for(
                            self._order(),
                            fault,
                            seconds=held,
                            timeout=timeout,
                            on_injected=self._injected,
                            on_healed=self._healed,
                            on_progress=show,
                        )
                    )
        finally:
            self._print()

    def cut(self, pairs: Sequence[Pair], how: Cut, hold: str | None, timeout: float) -> None:
        """Cut the links *pairs*."""
        from vstream.chaos.links import Partition  # noqa: PLC0415
        from vstream.lab.links.state import LinkState  # noqa: PLC0415

        self.take(Partition(states=dict.fromkeys(pairs, LinkState(cut=how))), hold, timeout)

    def hand_over(self, fault: Fault) -> None:
        """Make a leader step down."""
        from vstream.chaos import inject  # noqa: PLC0415

        self._injected(run(inject.hand_over(self._order(), fault)))
        self._print()

    def roll(self, target: str | None, *, is_lame_duck: bool, timeout: float, version: str | None = None) -> None:
        """Restart the servers of *target*, or all, in turn; with another *version*, if one is given."""
        from vstream.chaos import (  # noqa: PLC0415
            rolling_restart,
            select,
        )
        from vstream.lab import binaries  # noqa: PLC0415

        _ = self.site.directory  # refuses servers that are no lab
        servers = tuple(self.site.servers) if target is None else select.region_or_server(self.site, target)
        program = None if version is None else binaries.program(binaries.locate(version))
        try:
            with _progress() as show:
                run(
                    rolling_restart.restart(
                        self._order(),
                        servers,
                        is_lame_duck=is_lame_duck,
                        program=program,
                        timeout=timeout,
                        on_restarted=self._restarted,
                        on_progress=show,
                    )
                )
        finally:
            self._print()

    def _order(self) -> InjectionRequest:
        from vstream.chaos.inject import InjectionRequest  # noqa: PLC0415

        return InjectionRequest(
            site=self.site,
            topology=self.topology,
            asked=self.asked,
            is_forced=self.is_forced,
            on_blast=self._blast,
            also_confirm=self.also_confirm,
        )

    def _blast(self, effects: Impact) -> None:
        from vstream.cli.views import chaos as view  # noqa: PLC0415
        from vstream.cli.views import console  # noqa: PLC0415

        self.said.setdefault("asked", self.asked)
        if self.said.get("effects") == (found := view.blast_as_dict(effects)):
            return
        self.said["effects"] = found
        console.print_note(f"{self.asked} will leave:")
        for line in view.blast(effects):
            console.stderr().print(line)

    def _injected(self, injected: InjectionResult) -> None:
        from vstream.cli.views import chaos as view  # noqa: PLC0415
        from vstream.cli.views import console  # noqa: PLC0415

        entry = injected.entry
        self.said.update(
            asked=self.asked,
            evidence=injected.evidence,
            fault=None if entry is None else view.fault_as_dict(entry),
        )
        if not self.is_json:
            console.stdout().print(injected.evidence if entry is None else f"{entry.id}: {injected.evidence}")

    def _healed(self, healed: HealResult) -> None:
        from vstream.cli.views import chaos as view  # noqa: PLC0415
        from vstream.cli.views import console  # noqa: PLC0415

        self.said["healthy_after_seconds"] = view.seconds(healed)
        if not self.is_json:
            console.stdout().print(view.healed(healed))

    def _restarted(self, one: RestartResult) -> None:
        from vstream.cli.views import chaos as view  # noqa: PLC0415
        from vstream.cli.views import console  # noqa: PLC0415

        self.said.setdefault("restarted", []).append(
            {
                "server": one.server,
                "version": one.version,
                "stopping_seconds": one.stopping,
                "recovering_seconds": one.recovering,
            }
        )
        if not self.is_json:
            console.stdout().print(view.restarted(one))

    def _print(self) -> None:
        if self.is_json:
            print_json("chaos-fault", self.said)


def job(
    topology: Path, lab: str | None, asked: str, output: str, *, force: bool, system_context: str | None = None
) -> Job:
    """The servers that are meant by a topology and `--lab`, and what is to be done there."""
    check_format(output)
    _require_file(topology)
    wanted = options.load_topology(topology).require()
    return Job(
        site=site_for(wanted, lab, system_context),
        topology=wanted,
        asked=asked,
        is_json=output == "json",
        is_forced=force,
    )


def _require_file(path: Path) -> None:
    """Raises VstreamError for a topology that was not named and is not here: a new one would be none that servers run."""
    from vstream.errors import VstreamError  # noqa: PLC0415
    from vstream.lab import lab  # noqa: PLC0415

    if path != options.DEFAULT_FILE or path.exists():
        return
    known = ", ".join(f"`{name}`" for name in lab.names())
    raise VstreamError(
        f"{path} does not exist",
        hint="`--topology FILE` names the topology that the servers run; "
        + (f"labs of this machine: {known}" if known else "there is no lab: `vstream lab up TOPOLOGY` starts one"),
    )


def site_for(topology: Topology, lab: str | None, system_context: str | None = None) -> TargetServers:
    """The lab of *topology*, or the servers under its `connect`."""
    from vstream.chaos import target_servers  # noqa: PLC0415
    from vstream.topology.model import Endpoint  # noqa: PLC0415

    where = find_servers(topology, lab)
    if where.lab is not None:
        return target_servers.of_topology(topology, where.lab)
    system = None if system_context is None else Endpoint(context=system_context)
    return target_servers.of_deployment(topology, where.endpoints, system)


def status(lab: str | None, output: str) -> None:
    """Print the open faults."""
    from vstream.chaos.faults import is_over  # noqa: PLC0415
    from vstream.cli.views import chaos as view  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415

    check_format(output)
    site, open_faults = _opened(lab)
    found = [(one, is_over(one.fault, one.id, site)) for one in open_faults]
    if output == "json":
        print_json("chaos-status", {"faults": [{**view.fault_as_dict(one), "over": over} for one, over in found]})
    elif found:
        console.stdout().print(view.faults(found))
    else:
        console.print_note("nothing is open")


def resume(lab: str | None, target: str | None, timeout: float, output: str) -> None:
    """Undo the pauses of *target*, or all."""
    from vstream.chaos.faults import Pause  # noqa: PLC0415
    from vstream.errors import UnknownNameError  # noqa: PLC0415

    check_format(output)
    pauses = [one for one in _opened(lab)[1] if isinstance(one.fault, Pause)]
    ids = tuple(one.id for one in pauses if target is None or one.asked == f"pause {target}")
    if not ids and target is not None:
        known = ", ".join(one.asked.removeprefix("pause ") for one in pauses)
        raise UnknownNameError(f"`{target}` is not paused", hint=f"paused: {known}" if known else "nothing is paused")
    heal(lab, ids, timeout, output)


def heal(lab: str | None, ids: Sequence[str] | None, timeout: float, output: str) -> None:
    """Undo the faults *ids*, or all, and print how long it took."""
    from vstream.chaos import inject  # noqa: PLC0415
    from vstream.cli.views import chaos as view  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415

    check_format(output)
    site, _ = _opened(lab)
    with _progress() as show:
        healed = run(inject.heal(site, ids, timeout=timeout, on_progress=show))
    if output == "json":
        undone = [view.fault_as_dict(one) for one in healed.faults]
        print_json("chaos-heal", {"healed": undone, "healthy_after_seconds": view.seconds(healed)})
    else:
        console.stdout().print(view.healed(healed))


def check_format(output: str) -> None:
    """Refuse a format that does not exist as wrong usage."""
    if output not in FORMATS:
        raise typer.BadParameter(f"`{output}` is none of {', '.join(FORMATS)}", param_hint="--format")


def _opened(lab: str | None) -> tuple[TargetServers, Sequence[OpenFault]]:
    """The lab that is meant and what its journal says: healing needs no topology."""
    from vstream.chaos import (  # noqa: PLC0415
        journal,
        target_servers,
    )
    from vstream.lab.state import lab_directory  # noqa: PLC0415

    name = the_lab(lab)
    book = journal.read(lab_directory(name))
    return target_servers.of_lab(name), () if book is None else book.faults


def seconds(text: str, option: str) -> float:
    """The time that was given as *option*. Raises BadParameter."""
    from vstream.topology.units import parse_duration  # noqa: PLC0415

    try:
        nanoseconds = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    if text == "unlimited":
        raise typer.BadParameter("say a time, such as 20s", param_hint=option)
    return nanoseconds / _NS


@contextmanager
def _progress() -> Iterator[Callable[[ReadinessProgress], None]]:
    from vstream.cli.views import console  # noqa: PLC0415

    with console.progress_bar() as progress:
        task = progress.add_task("waiting", total=None)

        def show(step: ReadinessProgress) -> None:
            progress.update(task, description=step.stage.value, completed=step.done, total=step.total)

        yield show
