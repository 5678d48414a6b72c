"""What servers have loaded otherwise than the topology says, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from vstream.plan.account_entries import RULE, USERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.plan.plan import Plan, RuleChange

_FEW = 20
"""How many are shown before the rest is counted."""


def counted(plan: Plan) -> str:
    """How much there is to load: `1 mapping rule and 18 entries of accounts`."""
    sources = {rule.source: rule.kind == RULE for rule in plan.rules}
    rules = sum(sources.values())
    entries = len(sources) - rules
    return " and ".join(
        ([f"{rules:,} mapping rule{'' if rules == 1 else 's'}"] if rules else [])
        + ([f"{entries:,} {'entry' if entries == 1 else 'entries'} of accounts"] if entries else [])
    )


def lines(plan: Plan) -> Iterator[Text]:
    """Each rule and each entry, with the servers and what changes there."""
    for rule in plan.rules[:_FEW]:
        sign, style = ("+", "green") if rule.before is None else ("-", "red") if rule.after is None else ("~", "yellow")
        yield Text.assemble((f"  {sign} ", style), *named(rule), f"  on {_servers(rule)}")
        if rule.kind == USERS:
            continue  # two digests, which say nothing to anybody
        for before in rule.before or ():
            if rule.after is not None and before not in rule.after:
                yield Text(f"      - {before}", style="dim")
        for after in rule.after or ():
            if rule.before is not None and after not in rule.before:
                yield Text(f"      + {after}", style="dim")
    if len(plan.rules) > _FEW:
        yield Text(f"    … and {len(plan.rules) - _FEW:,} more of them", style="dim")


def named(rule: RuleChange) -> tuple[str, tuple[str, str]]:
    """What is loaded: `mapping foo.>`, `import APP prices.>`, `users, and how long answers may take`."""
    if rule.kind == RULE:
        return "mapping ", (rule.source, "bold")
    if rule.kind == USERS:
        return "", ("users, and how long answers may take", "bold")
    kind, _, about = rule.source.partition(" ")
    return f"{kind} ", (about, "bold")


def _servers(rule: RuleChange) -> str:
    return ", ".join(rule.servers) if len(rule.servers) <= 3 else f"{len(rule.servers):,} servers"  # noqa: PLR2004
