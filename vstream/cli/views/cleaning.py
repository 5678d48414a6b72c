"""
Make foreign text harmless: what servers, captures and topologies say is printed, never obeyed.

Control characters would move the cursor, bidi overrides would show another text than there is, and a line that begins
with `::` or contains `##[` is a command to the CI systems that read logs.
"""

from __future__ import annotations

import re

from rich.text import Text

from vstream.findings import mask_secrets

_CI_COMMAND = re.compile(r"(?<!\S):(?=:)|#(?=#\[|#vso\[)")
_MARKDOWN = {"|": "\\|", "<": "&lt;", ">": "&gt;", "@": "&#64;", "[": "\\[", "!": "\\!"}
_ASCII = {
    "\N{CHECK MARK}": "+",
    "\N{BALLOT X}": "x",
    "\N{HORIZONTAL ELLIPSIS}": "~",
    "\N{MIDDLE DOT}": "-",
    "\N{BULLET}": "*",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{RIGHTWARDS ARROW}": ">",
    "\N{LEFTWARDS ARROW}": "<",
    "\N{UPWARDS ARROW}": "^",
    "\N{DOWNWARDS ARROW}": "v",
    "\N{GREATER-THAN OR EQUAL TO}": ">",
    "\N{LESS-THAN OR EQUAL TO}": "<",
    "\N{MICRO SIGN}": "u",
    "\N{BOX DRAWINGS HEAVY HORIZONTAL}": "-",
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}": "-",
    "\N{BOX DRAWINGS LIGHT VERTICAL}": "|",
    **dict(zip("▁▂▃▄▅▆▇█", "_.-=+*%#", strict=True)),
}
"""One column each, for terminals and files that cannot hold more."""


_MAX_LINE_LENGTH = 20_000
"""Characters of the longest line. Nobody reads more, and to lay out a cell of millions takes minutes."""
_CUT = _MAX_LINE_LENGTH - 100


def cut_text(text: Text) -> Text:
    """*text* as far as it is printed, with its styles."""
    shown = cut(text.plain)
    return text if shown is text.plain else text[:_CUT].append(shown[_CUT:])


def cut(text: str) -> str:
    """*text* as far as it is printed."""
    return text if len(text) <= _MAX_LINE_LENGTH else f"{text[:_CUT]}… ({len(text):,} characters)"


def clean(text: str) -> str:
    """*text* on one line: what cannot be printed, or would be obeyed, is escaped, and secrets are masked."""
    text = mask_secrets(cut(text))
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escape(char) for char in text)
    return _CI_COMMAND.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _escape(char: str) -> str:
    return escape_surrogate(char) if "\ud800" <= char <= "\udfff" else repr(char)[1:-1]


def escape_surrogate(char: str) -> str:
    """Half a character, which stands for a byte that is no text: that byte in hexadecimal, as Python writes it."""
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", errors=errors))


def clean_lines(text: str) -> str:
    """*text* with each of its lines as `clean` leaves it."""
    return "\n".join(map(clean, text.split("\n")))


def clean_text(text: Text) -> Text:
    """*text* on one line, with its styles."""
    text = cut_text(text)
    if (masked := mask_secrets(text.plain)) != text.plain:
        text = text.copy()
        text.plain = masked
    if clean(text.plain) == text.plain:
        return text
    cleaned = Text(style=text.style, justify=text.justify, overflow=text.overflow, no_wrap=text.no_wrap)
    position = 0
    for match in re.finditer(f"{_CI_COMMAND.pattern}|[^ -~]", text.plain):
        if (escaped := clean(match[0]) if match[0] not in ":#" else f"\\x{ord(match[0]):02x}") == match[0]:
            continue
        cleaned.append_text(text[position : match.start()])
        replaced = Text(escaped, style=text[match.start()].style)
        for span in text[match.start()].spans:
            replaced.stylize(span.style)
        cleaned.append_text(replaced)
        position = match.end()
    return cleaned.append_text(text[position:])


def fit_encoding(text: str, encoding: str) -> str:
    """*text* with marks of ASCII for those that *encoding* does not have."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_fit_character(char, encoding) for char in text)
    return text


def _fit_character(char: str, encoding: str) -> str:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return _ASCII.get(char, "?")
    return char


def markdown_code(text: str) -> str:
    """*text* as code in Markdown, also in a cell of a table."""
    text = clean(text)
    # A code span ends at as many backticks as it began with; a cell ends at a bar, also within code.
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}".replace("|", "\\|")


def markdown_text(text: str) -> str:
    """*text* as words in Markdown, also in a cell of a table: no markup of its own, no images, nobody is mentioned."""
    return "".join(_MARKDOWN.get(char, char) for char in clean(text))
