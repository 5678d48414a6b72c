"""What an import has found, as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from vstream.cli.views import plan as plan_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.plan.importing.topology import ImportedTopology

_MOST = 20
"""Leftovers that are shown: the file has all."""


def text(found: ImportedTopology) -> Iterator[Text]:
    """What the topology says, what it does not, and what a plan would change."""
    models = Counter(found.streams.values())
    kinds = ", ".join(f"{number:,} {model}" for model, number in sorted(models.items())) or "none"
    yield Text.assemble(
        (found.name, "bold"),
        f": in {', '.join(found.regions)}; virtual streams: {kinds}; naming: {found.naming}",
    )
    if found.leftovers:
        yield Text("")
        yield Text("not said by the topology:")
        for leftover in found.leftovers[:_MOST]:
            yield Text.assemble(("  · ", "blue"), f"{leftover.kind} ", (leftover.name, "bold"), f": {leftover.text}")
            if leftover.do:
                yield Text.assemble(("      do: ", "cyan"), leftover.do)
        if len(found.leftovers) > _MOST:
            yield Text(f"  and {len(found.leftovers) - _MOST:,} more: the file and `--format json` have them all")
    yield Text("")
    if found.plan is None:
        return
    adopt = " --adopt all" if found.adopts else ""
    yield Text(f"what `vstream plan{adopt}` makes of it:")
    yield from plan_view.text(found.plan)
