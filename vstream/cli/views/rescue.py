"""A meta group without its quorum, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from vstream.health.live.rescue import MetaGroup


def text(groups: Sequence[MetaGroup]) -> Iterator[Text]:
    """Who is alive and who is dead, and what will be done."""
    for group in groups:
        yield Text(f"meta group of {group.name}: {len(group.members)} servers, majority {group.majority}", style="bold")
        for server in group.members:
            if server in group.alive:
                yield Text.assemble(("  ✓ ", "green"), f"{server} answers ({group.alive[server]})")
            else:
                yield Text.assemble(("  ✗ ", "bold red"), f"{server} is seen by nobody")
        yield from (Text.assemble(("  ? ", "bold yellow"), sentence) for sentence in group.unknown)
        yield from _describe_plan(group)


def _describe_plan(group: MetaGroup) -> Iterator[Text]:
    if group.refusal is not None:
        yield Text(f"  nothing to do: {group.refusal}", style="bold")
        missing = group.majority - len(group.alive)
        if group.leader is None and missing > 0:
            yield Text(
                f"  Start {missing} of {', '.join(group.dead)}, with their disks: then the group elects a leader."
            )
        return
    if group.unknown:
        yield Text("  Which of its servers are dead is not known.", style="bold yellow")
        return
    if not group.is_going_on:
        yield Text(f"  → {len(group.alive)} servers go on with {len(group.alive)} votes: `META.RESCUE`")
        yield Text(
            "  A server that is cut off looks dead, and what it accepts contradicts the others for ever. "
            "Make sure that the dead servers are off."
        )
        missing = group.majority - len(group.alive)
        yield Text(f"  Better, if it can be done: start {missing} of them, with their disks.")
    yield from (Text(f"  → forget {server}") for server in group.to_remove)
    yield Text("  → make every read stream source again")


def as_dict(topology: str, groups: Sequence[MetaGroup], *, is_done: bool) -> dict[str, Any]:
    """Everything that was known before, and whether something was done."""
    return {"topology": topology, "groups": [_group_json(group) for group in groups], "done": is_done}


def _group_json(group: MetaGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "majority": group.majority,
        "alive": dict(group.alive),
        "dead": list(group.dead),
        "unknown": list(group.unknown),
        "leader": group.leader,
        "refused": group.refusal,
        "remove": list(group.to_remove) if group.refusal is None else [],
    }
