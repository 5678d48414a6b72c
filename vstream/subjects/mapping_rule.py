"""Account subject mappings: what a `mappings { … }` block says, as values (server/opts.go, parseAccountMappings)."""

from __future__ import annotations

import re
from dataclasses import field

from vstream.findings import Span
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfNode, ConfScalar
from vstream.value_class import value_class

_WEIGHT = re.compile(r"([0-9]+)%?")


@value_class
class Destination:
    """
    Where *weight* percent of a mapping's messages go (`server/accounts.go` MapDest).

    *subject* may hold mapping functions and is empty where the file names no
    destination. *weight* is as written, so it may be out of range. *cluster*
    limits the destination to publishes that enter at that cluster; None means
    everywhere else.
    """

    subject: str
    weight: int = 100
    cluster: str | None = None
    span: Span | None = field(default=None, compare=False)


@value_class
class MappingRule:
    """One rule: messages published to *source* go to one of *destinations*, which may be none."""

    source: str
    destinations: tuple[Destination, ...]
    span: Span | None = field(default=None, compare=False)


def parse_mappings(block: ConfMap) -> tuple[MappingRule, ...]:
    """The rules of a `mappings { … }` block, in the order written. What is not a rule is left out."""
    rules = []
    for source, node in block.items():
        rules.append(MappingRule(source=source, destinations=_read_destinations(node), span=node.span))
    return tuple(rules)


def _read_destinations(node: ConfNode) -> tuple[Destination, ...]:
    if isinstance(node, ConfScalar):
        return (Destination(subject=str(node.value), span=node.span),)
    if isinstance(node, ConfArray):
        return tuple(destination for item in node.items for destination in _read_destinations(item))
    subject, cluster, weight = (node.get_folded(key) for key in ("destination", "cluster", "weight"))
    if subject is None:
        subject = node.get_folded("dest")
    return (
        Destination(
            subject=_read_text(subject) or "", cluster=_read_text(cluster), weight=_read_weight(weight), span=node.span
        ),
    )


def _read_text(node: ConfNode | None) -> str | None:
    return str(node.value) if isinstance(node, ConfScalar) else None


def _read_weight(node: ConfNode | None) -> int:
    match = _WEIGHT.fullmatch(_read_text(node) or "")
    return int(match[1]) if match else 100
