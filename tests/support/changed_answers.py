"""Ways to change an answer of a server: one value of it, its headers, its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

CONTROLS = "\x1b[31mred\x1b]0;title\x07\r\n::error::forged\n\x00\u202eright-to-left <img src=x> |`*_[x](y)"
"""What a terminal, a CI system and a page would act on."""
_LONG = 8_000_000
_MANY = 20_000
_DEEP = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. *raw* stands for all of it, framing included."""

    payload: bytes = b""
    headers: bytes = b""
    raw: bytes = b""
    times: int = 1


SILENT = Answer(raw=b"-")
"""There is none."""
ENDLESS = Answer(raw=b"MSG x 1 4294967296\r\n")
"""It never ends."""
_OTHER: tuple[Any, ...] = (
    1, -1, 0, 1.5, True, "", "x", "1", "1h", [], {}, [1], [None], [[]], ["x"], {"x": 1}, {"": None}, {"name": []},
)  # fmt: skip
_HUGE: tuple[Any, ...] = (
    2**31,
    2**53,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**400,
    1e308,
    -1e308,
    float("inf"),
    float("nan"),
)
_WHOLE = (
    b"", b"null", b"[]", b"{}", b"5", b'"x"', b"{", b"NaN", b"\xff\xfe\x00", b"9" * 5_000, b"[" * _DEEP, b'{"a":' * _DEEP,
    b'{"error": "no"}', b'{"error": {}}', b'{"error": {"code": "x"}}', b'{"error": {"code": 503, "err_code": 10008}}',
    b'{"type": 1, "type": 2}', b" " * 100_000, b"\r\n\r\n",
)  # fmt: skip
_LINES = (
    b"-ERR 'Authorization \x1b[31mViolation\n::error::forged'\r\n", b"-ERR\r\n", b"\r\n", b"MSG\r\n", b"MSG x y z\r\n",
    b"MSG x 1 -5\r\n", b"HMSG x 1 50 10\r\n" + b"x" * 50 + b"\r\n", b"\x00" * 100, b"INFO {\r\n", b"INFO []\r\n", b"INFO null\r\n",
    b"PING\r\n" * 1_000, b"HTTP/1.0 banana\r\n\r\n", b"HTTP/1.0 500 x\r\n\r\n\x1b[31m\n::error::forged",
    b"HTTP/1.0 302 x\r\nLocation: file:///etc/passwd\r\n\r\n", b"x" * 5_000_000 + b"\r\n",
)  # fmt: skip
_HEADERS: tuple[str, ...] = ("", "x", "-1", "1.5", "9" * 5_000, "\x1b[31m::error::", "\xff", "x" * 1_000_000, "0", "²")


def change_answer(answer: Answer, damage: str, random: Random) -> tuple[Answer, str]:
    """*answer* with a *damage* of DAMAGES, and what was changed. The answer itself where it cannot be damaged so."""
    changed, description = DAMAGES[damage](answer, random)
    return changed, f"{damage}: {description:.80}"


def _value(*choices: Any) -> Callable[[Answer, Random], tuple[Answer, str]]:
    def change(answer: Answer, random: Random) -> tuple[Answer, str]:
        return _replace_value(answer, random, random.choice(choices))

    return change


def _replace_value(answer: Answer, random: Random, value: Any) -> tuple[Answer, str]:
    """Change one value of the JSON in *answer*."""
    document = _decode(answer)
    places = list(_walk(document, "")) if document is not None else []
    if not places:
        return answer, "no JSON"
    container, key, path = random.choice(places)
    container[key] = value
    return _with_json(answer, document), f"{path} = {value!r:.40}"


def _make_deep(answer: Answer, random: Random) -> tuple[Answer, str]:
    """Nest one value so deep that no decoder that recurses gets to its end."""
    changed, description = _replace_value(answer, random, "@deep@")
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    deep = (opening * _DEEP + "1" + closing * _DEEP).encode()
    return (
        changed if changed is answer else replace(changed, payload=changed.payload.replace(b'"@deep@"', deep))
    ), description


def _remove(answer: Answer, random: Random) -> tuple[Answer, str]:
    document = _decode(answer)
    places = list(_walk(document, "")) if document is not None else []
    if not places:
        return answer, "no JSON"
    container, key, path = random.choice(places)
    del container[key]
    return _with_json(answer, document), f"without {path}"


def _multiply(answer: Answer, random: Random) -> tuple[Answer, str]:
    """Repeat one entry of a list, or invent thousands of keys."""
    document = _decode(answer)
    values = [(container[key], path) for container, key, path in _walk(document, "")] if document is not None else []
    places = [(value, path) for value, path in values if isinstance(value, (list, dict))]
    if not places:
        return answer, "nothing that has entries"
    value, path = random.choice(places)
    if isinstance(value, list):
        value.extend((value or [{}])[:1] * _MANY)
    else:
        value.update({f"key {number}": random.choice(_OTHER) for number in range(_MANY)})
    return _with_json(answer, document), f"{path} has {_MANY} entries"


def _change_header(answer: Answer, random: Random) -> tuple[Answer, str]:
    lines = answer.headers.rstrip(b"\r\n").split(b"\r\n")
    if not answer.headers:
        return replace(answer, headers=b"NATS/1.0 503\r\n\r\n"), "a status that it did not have"
    number = random.randrange(len(lines))
    name, separator, _ = lines[number].partition(b":" if number else b" ")
    value = random.choice(_HEADERS)
    lines[number : number + 1] = (
        [name + separator + value.encode("latin-1", "replace")] if random.random() < 0.8 else []
    )
    return replace(answer, headers=b"\r\n".join(lines) + b"\r\n\r\n"), f"{name.decode()} {value!r:.40}"


def _cut(answer: Answer, random: Random) -> tuple[Answer, str]:
    length = random.randrange(len(answer.payload) or 1)
    return replace(answer, payload=answer.payload[:length]), f"{length} of {len(answer.payload)} bytes"


def _replace_all(answer: Answer, random: Random) -> tuple[Answer, str]:
    payload = random.choice(_WHOLE)
    return replace(answer, payload=payload), repr(payload[:30])


def _break_protocol(answer: Answer, random: Random) -> tuple[Answer, str]:
    raw = random.choice(_LINES)
    return replace(answer, raw=raw), repr(raw[:30])


def _repeat(answer: Answer, random: Random) -> tuple[Answer, str]:
    times = random.choice((2, 1_000))
    return replace(answer, times=times), f"{times} times"


DAMAGES: Mapping[str, Callable[[Answer, Random], tuple[Answer, str]]] = {
    "wrong type": _value(*_OTHER),
    "missing": _remove,
    "null": _value(None),
    "huge number": _value(*_HUGE),
    "negative": _value(-1, -(2**31), -0.5),
    "long text": _value("x" * _LONG),
    "control characters": _value(CONTROLS, "\ud800", "\x00"),
    "deep": _make_deep,
    "many": _multiply,
    "truncated": _cut,
    "another": _replace_all,
    "headers": _change_header,
    "protocol": _break_protocol,
    "repeated": _repeat,
    "silent": lambda _, __: (SILENT, "no answer"),
    "endless": lambda _, __: (ENDLESS, "no end"),
}


def _decode(answer: Answer) -> Any:
    try:
        return json.loads(answer.payload)
    except ValueError:
        return None


def _with_json(answer: Answer, document: Any) -> Answer:
    return replace(answer, payload=json.dumps(document).encode())


def _walk(value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """Every place in *value*: its container, its key, and its path."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        yield value, key, f"{path}.{key}"
        yield from _walk(item, f"{path}.{key}")
