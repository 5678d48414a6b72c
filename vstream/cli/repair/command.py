"""`vstream repair`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.repair.steps import (
    Flows,
    Kind,
    Stock,
    chosen,
    look_at_flows,
    look_at_stock,
    mend_flows,
    mend_stock,
    opened,
)
from vstream.cli.servers import Servers, find_servers
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

    from vstream.topology.model import Topology

_RESUMING = 60.0
"""Seconds until what was resumed has everything, at least."""


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it. Without, only show what would be done.")] = False,
    kind: Annotated[list[Kind] | None, typer.Option("--kind", help="Repair this alone; may be repeated.")] = None,
    stream: Annotated[
        list[str] | None, typer.Option("--stream", "-s", help="Look at this virtual stream alone; may be repeated.")
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which what has not answered is reported as silent.", min=0.5, max=300)
    ] = 10,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Bring streams back to what was written: after a power loss, a restored backup, a skipped or repeated message.

    Shows what it would do, and does it with `--yes`, in this order. `clear` removes what an interrupted repair has
    left. `resume` has readers ask again that take nothing. `refill` publishes the lost end of a write stream again, as
    its readers hold it. `replay` puts messages into a read stream that it has passed, `delete` removes what it holds
    twice: for these two, the streams are read from their beginning.

    Exits with 0 if there is nothing (left) to repair, with 1 if there is, or if not all streams answer.

    Examples: `vstream repair`, `vstream repair acme.yaml --yes`, `vstream repair --kind refill --kind resume`,
    `vstream repair --stream foo --kind replay --yes`, `vstream repair --format json`
    """
    wanted = options.load_topology(topology).require()
    kinds, streams = chosen(wanted, kind or [], stream or [])
    work = _Repair(
        topology=wanted,
        where=find_servers(wanted, lab),
        lab=lab,
        kinds=kinds,
        streams=streams,
        yes=yes,
        is_text=output == "text",
    )
    work.flow(deadline)
    if kinds & {Kind.REPLAY, Kind.DELETE}:
        work.stock()
    if work.finish():
        raise typer.Exit(NO)


@dataclass(kw_only=True)
class _Repair:
    """One run: what was asked for, what was found, and what is left."""

    topology: Topology
    where: Servers
    lab: str | None
    kinds: frozenset[Kind]
    streams: frozenset[str]
    yes: bool
    is_text: bool
    flows: Flows = field(default_factory=Flows)
    stocked: Stock = field(default_factory=Stock)
    left: list[str] = field(default_factory=list)
    """What is still open, in words."""

    def flow(self, deadline: float) -> None:
        """Look at how streams take from each other, and mend it."""
        from vstream.cli.views import console  # noqa: PLC0415
        from vstream.cli.views import repair as view  # noqa: PLC0415

        if self.is_text:
            console.print_note(f"{self.topology.name} on {self.where.description}")
        self.flows = found = run(look_at_flows(self.topology, self.where, deadline, self.kinds, self.streams))
        self._show(view.flows(found.leftovers, found.standstills, found.refills, found.standing))
        if not self.yes:
            return
        self.left += run(mend_flows(self.topology, self.where, self.lab, found, max(deadline, _RESUMING)))
        self._show(
            view.done(
                [one for one in found.refills if not one.blocked],
                [one for one in found.leftovers if not one.is_running],
                [
                    one
                    for one in found.standstills
                    if not (one.blocked or any(one.reader in each for each in self.left))
                ],
            )
        )

    def stock(self) -> None:
        """Look at what streams hold, and mend it."""
        open_ones = [one.stream for one in self.flows.leftovers if one.is_running or not self.yes]
        if open_ones and Kind.REPLAY in self.kinds:
            # What that one is about to put in would be put in twice.
            self.left.append(f"what is missing is not looked for before `{open_ones[0]}` is gone")
            self.kinds -= {Kind.REPLAY}
        self.left += run(self._stock())

    async def _stock(self) -> list[str]:
        from vstream.cli.views import console  # noqa: PLC0415
        from vstream.cli.views import repair as view  # noqa: PLC0415

        async with opened(self.topology, self.where) as connections:
            with console.progress_bar() as progress:
                found = await look_at_stock(self.topology, connections, self.kinds, self.streams, progress)
            self.stocked = found
            self._show(view.stock(found.replays, found.doubles, found.unread))
            if not self.yes:
                return []
            with console.progress_bar() as progress:
                left = await mend_stock(self.topology, connections, found, progress)
        self._show(
            view.mended([one for one in found.replays if one.count], [two for two in found.doubles if two.count])
        )
        return left

    def finish(self) -> bool:
        """Say what is left; whether that is anything."""
        from vstream.cli.views import repair as view  # noqa: PLC0415

        self._show(view.left(self.left))
        found_any = self.flows.is_open or self.stocked.is_open or bool(self.left)
        if not found_any:
            self._show([view.nothing([one.value for one in Kind if one in self.kinds])])
        if not self.is_text:
            document = _document(self.topology, self.flows, self.stocked, self.left, yes=self.yes)
            print_json("repair", document)
        if not self.yes:
            return found_any
        blocked = [one.blocked for one in self.flows.refills] + [one.blocked for one in self.flows.standstills]
        return bool(self.left or self.flows.standing or self.stocked.unread or any(blocked))

    def _show(self, lines: Iterable[Text]) -> None:
        from vstream.cli.views import console  # noqa: PLC0415

        if self.is_text:
            for line in lines:
                console.stdout().print(line)


def _document(topology: Topology, flows: Flows, stock: Stock, left: list[str], *, yes: bool) -> dict[str, Any]:
    ready = [one for one in flows.refills if one.blocked is None]
    return {
        "topology": topology.name,
        "is_done": yes,
        "leftovers": [one.as_dict() for one in flows.leftovers],
        "standstills": [one.as_dict() for one in flows.standstills],
        "refills": [one.as_dict() for one in flows.refills],
        "repaired": [one.lost.origin for one in ready] if yes else [],
        "unknown": [one.as_dict() for one in flows.standing],
        "replays": [one.as_dict() for one in stock.replays],
        "doubles": [one.as_dict() for one in stock.doubles],
        "unread": stock.unread,
        "open": left,
    }
