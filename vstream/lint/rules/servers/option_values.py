"""Valid values of server options: types, durations, sizes and keywords, from server/opts.go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from vstream.findings import Related, Severity
from vstream.formatting import quote_names, quote_value
from vstream.lint.reading.nodes import split_url
from vstream.lint.rule import Violation, make_refusal, once_per_place, rule
from vstream.lint.rules.server_values import list_links
from vstream.lint.rules.servers.option_kinds import OptionKind, TextForm, ValueKind, Words
from vstream.lint.rules.servers.options import NAMES, WrittenOption, blocks_of, list_judged_options
from vstream.lint.workspace import ServerConf, Workspace
from vstream.syntax.natsconf.nodes import ConfArray, ConfEntry, ConfMap, ConfNode, ConfScalar, ScalarKind, to_python

_DURATION: Final = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_SIZE: Final = re.compile(r"|[-+]?\d+[KMGT]")
_NUMBER_WITH_UNIT: Final = re.compile(r"(\d+)\s*([a-zA-Z]+)")
_WORDS_FOR_UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("k", "kb", "kib"), "K"),
    **dict.fromkeys(("m", "mb", "mib"), "M"),
    **dict.fromkeys(("g", "gb", "gib"), "G"),
    **dict.fromkeys(("t", "tb", "tib"), "T"),
}
_ADDRESS: Final = re.compile(r"(?!.*://).*:-?\d+")
_IN_QUOTES: Final = "write a text"
_FORMS: Final[Mapping[ValueKind, str]] = {
    ValueKind.TEXT: _IN_QUOTES,
    ValueKind.TEXTS: _IN_QUOTES,
    ValueKind.TEXT_OR_MAP: _IN_QUOTES,
    ValueKind.ARRAY: "put `[` and `]` around it",
    ValueKind.MAP: "write `{ … }`",
    ValueKind.SWITCH: "write `enabled`",
    ValueKind.ADDRESS: "write a port, or `host:port`",
    ValueKind.FLAG_OR_MAP: "write true, false or `{ … }`",
}
"""What to write where a value has another form."""
_MAPPINGS: Final = ("mappings", "maps")
_SWITCHES: Final = frozenset({"enabled", "enable", "disabled", "disable"})
_PERMISSIONS: Final = frozenset({"publish", "pub", "subscribe", "sub", "allow"})
_EVERYTHING: Final = ">"
_OTHER_NAMES: Final[dict[str, set[str]]] = {}
for _names in NAMES:
    for _name in _names:
        _OTHER_NAMES.setdefault(_name, set()).update(set(_names) - {_name})
_TRUE: Final = frozenset({"true", "yes", "on", "yess", "enabled", "enable", "1"})


@rule("VS424", "wrong-option-value", Severity.ERROR)
def wrong_option_value(workspace: Workspace) -> Iterator[Violation]:
    """
    An option has a value of the wrong type, or a keyword that the server does not know.

    ## Why is this bad?
    The server does not start, and refuses to reload; for a wrong type it only prints `interface conversion`. Write
    numbers without quotes, durations as strings with a unit, such as `"2m"`, and sizes in `jetstream` with one letter,
    as in `10G`. The types are those of `server/opts.go` in 2.15; older servers accept no others.
    """
    for _, option in list_judged_options(workspace.servers):
        name = option.entry.key.lower()
        kind = option.block.kinds.get(name)
        if kind is not None:
            yield from _check_wrong_values(option, kind)
        yield from _out_of_range(option, option.block.ranges.get(name))
    for server in workspace.servers:
        if not server.is_fragment:
            yield from _check_addresses(server)


def _check_addresses(server: ServerConf) -> Iterator[Violation]:
    """Addresses of other servers that `nats-server -t` accepts."""
    for kind, port, urls in (
        ("route", 6222, list_links(server, "cluster")),
        ("gateway", 7222, list_links(server, "gateway")),
        ("leaf node", 7422, [url for remote in server.leaf_remotes for url in remote.urls]),
    ):
        for url in urls:
            if url.text and not split_url(url)[0]:
                message = f"`{url.text}` is not the address of a server: the {kind} never connects"
                yield Violation(
                    at=url.span, message=message, hint=f"write `nats://HOST:{port}`, each in quotes of its own"
                )


@rule("VS427", "option-written-twice", Severity.WARNING)
@once_per_place
def option_written_twice(workspace: Workspace) -> Iterator[Violation]:
    """
    An option is written twice in one block of one file, or by two of its names.

    ## Why is this bad?
    The last one is used, and the first one is silently ignored: of two `accounts` blocks, the users of the first cannot
    log in (all versions; conf/parse.go). Replacing an option of an included file is not reported. Two equal values are
    only a note, and so is a second permission for `>`.
    Of two names of one option, such as `listen` and `port`, or `http` and `HTTP_port`, one is used by chance, at each
    start another (server/opts.go reads a map of Go, which has no order). They are not reported if they agree.
    """
    for server in workspace.servers:
        for conf, block in blocks_of(server.root):
            for entry, earlier in _list_competing_entries(conf) if block.items is None else ():
                yield Violation(
                    at=entry.key_span,
                    message=f"`{entry.key}` and `{earlier.key}` disagree: which of them counts changes from start to start",
                    hint="remove one of them",
                    related=(Related(span=earlier.key_span, message="the other one"),),
                )
            seen_entries: dict[str, ConfEntry] = {}
            for entry in conf.entries:
                earlier = seen_entries.setdefault(entry.key, entry)
                span = entry.key_span
                if earlier is entry or earlier.key_span.file != span.file:
                    continue
                # VS355 knows more of mappings; `jetstream: enabled` before its block says nothing else.
                is_switch = isinstance(earlier.value, ConfScalar) and isinstance(entry.value, ConfMap)
                if is_switch or entry.key.lower() in _MAPPINGS:
                    continue
                value = to_python(entry.value)
                # Of a permission for every subject, what an earlier one says is part.
                permits_all = entry.key.lower() in _PERMISSIONS and value in (_EVERYTHING, [_EVERYTHING])
                is_harmless = permits_all or to_python(earlier.value) == value
                yield Violation(
                    at=span,
                    message=f"`{entry.key}` is already in line {earlier.key_span.line}: its value there is ignored",
                    hint="merge both, or remove one of them",
                    related=(Related(span=earlier.key_span, message="the first one"),),
                    severity=Severity.NOTE if is_harmless else None,
                )


def _list_competing_entries(conf: ConfMap) -> Iterator[tuple[ConfEntry, ConfEntry]]:
    """Options that are written by several of their names, with values that do not agree; each with an earlier one."""
    before: list[ConfEntry] = []
    for entry in conf.effective_entries():
        names = {entry.key.lower(), *_OTHER_NAMES.get(entry.key.lower(), ())}
        namesakes = (candidate for candidate in before if candidate.key.lower() in names)
        earlier = next((candidate for candidate in namesakes if not _agree(candidate, entry)), None)
        before.append(entry)
        if earlier is not None:
            yield entry, earlier


def _agree(first: ConfEntry, second: ConfEntry) -> bool:
    """Whether two entries have the same value, or one of them is the host or the port of the other."""
    first_value, second_value = str(to_python(first.value)), str(to_python(second.value))
    return first_value in second_value.rsplit(":", 1) or second_value in first_value.rsplit(":", 1)


def _check_wrong_values(option: WrittenOption, kind: OptionKind) -> Iterator[Violation]:
    value = option.entry.value
    is_list = isinstance(kind, TextForm | tuple) or kind is ValueKind.TEXTS
    for node in value.items if isinstance(value, ConfArray) and is_list else (value,):
        if isinstance(node, ConfScalar) and node.kind is ScalarKind.UNRESOLVED:
            continue
        hint = _find_hint(node, kind)
        if hint is not None:
            # A running server takes seconds without a unit, with a warning; `nats-server -t` does not.
            is_taken = kind in _UNIT_MISSING and _is_integer(getattr(node, "value", None))
            effect = "`nats-server -t` refuses it" if is_taken else "the server does not start"
            yield Violation(
                at=node.span,
                message=f"`{option.entry.key}` must be {_name_kind(kind)}, not {_describe(node, kind)}: {effect}",
                hint=hint,
                severity=Severity.WARNING if is_taken else None,
            )


def _out_of_range(option: WrittenOption, limits: Sequence[int] | None) -> Iterator[Violation]:
    value = option.entry.value.value if isinstance(option.entry.value, ConfScalar) else None
    if limits is not None and isinstance(value, int) and not limits[0] <= value <= limits[1]:
        yield make_refusal(
            option.entry.value.span,
            f"`{option.entry.key}` must be from {limits[0]} to {limits[1]}",
            f"write {limits[1]} or less, and at least {limits[0]}",
        )


def _find_hint(node: ConfNode, kind: OptionKind) -> str | None:
    """What to write instead; None if the value is valid."""
    if isinstance(kind, ValueKind):
        return _hint_for_kind(node, kind)
    if not isinstance(kind, TextForm):
        return _hint_for_word(node, kind)
    value = node.value if isinstance(node, ConfScalar) else None
    return None if isinstance(value, str) and kind.matches(value) else kind.hint


def _name_kind(kind: OptionKind) -> str:
    if isinstance(kind, ValueKind):
        return kind.value
    return kind.title if isinstance(kind, TextForm) else "one of " + quote_names(kind[:8])


def _describe(node: ConfNode, kind: OptionKind) -> str:
    if isinstance(kind, TextForm) and kind.is_secret:
        return "this"
    if isinstance(node, ConfScalar):
        return quote_value(node.raw)
    return "an array" if isinstance(node, ConfArray) else "a map"


def _hint_for_word(node: ConfNode, words: Words) -> str | None:
    value = node.value if isinstance(node, ConfScalar) else None
    if not isinstance(value, str):
        # A number may be the version 1.2 without its quotes.
        return f'write "{value}", in quotes' if str(value) in words else f"write `{words[0]}`"
    if value.casefold() in {word.casefold() for word in words}:
        return None
    folded = {word.casefold(): word for word in words}
    close = get_close_matches(value.casefold(), list(folded), n=1, cutoff=0.5)
    return f"did you mean `{folded[close[0]]}`?" if close else f"write `{words[0]}`"


_UNIT_MISSING: Final = frozenset({ValueKind.DURATION, ValueKind.SYNC})


def _has_form(node: ConfNode, kind: ValueKind) -> bool:
    """Whether a value is what *kind* says, for what is more than a number or a word."""
    value = node.value if isinstance(node, ConfScalar) else None
    match kind:
        case ValueKind.ARRAY:
            return isinstance(node, ConfArray)
        case ValueKind.ADDRESS:
            return _is_integer(value) or _ADDRESS.fullmatch(str(value)) is not None
        case ValueKind.TEXT | ValueKind.TEXTS | ValueKind.TEXT_OR_MAP:
            return isinstance(value, str) or (kind is ValueKind.TEXT_OR_MAP and isinstance(node, ConfMap))
        case ValueKind.MAP:
            return isinstance(node, ConfMap)
        case _:
            is_switch = kind is ValueKind.SWITCH and str(value).lower() in _SWITCHES
            return isinstance(node, ConfMap) or isinstance(value, bool) or is_switch


def _hint_for_kind(node: ConfNode, kind: ValueKind) -> str | None:
    """What to write instead; None if the value is valid."""
    value, raw = (node.value, node.raw) if isinstance(node, ConfScalar) else (None, "")
    match kind:
        case ValueKind.BOOLEAN:
            return None if isinstance(value, bool) else f"write {str(str(value).lower() in _TRUE).lower()}"
        case ValueKind.INTEGER:
            return None if _is_integer(value) else _hint_for_integer(value)
        case ValueKind.SIZE:
            is_size = _is_integer(value) or (isinstance(value, str) and _SIZE.fullmatch(value))
            return None if is_size else f"write {_with_unit(value, '10G')}"
        case _ if kind in _FORMS:
            is_number = _FORMS[kind] == _IN_QUOTES and value is not None
            # A server takes `"$NAME"` as it is.
            quoted = f"'\"…\"' into `{raw[1:]}`, with both quotes" if raw[:1] == "$" else f'"{raw}", in quotes'
            hint = f"write {quoted}" if is_number else _FORMS[kind]
            return None if _has_form(node, kind) else hint
        case _:
            return _hint_for_duration(value, raw, kind)


def _hint_for_duration(value: object, raw: str, kind: ValueKind) -> str | None:
    is_number = kind is ValueKind.SECONDS and isinstance(value, int | float)
    is_always = (kind is ValueKind.SYNC and str(value).lower() == "always") or (
        kind is ValueKind.FIRST and (isinstance(value, bool) or str(value).lower() == "auto")
    )
    if is_number or is_always or (isinstance(value, str) and _DURATION.fullmatch(value)):
        return None
    if _is_integer(value):
        # Without quotes, `2m` is two millions.
        return f'write "{raw}"' if _DURATION.fullmatch(raw) and raw != "0" else f'write "{value}s"'
    is_nearly = kind is ValueKind.SYNC and get_close_matches(str(value).lower(), ["always"])
    return "did you mean `always`?" if is_nearly else f'write "{_with_unit(value, "2m")}"'


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _hint_for_integer(value: object) -> str:
    text = str(value).strip()
    if text.isascii() and text.isdecimal():
        return f"write {text}, without quotes"
    written = _with_unit(value, "")
    return f"write {written}B, without quotes" if written[-1:] in {"K", "M", "G", "T"} else "write a number"


def _with_unit(value: object, otherwise: str) -> str:
    """A number with the unit that a text probably means: `10 minutes` becomes `10m`."""
    match = _NUMBER_WITH_UNIT.fullmatch(str(value).strip())
    unit = _WORDS_FOR_UNITS.get(match[2].lower()) if match else None
    return f"{match[1]}{unit}" if match and unit else otherwise
