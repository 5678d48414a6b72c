"""Differences between loaded configuration and topology, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.text import Text

from vstream.formatting import format_count
from vstream.plan.plan import RULE, USERS, Plan, RuleChange
from vstream.topology.naming import PHYSICAL_PREFIX

_FEW = 20
"""How many lines are shown before the rest is counted."""
_FEW_SERVERS = 3
_OF_STREAM = re.compile(
    rf"(?:^|[. ]){re.escape(PHYSICAL_PREFIX)}\.([^.]+)\.|(?:^|\.)([^. ]+?)-(?:read|write|order)(?:-|\.|$)"
)
"""The virtual stream in the destination of a rule: `_vs.foo.west.foo.>`, `$JS.API.STREAM.INFO.foo-read-west`."""
_SIGNS = {"+": "green", "-": "red", "~": "yellow"}


def count_rules(plan: Plan) -> str:
    """How much there is to load: `1 mapping rule and 18 entries of accounts`."""
    sources = {rule.source: rule.kind == RULE for rule in plan.rules}
    rules = sum(sources.values())
    entries = len(sources) - rules
    parts = []
    if rules:
        parts.append(format_count(rules, "mapping rule"))
    if entries:
        parts.append(format_count(entries, "entry of accounts", "entries of accounts"))
    return " and ".join(parts)


def lines(plan: Plan, *, is_verbose: bool = False) -> Iterator[Text]:
    """What servers load: folded by stream and account, or each rule and entry with what changes there."""
    if is_verbose:
        for rule in plan.rules:
            yield from _rule_lines(rule)
        return
    groups: dict[tuple[str, str, tuple[str, ...]], list[RuleChange]] = {}
    for rule in plan.rules:
        groups.setdefault((sign_of(rule), _subject_of(rule), rule.servers), []).append(rule)
    for number, ((sign, about, servers), rules) in enumerate(groups.items()):
        if number == _FEW:
            yield Text(f"    … and {len(groups) - _FEW:,} more groups of rules (`--verbose` shows all)", style="dim")
            return
        if len(rules) == 1:
            yield from _rule_lines(rules[0])
            continue
        noun = "rules" if rules[0].kind == RULE else "entries"
        yield Text.assemble(
            (f"  {sign} ", _SIGNS[sign]), (about, "bold"), f": {len(rules):,} {noun} on {_servers(servers)}"
        )


def _subject_of(rule: RuleChange) -> str:
    """What a rule is grouped by: the virtual stream that it leads to, or its account."""
    if rule.kind != RULE:
        return "accounts" if rule.kind == USERS else f"account {rule.source.split(' ')[1]}"
    for destination in (*(rule.after or ()), *(rule.before or ())):
        if match := _OF_STREAM.search(destination):
            return f"mappings of {match[1] or match[2]}"
    return "mappings"


def _rule_lines(rule: RuleChange) -> Iterator[Text]:
    sign = sign_of(rule)
    yield Text.assemble((f"  {sign} ", _SIGNS[sign]), *name_rule(rule), f"  on {_servers(rule.servers)}")
    if rule.kind == USERS:
        return  # two digests, which mean nothing to a reader
    for before in rule.before or ():
        if rule.after is not None and before not in rule.after:
            yield Text(f"      - {before}", style="dim")
    for after in rule.after or ():
        if rule.before is not None and after not in rule.before:
            yield Text(f"      + {after}", style="dim")


def sign_of(rule: RuleChange) -> str:
    """`+`, `-` or `~`: whether it comes, goes or changes."""
    if rule.before is None:
        return "+"
    return "-" if rule.after is None else "~"


def name_rule(rule: RuleChange) -> tuple[str, tuple[str, str]]:
    """What is loaded: `mapping foo.>`, `import APP prices.>`, `users, and how long answers may take`."""
    if rule.kind == RULE:
        return "mapping ", (rule.source, "bold")
    if rule.kind == USERS:
        return "", ("users, and how long answers may take", "bold")
    kind, _, about = rule.source.partition(" ")
    return f"{kind} ", (about, "bold")


def _servers(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) < _FEW_SERVERS else f"{len(names):,} servers"
