"""
The single values of the scenario language: what is accepted, and its JSON Schema.

An error in a list or a map names the item by its index or key (`ctx["index"]`), so that it is shown there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from vstream.formatting import quote_value
from vstream.scenario.model import Compare
from vstream.syntax.schema import NEWER_HINT
from vstream.topology import units
from vstream.topology.naming import LINK_SEPARATORS

ALL = "all"
ANY = "any"
"""Nothing is expected, on purpose."""
REPAIR_META = "repair meta"

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)/(s|m)")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-[A-Za-z0-9.]+)?")
_BOUND = re.compile(r"(==|>=|<=)?\s*(\S.*)", re.DOTALL)
_PAIR = re.compile(r"(\S+)\s*->\s*(\S+)")
_REGION = "([A-Za-z0-9_-]+)"
_COMMAND = re.compile(
    f"(failover|failback|drain) {_REGION}|(drain) {_REGION} (--undo)|(failover) {_REGION} (--also) {_REGION}|repair meta"
)
_TIME = f"^{units.TIME_PATTERN}$"
_MAX_RATE = 100_000
_MAX_SIZE_BYTES = 2**20 - 2**12
"""Bytes of a message: servers take 1 MiB with its headers, unless `max_payload` says otherwise."""
_MAX_KEYS = 1_000_000


def _refuse(message: str, hint: str | None = None, index: str | int | None = None, **context: Any) -> NoReturn:
    if hint is not None:
        context["hint"] = hint
    if index is not None:
        context["index"] = index
    raise PydanticCustomError("scenario", "{reason}", {"reason": message, **context})


def is_number(value: object) -> bool:
    """Whether *value* is a number: YAML's true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# Times, rates and sizes


def _parse_time(value: object) -> int:
    if is_number(value):
        _refuse(f"a time needs a unit: `{value}s` or `{value}ms`?")
    if not isinstance(value, str) or value == units.UNLIMITED:
        _refuse("a time is a text such as `20s`, `500ms` or `1m30s`")
    try:
        return units.parse_duration(value)
    except ValueError as error:
        _refuse(str(error).replace(f", `30d` or `{units.UNLIMITED}`", " or `500ms`"))


def _parse_positive_time(value: object) -> int:
    time = _parse_time(value)
    if time == 0:
        _refuse("this would end at once", "give it a time, such as `20s`")
    return time


def _parse_rate(value: object) -> float:
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = f"`{value}/s`?" if is_number(value) else None
        _refuse(f"{quote_value(value)} is not a valid rate: write it like `100/s` or `30/m`", hint)
    rate = float(match[1]) / (60 if match[2] == "m" else 1)
    if not 0 < rate <= _MAX_RATE:
        _refuse(f"a rate is above 0 and at most {_MAX_RATE:,}/s")
    return rate


def _parse_message_size(value: object) -> int:
    if not isinstance(value, str) and not is_number(value):
        _refuse("a size is a number of bytes or a text such as `1KiB`")
    try:
        size = units.parse_size(str(value))
    except ValueError as error:
        _refuse(str(error).replace(f", `10GB` or `{units.UNLIMITED}`", " or `1KiB`").replace("512MiB", "64B"))
    if not 0 < size <= _MAX_SIZE_BYTES:
        _refuse("a message has 1B to 1020KiB: servers take 1MiB, headers included")
    return size


def _parse_sizes(value: object) -> tuple[int, int]:
    if isinstance(value, str) and ".." in value:
        low, _, high = value.partition("..")
        sizes = _parse_message_size(low.strip()), _parse_message_size(high.strip())
        if sizes[0] > sizes[1]:
            _refuse(f"{quote_value(value)} starts above its end", f"`{high.strip()}..{low.strip()}`?")
        return sizes
    size = _parse_message_size(value)
    return size, size


