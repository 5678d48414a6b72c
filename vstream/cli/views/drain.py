"""What still keeps a region or a server from being stopped, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from vstream.health.live.drain import Emptiness
from vstream.plan import saved
from vstream.plan.plan import Plan


def describe(seen: Emptiness, target: str, servers: Sequence[str], *, is_done: bool) -> Iterator[Text]:
    """A line for each thing that was seen, then whether *target* can be stopped."""
    for style, sign, sentences in (
        ("green", "✓", seen.moved),
        ("bold red", "✗", seen.missing),
        ("yellow", "?", seen.unknown),
        ("yellow", "!", seen.notes),
    ):
        yield from (Text.assemble((f"  {sign} ", style), sentence) for sentence in sentences)
    if seen.missing:
        yield Text(f"It is not safe to stop {target} yet.", style="bold red")
    elif seen.unknown:
        yield Text(f"Whether it is safe to stop {target} is not known.", style="bold yellow")
    else:
        yield Text(f"Safe to stop: {', '.join(servers)}", style="bold green")
        yield Text("`nats-server --signal ldm=PID` on each disconnects its clients one by one.")
    if not is_done and list(servers) == [target]:
        yield Text("Nothing was changed: pass `--yes` to let others lead what it leads.")


def as_dict(target: str, seen: Emptiness | None, plan: Plan | None, *, is_done: bool) -> dict[str, Any]:
    """Everything that was seen, None where nobody looked, and whether anything was changed."""
    return {
        "target": target,
        "safe": seen.is_safe if seen is not None else None,
        "moved": seen.moved if seen is not None else (),
        "missing": seen.missing if seen is not None else (),
        "unknown": seen.unknown if seen is not None else (),
        "notes": seen.notes if seen is not None else (),
        "plan": saved.to_dict(plan) if plan is not None else None,
        "done": is_done,
    }
