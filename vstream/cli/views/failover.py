"""What was heard of a region that may be dead, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from vstream.plan import saved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.plan.live.witnesses import DeathProof
    from vstream.plan.plan import Plan

_VERDICTS = {True: "dead", False: "alive", None: "unknown"}


def describe_proof(proof: DeathProof) -> Iterator[Text]:
    """A line for each witness, then what follows from it."""
    for style, sign, sentences in (
        ("bold red", "✗", proof.alive),
        ("green", "✓", proof.silent),
        ("yellow", "?", proof.unknown),
    ):
        yield from (Text.assemble((f"  {sign} ", style), sentence) for sentence in sentences)
    if proof.alive:
        yield Text(f"Region {proof.region} is not dead.", style="bold red")
    elif proof.unknown:
        yield Text(
            f"Whether region {proof.region} is dead is not known: not everybody could be asked.", style="bold yellow"
        )
    else:
        yield Text(f"Nobody sees region {proof.region}.", style="bold")
    if not proof.alive:
        yield Text(
            "A region that is cut off from all of them looks the same, and still accepts publishes, which are lost. "
            "Make sure that its servers are off."
        )


def describe_homes(homes: Mapping[str, str]) -> Iterator[Text]:
    """Where each stream that was at home there will be at home."""
    for stream, home in sorted(homes.items()):
        yield Text.assemble("  → ", (stream, "bold"), f" will be at home in `{home}`, whose copy has come furthest")


def as_dict(
    proof: DeathProof | None, region: str, homes: Mapping[str, str], plan: Plan | None, *, is_done: bool
) -> dict[str, Any]:
    """Everything that is known before it is done, and whether it was."""
    heard = None
    if proof is not None:
        heard = {
            "verdict": _VERDICTS[proof.is_dead],
            "alive": proof.alive,
            "silent": proof.silent,
            "unknown": proof.unknown,
        }
    return {
        "region": region,
        "proof": heard,
        "homes": dict(sorted(homes.items())),
        "losses": plan.losses if plan is not None else (),
        "plan": saved.to_dict(plan) if plan is not None else None,
        "done": is_done,
    }
