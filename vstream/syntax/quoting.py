"""How a user's text is shown in a message."""

from __future__ import annotations

_LONGEST = 60
_YAML = {None: "null", True: "true", False: "false"}
"""As they are written, not as Python calls them."""


def quote_value(value: object) -> str:
    """*value* as one short line in backticks: what cannot be printed is escaped, what is long is cut."""
    text = _YAML.get(value, str(value)) if value is None or isinstance(value, bool) else str(value)
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    return "`" + "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) + "`"
