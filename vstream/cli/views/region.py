"""What `region drain`, `failover` and `failback` print: what was heard of the region, what it holds, and what is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from vstream.apply.region_change import RegionResult
from vstream.health.live.drain import Emptiness
from vstream.plan import saved
from vstream.plan.live.witnesses import DeathProof, DeathVerdict
from vstream.plan.plan import Plan


def describe_proof(proof: DeathProof) -> Iterator[Text]:
    """A line for each witness, then what follows from it."""
    for style, sign, sentences in (
        ("bold red", "✗", proof.alive),
        ("green", "✓", proof.silent),
        ("yellow", "?", proof.unknown),
    ):
        yield from (Text.assemble((f"  {sign} ", style), sentence) for sentence in sentences)
    regions = " and ".join(f"`{region}`" for region in proof.regions)
    verb = "are" if proof.regions[1:] else "is"
    if proof.verdict is DeathVerdict.ALIVE:
        yield Text(f"{regions} {verb} not dead.", style="bold red")
    elif proof.verdict is DeathVerdict.UNKNOWN:
        text = f"Not everybody could be asked: whether {regions} {verb} dead is not known."
        yield Text(text, style="bold yellow")
    else:
        yield Text(f"Nobody sees {regions}.", style="bold")
    if proof.verdict is not DeathVerdict.ALIVE:
        yield Text(
            "A region that is cut off from all of them looks the same, and still accepts publishes, which are lost. "
            "Make sure that its servers are off."
        )


def describe_homes(homes: Mapping[str, str]) -> Iterator[Text]:
    """Where each stream that was at home there will be at home."""
    for stream, home in sorted(homes.items()):
        yield Text.assemble("  → ", (stream, "bold"), f" will be at home in `{home}`, whose copy has come furthest")


def as_dict(result: RegionResult, regions: Sequence[str]) -> dict[str, Any]:
    """Everything that is known before it is done, and whether it was."""
    heard, plan = None, result.planned.plan if result.planned is not None else None
    if result.proof is not None:
        heard = {
            "verdict": result.proof.verdict.value,
            "alive": result.proof.alive,
            "silent": result.proof.silent,
            "unknown": result.proof.unknown,
        }
    return {
        "region": regions[0],
        "also": list(regions[1:]),
        "proof": heard,
        "homes": dict(sorted(result.homes.items())),
        "losses": [str(loss) for loss in plan.losses] if plan is not None else [],
        "plan": saved.to_dict(plan) if plan is not None else None,
        "done": result.is_done,
    }


def describe_drain(seen: Emptiness, target: str, servers: Sequence[str], *, is_done: bool) -> Iterator[Text]:
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


def drain_as_dict(target: str, seen: Emptiness | None, plan: Plan | None, *, is_done: bool) -> dict[str, Any]:
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
