"""What `region drain`, `failover` and `failback` print: what was heard of the region, what it holds, and what is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from vstream.apply.region_change import PlannedChange, RegionResult, ServersNotStarted
from vstream.health.live.drain import DrainState
from vstream.plan import saved
from vstream.plan.live.dead_regions import DeathReport, DeathVerdict
from vstream.plan.model import Plan


def _mark_sentences(sign: str, style: str, sentences: Sequence[str]) -> Iterator[Text]:
    return (Text.assemble((f"  {sign} ", style), sentence) for sentence in sentences)


def describe_report(report: DeathReport) -> Iterator[Text]:
    """A line for each witness, then what follows from it."""
    yield from _mark_sentences("✗", "bold red", report.alive)
    yield from _mark_sentences("✓", "green", report.silent)
    yield from _mark_sentences("?", "yellow", report.unknown)
    regions = " and ".join(f"`{region}`" for region in report.regions)
    verb = "are" if report.regions[1:] else "is"
    if report.verdict is DeathVerdict.ALIVE:
        yield Text(f"{regions} {verb} not dead.", style="bold red")
    elif report.verdict is DeathVerdict.UNKNOWN:
        text = f"Not everybody could be asked: whether {regions} {verb} dead is not known."
        yield Text(text, style="bold yellow")
    else:
        yield Text(f"Nobody sees {regions}.", style="bold")
    if report.verdict is not DeathVerdict.ALIVE:
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
    change: dict[str, Any] = {"homes": {}, "losses": [], "plan": None, "done": False}
    if isinstance(result, PlannedChange):
        plan = saved.to_dict(result.planned.plan)
        homes = dict(sorted(result.homes.items()))
        change = {"homes": homes, "losses": plan["losses"], "plan": plan, "done": result.is_done}
    heard = None if isinstance(result, ServersNotStarted) else _report_as_dict(result.report)
    return {"region": regions[0], "also": list(regions[1:]), "proof": heard, **change}


def _report_as_dict(report: DeathReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    answers = {"alive": report.alive, "silent": report.silent, "unknown": report.unknown}
    return {"verdict": report.verdict.value, **answers}


def describe_drain(seen: DrainState, target: str, servers: Sequence[str], *, is_done: bool) -> Iterator[Text]:
    """A line for each thing that was seen, then whether *target* can be stopped."""
    yield from _mark_sentences("✓", "green", seen.moved)
    yield from _mark_sentences("✗", "bold red", seen.obstacles)
    yield from _mark_sentences("?", "yellow", seen.unknown)
    yield from _mark_sentences("!", "yellow", seen.notes)
    if seen.obstacles:
        yield Text(f"It is not safe to stop {target} yet.", style="bold red")
    elif seen.unknown:
        yield Text(f"Whether it is safe to stop {target} is not known.", style="bold yellow")
    else:
        yield Text(f"Safe to stop: {', '.join(servers)}", style="bold green")
        yield Text("`nats-server --signal ldm=PID` on each disconnects its clients one by one.")
    if not is_done and list(servers) == [target]:
        yield Text("Nothing was changed: pass `--yes` to let others lead what it leads.")


def drain_as_dict(target: str, seen: DrainState | None, plan: Plan | None, *, is_done: bool) -> dict[str, Any]:
    """Everything that was seen, None where nobody looked, and whether anything was changed."""
    return {
        "target": target,
        "safe": seen.is_safe if seen is not None else None,
        "moved": seen.moved if seen is not None else (),
        "missing": seen.obstacles if seen is not None else (),
        "unknown": seen.unknown if seen is not None else (),
        "notes": seen.notes if seen is not None else (),
        "plan": saved.to_dict(plan) if plan is not None else None,
        "done": is_done,
    }
