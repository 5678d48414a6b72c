"""Random mappings, valid and broken, and subjects that they match; written as configuration."""

from __future__ import annotations

import random

from vstream.findings import Span
from vstream.subjects.functions import Function
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.subjects.resolve import MappingTable, Outcome, Resolution, compile_mappings

WORDS = (
    "a",
    "b",
    "abcdef",
    "x-y-z",
    "--",
    "-a",
    "a--b-",
    "$JS",
    "$1",
    "{{}}",
    "é",
    "a>",
    "*x",
    "{{wildcard(1)}}",
    "12",
)
CALLABLE = tuple(function.value for function in Function)
FUNCTIONS = (
    *CALLABLE,
    *(name[0].upper() + name[1:] for name in CALLABLE),
    "splitfromleft",
    "WILDCARD",
    "nope",
    "sp_lit",
)
ARGUMENTS = ("1", "1", "2", "2", "3", "0", "-1", "+1", " 1", "-", "x", "", "7", "99999999999999999999", "2147483648")


class Generator:
    """Random mappings and subjects; *flaws* is the share of tokens that a server should refuse."""

    def __init__(self, seed: int, *, flaws: float) -> None:
        self._random = random.Random(seed)
        self._flaws = flaws

    def _is_flawed(self) -> bool:
        return self._random.random() < self._flaws

    def source(self) -> str:
        pick = self._random.choices
        parts = [pick((*WORDS, "*", "*a"), (*[1] * len(WORDS), 12, 1))[0] for _ in range(self._random.randint(1, 4))]
        if self._random.random() < 0.25:
            parts.append(">")
        if self._is_flawed():
            parts.insert(self._random.randrange(len(parts)), self._random.choice(("", ">", "a b", "\t")))
        return ".".join(parts)

    def _call(self, wildcards: int) -> str:
        number = str(self._random.randint(1, max(wildcards, 1)))
        size = str(self._random.randint(1, 5))
        if self._is_flawed():
            arguments = self._random.choices(ARGUMENTS, k=self._random.randint(0, 3))
            return f"{{{{{self._random.choice(FUNCTIONS)}({','.join(arguments)})}}}}"
        match self._random.choice(CALLABLE):
            case "wildcard":
                return self._random.choice(
                    (f"${number}", f"{{{{wildcard({number})}}}}", f"{{{{ Wildcard( {number} ) }}}}")
                )
            case "random":
                return f"{{{{random({size})}}}}"
            case "split":
                return f"{{{{split({number},{self._random.choice(('-', 'b', '', '--'))})}}}}"
            case "partition":
                return self._random.choice((f"{{{{partition({size}00)}}}}", f"{{{{Partition({size}00,{number})}}}}"))
            case name:
                return f"{{{{{name}({number}, {size})}}}}"

    def _destination(self, source: str) -> str:
        wildcards = source.split(".").count("*")
        if self._random.random() < 0.06:
            return source if self._is_flawed() or not wildcards else "lost"
        parts = [self._random.choice(WORDS[:8])]
        for _ in range(self._random.randint(0, 3)):
            is_call = self._random.random() < (0.6 if wildcards else 0.15)
            parts.append(self._call(wildcards) if is_call else self._random.choice(WORDS[:6]))
        if self._is_flawed():
            parts.append(self._random.choice(("", "*", ">", "a b", "{{nope(1)}}", "$9", "{{wildcard(1)}}-x")))
        elif source.endswith(">"):
            parts.append(">")
        return ".".join(parts)

    def mapping(self, line: int) -> MappingRule:
        source = self.source()
        destinations = []
        left = dict.fromkeys((None, "west", "east", "West"), 100)
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 2, 3, 4))):
            cluster = self._random.choice((None, None, "west", "east", "West"))
            weight = self._random.choice((left[cluster], self._random.randint(0, left[cluster])))
            if self._is_flawed():
                weight = self._random.choice((101, -1, 100, 0))
            left[cluster] = max(left[cluster] - weight, 0)
            destinations.append(Destination(subject=self._destination(source), weight=weight, cluster=cluster))
        return MappingRule(source=source, destinations=tuple(destinations), span=Span.point("", line, 1))

    def table(self) -> MappingTable:
        """One to four rules that a server accepts and survives."""
        count = self._random.randint(1, 4)
        rules: dict[str, MappingRule] = {}
        while len(rules) < count:
            rule = self.mapping(1)
            if rule.destinations and not compile_mappings([rule]).errors:
                rules[rule.source] = rule
        return compile_mappings(rules.values())

    def subject(self, table: MappingTable) -> str:
        """Mostly one that some rule matches."""
        parts = self._random.choice(table.mappings).source.split(".")
        if parts[-1] == ">":
            parts[-1:] = ["*"] * self._random.randint(1, 3)
        if self._random.random() < 0.1:
            parts.append(self._random.choice(WORDS))
        return ".".join(self._random.choice(WORDS) if part in ("*", "*a") else part for part in parts)


def as_conf(mapping: MappingRule) -> str:
    """One line of a `mappings` block, in one of the three forms that the value allows."""
    maps = []
    for destination in mapping.destinations:
        cluster = "" if destination.cluster is None else f', cluster: "{destination.cluster}"'
        maps.append(f'{{destination: "{destination.subject}", weight: {destination.weight}{cluster}}}')
    value = f"[{', '.join(maps)}]"
    if len(maps) == 1:
        value = maps[0]
        if mapping.destinations[0].weight == 100 and mapping.destinations[0].cluster is None:
            value = f'"{mapping.destinations[0].subject}"'
    return f'"{mapping.source}": {value}'


def only_outcome(resolution: Resolution) -> Outcome | None:
    """The only possible outcome, None if chance has a say."""
    first, *rest = resolution.outcomes
    return None if rest or first.expansion.draws else first
