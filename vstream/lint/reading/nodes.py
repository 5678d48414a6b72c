"""Nodes of a parsed configuration as plain values with places."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from vstream.findings import Span
from vstream.lint.workspace import ConfValue
from vstream.syntax.natsconf.nodes import ConfArray, ConfEntry, ConfMap, ConfNode, ConfScalar, ScalarKind, to_python

_GO_TYPES = {
    ScalarKind.STRING: "string",
    ScalarKind.UNRESOLVED: "string",
    ScalarKind.INTEGER: "int64",
    ScalarKind.FLOAT: "float64",
    ScalarKind.BOOLEAN: "bool",
    ScalarKind.DATETIME: "time.Time",
}


def value_of(node: ConfNode, key_span: Span | None = None) -> ConfValue:
    """The value of *node*, and where it and its key are written."""
    value = node.value if isinstance(node, ConfScalar) else None
    return ConfValue(value=value if isinstance(value, str) else to_python(node), span=node.span, key_span=key_span)


def scalar(node: ConfNode | None) -> object:
    """The value of a scalar, None for anything else."""
    return node.value if isinstance(node, ConfScalar) else None


def is_text(node: ConfNode) -> bool:
    """Whether the server takes *node* for a string. A date of the year 0 is text here, and a date there."""
    return isinstance(node, ConfScalar) and isinstance(node.value, str) and node.kind is not ScalarKind.DATETIME


def name_go_type(node: ConfNode) -> str:
    """The type that Go names in the errors of its type assertions."""
    if isinstance(node, ConfScalar):
        return _GO_TYPES[node.kind]
    return "[]interface {}" if isinstance(node, ConfArray) else "map[string]interface {}"


def entry(conf: ConfMap | None, *names: str) -> ConfEntry | None:
    """The entry that the server takes for the option with any of *names*, in any mixture of cases."""
    if conf is None:
        return None
    return next((candidate for candidate in reversed(conf.entries) if candidate.key.lower() in names), None)


def option(conf: ConfMap | None, *names: str) -> ConfValue | None:
    """The value of the option with any of *names*, None if it is not written."""
    named = entry(conf, *names)
    return value_of(named.value, named.key_span) if named else None


def table(conf: ConfMap | None, *names: str) -> ConfMap | None:
    """The value of an option that is a map."""
    named = entry(conf, *names)
    return named.value if named and isinstance(named.value, ConfMap) else None


def maps_in(conf: ConfMap | None, name: str) -> Iterator[ConfMap]:
    """The maps in the array that is the value of an option."""
    listed = entry(conf, name)
    for item in listed.value.items if listed and isinstance(listed.value, ConfArray) else ():
        if isinstance(item, ConfMap):
            yield item


def values_in(conf: ConfMap | None, *names: str) -> tuple[ConfValue, ...]:
    """The value of an option, or the values of the array that it is; maps in an array are left out."""
    named = entry(conf, *names)
    return list_values(named.value) if named else ()


def split_url(url: ConfValue) -> tuple[str, int | None, str | None]:
    """Host, port and user of a URL, with or without a scheme; an empty host for one that cannot be read."""
    text = str(url.value)
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        host, port, user = parts.hostname, parts.port, parts.username
    except ValueError:
        return "", None, None
    return host or "", port, user


def list_values(node: ConfNode) -> tuple[ConfValue, ...]:
    """One value or an array of them; maps in an array are left out."""
    items = node.items if isinstance(node, ConfArray) else (node,)
    return tuple(value_of(item) for item in items if isinstance(item, ConfScalar))
