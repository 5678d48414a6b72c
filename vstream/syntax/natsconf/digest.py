"""
The digest by which nats-server names a configuration (`config_digest` of `/varz`, from 2.12 on).

It covers every value that the file and what it includes come to, those of environment variables too. Comments, order,
spelling (`1k` or `1000`), and in which file something stands make no difference. It is compared with `nats-server -t`.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal

from vstream.syntax.natsconf.nodes import ConfDocument, Json, to_python

_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
"""What Go's encoder escapes besides what JSON has to."""
_SMALL, _LARGE = 1e-6, 1e21
"""Between these, it writes numbers without an exponent."""


def digest(document: ConfDocument) -> str:
    """The digest of *document*, which must be free of errors."""
    return f"sha256:{hashlib.sha256((_json(to_python(document.root)) + chr(10)).encode()).hexdigest()}"


def _json(value: Json) -> str:
    """*value* as Go writes it: keys in the order of their bytes, no spaces."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: item[0].encode())
        return "{" + ",".join(f"{_json(key)}:{_json(inner)}" for key, inner in items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, float):
        return _spell_float(value)
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPED)


def _spell_float(value: float) -> str:
    """The fewest digits that come to *value*."""
    if value == 0 or _SMALL <= abs(value) < _LARGE:
        return format(Decimal(repr(value)), "f").removesuffix(".0")
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent):+d}"
