"""Subject mappings out of a parsed NATS configuration (server/opts.go, parseAccountMappings)."""

from __future__ import annotations

import re

from vstream.subjects.mapping import Destination, Mapping
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfNode, ConfScalar

_WEIGHT = re.compile(r"([0-9]+)%?")


def read_mappings(block: ConfMap) -> tuple[Mapping, ...]:
    """The rules of a `mappings { … }` block, in the order written. What is not a rule is left out."""
    return tuple(
        Mapping(source=source, destinations=_destinations(node), span=node.span) for source, node in block.items()
    )


def _destinations(node: ConfNode) -> tuple[Destination, ...]:
    if isinstance(node, ConfScalar):
        return (Destination(subject=str(node.value), span=node.span),)
    if isinstance(node, ConfArray):
        return tuple(destination for item in node.items for destination in _destinations(item))
    subject, cluster, weight = (node.get_folded(key) for key in ("destination", "cluster", "weight"))
    if subject is None:
        subject = node.get_folded("dest")
    return (
        Destination(
            subject=_text(subject) or "",
            cluster=_text(cluster),
            weight=_weight(weight),
            span=node.span,
        ),
    )


def _text(node: ConfNode | None) -> str | None:
    return str(node.value) if isinstance(node, ConfScalar) else None


def _weight(node: ConfNode | None) -> int:
    match = _WEIGHT.fullmatch(_text(node) or "")
    return int(match[1]) if match else 100