def _parse_keys(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_KEYS:
        _refuse(f"a number of keys is a whole number from 1 to {_MAX_KEYS:,}")
    return value


def _parse_command(value: object) -> tuple[str, ...]:
    match = _COMMAND.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        _refuse(
            f"{quote_value(value)} is not a command that a scenario can run",
            "write `drain west`, `drain west --undo`, `failover west`, `failover west --also east`, `failback west` "
            "or `repair meta`",
        )
    words = [word for word in match.groups() if word is not None]
    if "--undo" in words:
        return f"{words[0]} --undo", words[1]
    return tuple(word for word in words if word != "--also") or (REPAIR_META,)


def _parse_edition(value: object) -> int:
    """The version of the language. Python takes `true` and `1.0` for 1."""
    if type(value) is not int or value != 1:
        is_newer = type(value) is int and value > 1
        _refuse(f"must be `1`, not {quote_value(value)}", NEWER_HINT if is_newer else None)
    return value


def _parse_seed(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= units.MAX_INT64:
        _refuse("a seed is a whole number, 0 or above")
    return value


def _parse_version(value: object, *, index: str | None = None) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        message = f"{quote_value(value)} is not a full server version: write all three numbers, such as `2.15.1`"
        _refuse(message, index=index)
    return value


def _parse_versions(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {"*": _parse_version(value)}
    return {name: _parse_version(version, index=name) for name, version in value.items()}


# Names


def _parse_texts(value: object, expected: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        _refuse(f"expected {expected}, or a list of them")
    for index, name in enumerate(value):
        if not isinstance(name, str) or not name:
            _refuse(f"{quote_value(name)} is not a valid name", index=index)
        if name in value[:index]:
            _refuse(f"{quote_value(name)} is named twice", index=index)
    return tuple(value)


def _parse_all_or_texts(value: object, expected: str) -> tuple[str, ...]:
    """Names, or none for all of them: `all`, or nothing at all."""
    return () if value in (None, ALL) else _parse_texts(value, f"`{ALL}`, {expected}")


def _refuse_value(value: object) -> bool:
    if value is not None:
        _refuse("this takes no value", "remove what follows the colon")
    return True


def _parse_sides(value: object) -> tuple[tuple[str, ...], ...]:
    """`west | central,east`, or a list with an item for each side."""
    if isinstance(value, str):
        value = [[name.strip() for name in side.split(",")] for side in value.split("|")]
    if not isinstance(value, list) or len(value) <= 1:
        _refuse("a partition has two sides or more: `west | central,east`")
    sides: list[tuple[str, ...]] = []
    for index, side in enumerate(value):
        names = [side] if isinstance(side, str) else side
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            _refuse("a side is a region or a list of regions", index=index)
        sides.append(tuple(names))
    return tuple(sides)


def _parse_ends(value: object) -> tuple[str, ...]:
    """The two regions that a link connects, or a text `west-east`, or none for all links."""
    if value == ALL:
        return ()
    if isinstance(value, str) and any(separator in value.strip("-") for separator in LINK_SEPARATORS):
        return (value,)
    if isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) and name for name in value):  # noqa: PLR2004
        return tuple(value)
    _refuse("a link is named by its two regions: `west-east`, or `[west, east]`, or `all`")


def _accept_topology(value: object) -> object:
    if not isinstance(value, dict) and not (isinstance(value, str) and value):
        _refuse("the path of a topology file, or the topology itself")
    return value


# Expectations


@dataclass(frozen=True, slots=True)
class Bound:
    """How a measured value must relate to a stated one."""

    compare: Compare
    value: float


Bounds = tuple[tuple[str | None, Bound | None], ...]
"""By region, None for each by itself. No bound: anything is fine."""
_ReadBound = Callable[[object], Bound | None]


def _parse_bound(
    value: object, unit: Callable[[str], float], *, is_exact: Callable[[float], bool], example: str
) -> Bound:
    text = str(value) if is_number(value) else value
    match = _BOUND.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        _refuse(f"{quote_value(value)} is not a valid bound: write it like `{example}`")
    if match[2][0] in "<>=!":
        _refuse(
            f"{quote_value(value)} is not a valid bound: begin with one of `>=`, `<=` and `==`, such as `{example}`"
        )
    amount = unit(match[2])
    if match[1] is None and not is_exact(amount):
        _refuse(f"`{match[2]}` is almost never met exactly", f"write `{example}`")
    return Bound(Compare(match[1] or "=="), amount)


def _parse_share_amount(text: str) -> float:
    match = _PERCENT.fullmatch(text)
    if match is None and text != "0":
        hint = f"write `{(Decimal(text) * 100).normalize():f}%`" if re.fullmatch(r"[01]\.[0-9]+", text) else None
        _refuse(f"`{text}` is not a valid share: write it in percent, like `99.9%`", hint)
    share = float(Decimal(match[1]) / 100) if match else 0.0
    if share > 1:
        _refuse(f"`{text}` is more than 100 %")
    return share


def _parse_count_amount(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        _refuse(f"`{text}` is not a valid count: write a whole number")
    return float(text)


def _parse_time_amount(text: str) -> float:
    try:
        return float(units.parse_duration(text))
    except ValueError:
        _refuse(f"`{text}` is not a valid time: write it like `60s` or `5ms`")


def _parse_share_bound(value: object) -> Bound:
    return _parse_bound(value, _parse_share_amount, is_exact=lambda share: share in (0, 1), example='">= 99.9%"')


def _parse_count_bound(value: object) -> Bound | None:
    if value == ANY:
        return None
    return _parse_bound(value, _parse_count_amount, is_exact=lambda _: True, example='">= 1"')


def _parse_time_bound(value: object) -> Bound:
    return _parse_bound(value, _parse_time_amount, is_exact=lambda _: False, example='"<= 60s"')


def _parse_bounds(value: object, read_bound: _ReadBound) -> Bounds:
    """A bound for each region by itself, or a map of regions and bounds."""
    if not isinstance(value, dict):
        return ((None, read_bound(value)),)
    if not value:
        _refuse("nothing is expected here", 'such as `{west: ">= 99.9%"}`, or remove it')
    return tuple((name, _parse_bound_at(name, bound, read_bound)) for name, bound in value.items())


def _parse_pairs(value: object, read_bound: _ReadBound) -> Bounds:
    """A map of `west -> east` and bounds."""
    if not isinstance(value, dict) or not value:
        _refuse('a map such as `west -> east: ">= 1"`')
    for name in value:
        if not _PAIR.fullmatch(name.strip()):
            _refuse(f"{quote_value(name)} does not name two regions: write `west -> east`", index=name)
    return tuple((name, _parse_bound_at(name, bound, read_bound)) for name, bound in value.items())


def _parse_bound_at(index: str, value: object, read_bound: _ReadBound) -> Bound | None:
    """The bound *value*; an error is shown at *index*."""
    try:
        return read_bound(value)
    except PydanticCustomError as error:
        context = error.context or {}
        _refuse(str(context["reason"]), context.get("hint"), index)


def split_pair(text: str) -> tuple[str, str]:
    """The two regions in `west -> east`."""
    match = _PAIR.fullmatch(text.strip())
    assert match is not None
    return match[1], match[2]


def _parse_same_order(value: object) -> bool | None:
    if value == ANY:
        return None
    if not isinstance(value, bool):
        _refuse(f"`true`, `false` or `{ANY}`, not {quote_value(value)}")
    return value


Works = tuple[tuple[str | None, str, bool], ...]
"""By region (None for each by itself) and operation: whether it has to work."""


def _parse_works(value: object) -> Works:
    """A map of operations and whether they work, or such a map for each region."""
    if not isinstance(value, dict) or not value:
        _refuse("a map such as `{publish: true, create-consumer: false}`")
    results: list[tuple[str | None, str, bool]] = []
    for key, item in value.items():
        rows = {key: item} if isinstance(item, bool) else item
        if not isinstance(rows, dict) or not all(isinstance(works, bool) for works in rows.values()):
            _refuse("`true` or `false`, or for a region a map of operations", index=key)
        results += [(None if isinstance(item, bool) else key, operation, works) for operation, works in rows.items()]
    return tuple(results)


# What fields are annotated with

_NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_TEXT = {"type": "string"}
_AMOUNT = {"type": ["string", "integer"]}


def _annotate(check: Callable[[object], Any], schema: dict[str, Any]) -> Any:
    return (BeforeValidator(check), WithJsonSchema(schema))


def _allow_map(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "object", "additionalProperties": schema}]}


_TIME_SCHEMA = {"type": "string", "pattern": _TIME}
_ALL_SCHEMA = {"anyOf": [{"type": "null"}, *_NAMES["anyOf"]]}

Time = Annotated[int, *_annotate(_parse_time, _TIME_SCHEMA)]
Lasting = Annotated[int, *_annotate(_parse_positive_time, _TIME_SCHEMA)]
MaybeLasting = Annotated[
    int | None,
    *_annotate(
        lambda value: None if value is None else _parse_positive_time(value),
        {"anyOf": [{"type": "null"}, _TIME_SCHEMA]},
    ),
]
Rate = Annotated[float, *_annotate(_parse_rate, {"type": "string", "pattern": f"^{_RATE.pattern}$"})]
Sizes = Annotated[tuple[int, int], *_annotate(_parse_sizes, _AMOUNT)]
Edition = Annotated[int, *_annotate(_parse_edition, {"const": 1})]
Keys = Annotated[int, *_annotate(_parse_keys, {"type": "integer", "minimum": 1, "maximum": _MAX_KEYS})]
Seed = Annotated[int, *_annotate(_parse_seed, {"type": "integer", "minimum": 0, "maximum": units.MAX_INT64})]
ServerVersion = Annotated[str, *_annotate(_parse_version, {"type": "string", "pattern": f"^{_VERSION.pattern}$"})]
Versions = Annotated[
    dict[str, str],
    *_annotate(_parse_versions, _allow_map({"type": "string", "pattern": f"^{_VERSION.pattern}$"})),
]
Regions = Annotated[tuple[str, ...], *_annotate(partial(_parse_texts, expected="a region"), _NAMES)]
ServerNames = Annotated[tuple[str, ...], *_annotate(partial(_parse_texts, expected="a server"), _NAMES)]
Machines = Annotated[tuple[str, ...], *_annotate(partial(_parse_texts, expected="a region, a server"), _NAMES)]
AllRegions = Annotated[tuple[str, ...], *_annotate(partial(_parse_all_or_texts, expected="a region"), _ALL_SCHEMA)]
AllMachines = Annotated[
    tuple[str, ...], *_annotate(partial(_parse_all_or_texts, expected="a region, a server"), _ALL_SCHEMA)
]
Faults = Annotated[
    tuple[str, ...], *_annotate(partial(_parse_all_or_texts, expected="the name of a fault"), _ALL_SCHEMA)
]
Command = Annotated[
    tuple[str, ...], *_annotate(_parse_command, {"type": "string", "pattern": f"^({_COMMAND.pattern})$"})
]
Nothing = Annotated[bool, *_annotate(_refuse_value, {"type": "null"})]
Sides = Annotated[
    tuple[tuple[str, ...], ...],
    *_annotate(_parse_sides, {"anyOf": [_TEXT, {"type": "array", "items": _NAMES, "minItems": 2}]}),
]
Ends = Annotated[
    tuple[str, ...],
    *_annotate(_parse_ends, {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2}]}),
]
TopologySource = Annotated[
    str | dict[str, Any],
    *_annotate(_accept_topology, {"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]}),
]
ShareBounds = Annotated[Bounds, *_annotate(partial(_parse_bounds, read_bound=_parse_share_bound), _allow_map(_AMOUNT))]
CountBounds = Annotated[Bounds, *_annotate(partial(_parse_bounds, read_bound=_parse_count_bound), _allow_map(_AMOUNT))]
TimeBounds = Annotated[Bounds, *_annotate(partial(_parse_bounds, read_bound=_parse_time_bound), _allow_map(_TEXT))]
CountPairs = Annotated[
    Bounds,
    *_annotate(
        partial(_parse_pairs, read_bound=_parse_count_bound), {"type": "object", "additionalProperties": _AMOUNT}
    ),
]
TimePairs = Annotated[
    Bounds,
    *_annotate(partial(_parse_pairs, read_bound=_parse_time_bound), {"type": "object", "additionalProperties": _TEXT}),
]
CountBound = Annotated[Bound | None, *_annotate(_parse_count_bound, _AMOUNT)]
TimeBound = Annotated[Bound, *_annotate(_parse_time_bound, _TEXT)]
SameOrder = Annotated[bool | None, *_annotate(_parse_same_order, {"enum": [True, False, ANY]})]
OperationResults = Annotated[
    Works,
    *_annotate(
        _parse_works,
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "boolean"}, {"type": "object", "additionalProperties": {"type": "boolean"}}]
            },
        },
    ),
]
