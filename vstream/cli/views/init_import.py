"""Text for `vstream init` from what runs on servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from vstream.cli.views import plan as plan_view
from vstream.plan.importing.topology import ImportedTopology

_MAX_LEFTOVERS = 20
"""Leftovers that are shown: the file has all."""


def render_import(imported: ImportedTopology) -> Iterator[Text]:
    """What the topology says, what it does not, and what a plan would change."""
    models = Counter(imported.streams.values())
    kinds = ", ".join(f"{number:,} {model}" for model, number in sorted(models.items())) or "none"
    yield Text.assemble(
        (imported.name, "bold"),
        f": in {', '.join(imported.regions)}; virtual streams: {kinds}; naming: {imported.naming}",
    )
    if imported.undescribed:
        yield Text("")
        yield Text("not described by the topology:")
        for item in imported.undescribed[:_MAX_LEFTOVERS]:
            yield Text.assemble(("  · ", "blue"), f"{item.kind} ", (item.name, "bold"), f": {item.text}")
            if item.hint:
                yield Text.assemble(("      do: ", "cyan"), item.hint)
        if (more := len(imported.undescribed) - _MAX_LEFTOVERS) > 0:
            yield Text(f"  and {more:,} more: the file and `--format json` have them all")
    yield Text("")
    if imported.plan is None:
        return
    adopt = " --adopt all" if imported.adopts else ""
    yield Text(f"what `vstream plan{adopt}` makes of it:")
    yield from plan_view.render_plan(imported.plan)
