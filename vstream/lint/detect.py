"""What a file is, by its content: its name decides only where the content is ambiguous. And how large files may be."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final

from vstream.findings import Finding, Severity, Span
from vstream.syntax.document import Json, object_or_empty

MAX_BYTES: Final = 32 * 1024 * 1024
"""What one file may hold, and what one configuration may hold together with everything it includes."""
MAX_VALUES: Final = 2_000_000
"""How many values a configuration may have, counted by what ends them: fifty thousand rules have half of it."""

_ENDS_OF_VALUES: Final = ("\n", ",", ";", "}")
_BLANKS: Final = "\ufeff \t\r\n"
_TOKEN: Final = re.compile(r"(?<![\w.-])eyJ[\w-]+\.([\w-]+)\.[\w-]+(?![\w.-])")
_DECORATION: Final = re.compile(r"-----BEGIN NATS [A-Z ]*JWT-----")
_TOPOLOGY: Final = re.compile(r"""(?m)^(?:[{ ]\s*)?["']?(regions|streams)["']?\s*:""")
_VERSION: Final = re.compile(r"""(?m)^["']?(?:version|name|server_version)["']?\s*:\s""")
_SCENARIO: Final = re.compile(r"""(?m)^[{ ]?\s*["']?(scenario|steps)["']?\s*:""")
_FIRST_OF_SCENARIO: Final = re.compile(r"scenario\s*:\s*\d")
_STREAM: Final = re.compile(r'"(?:subjects|sources|mirror|mappings|num_replicas|max_age|nats)"\s*:')


def split_words(text: str) -> frozenset[str]:
    """The words of *text*, for lists that are too long for one line."""
    return frozenset(text.split())


_NATS: Final = split_words(
    "accounts authorization gateway jetstream lame_duck_duration leafnodes mappings max_control_line max_payload mqtt "
    "no_auth_user resolver_preload server_tags system_account websocket write_deadline"
)
"""Options that no other program has."""
_SHARED: Final = split_words(
    "cluster http http_port https https_port include leaf listen maps monitor_port operator permissions port resolver "
    "server_name users"
)
_WEAK: Final = split_words(
    "debug host log_file logfile logtime max_connections max_pending pid_file pidfile ping_interval tls trace"
)
"""Options that say nothing alone."""
_OPTIONS: Final = re.compile(
    rf"""(?mi)^[\s{{]*["']?(?:{"|".join(sorted(_NATS | _SHARED))})["']?(?:\s*[:={{]|[ \t]+\S)"""
)


_TOP_OPTIONS: Final = ("mappings", "accounts", "authorization", "jetstream", "leafnodes", "permissions")
"""What a file without any other option may begin with."""
_CUTOFF: Final = 0.8
_MAX_STRANGERS: Final = 5
"""How many unknown options a file may have in any case: they may all be misspelt."""


class FileKind(Enum):
    """What to read a text as."""

    CONF = "NATS configuration"
    JSON = "JSON"
    TOKEN = "JWT"
    TOPOLOGY = "topology"
    SCENARIO = "scenario"
    OTHER = "other"
    """Nothing of ours: another program's file."""


def decode(content: bytes, file: str) -> str | Finding:
    """The text of a file, byte order mark and line breaks included, or why it is none (VS004)."""
    if len(content) > MAX_BYTES:
        message = f"more than {MAX_BYTES // 1024 // 1024} MiB: too large for a configuration"
        return unreadable_file(file, message, "is this the right file?")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return unreadable_file(file, "this is UTF-16 text", "save the file as UTF-8")
    if b"\0" in content:
        return unreadable_file(file, "this is a binary file: it contains NUL bytes", "is this the right file?")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        message = f"this is not UTF-8 text: byte 0x{content[error.start]:02x}"
        return unreadable_file(file, message, "save the file as UTF-8", Span.point(file, line, column))


def unreadable_file(file: str, message: str, hint: str, span: Span | None = None) -> Finding:
    """Why a file could not be checked at all."""
    place = span or Span.point(file, 1, 1)
    return Finding(code="VS004", severity=Severity.ERROR, message=message, where=place, hint=hint)


def count_values_at_most(text: str) -> int:
    """How many values *text* has at most, as a configuration."""
    return sum(map(text.count, _ENDS_OF_VALUES))


def detect(text: str, file: str, *, is_named: bool = True) -> FileKind:
    """
    What *text* is. OTHER only where nothing speaks for anything that can be checked.

    More has to speak for it in a file that nobody named (*is_named*).
    """
    name = file.lower()
    text = text.lstrip(_BLANKS)
    start = text[:1]
    if _DECORATION.search(text) or (start == "e" and find_claims(text.rstrip(_BLANKS)) is not None):
        return FileKind.TOKEN
    is_begun = is_named and _FIRST_OF_SCENARIO.match(text) is not None and name.endswith((".yaml", ".yml"))
    if start not in {"{", "["} and (is_begun or len({match[1] for match in _SCENARIO.finditer(text)}) > 1):
        return FileKind.SCENARIO
    if name.endswith((".yaml", ".yml")):
        # JSON is YAML, and may be all in one line.
        spoken = {match[1] for match in _TOPOLOGY.finditer(text.replace(",", "\n") if start == "{" else text)}
        return FileKind.TOPOLOGY if len(spoken) > (not is_named) else FileKind.OTHER
    if name.endswith((".conf", ".cfg")) and (start != "{" or _OPTIONS.search(text)):
        return FileKind.CONF if _OPTIONS.search(text) else FileKind.OTHER
    if name.endswith(".json") or start in {"{", "["}:
        return FileKind.JSON
    return FileKind.TOPOLOGY if _TOPOLOGY.search(text) and _VERSION.search(text) else FileKind.CONF


def may_be_conf(text: str, file: str) -> bool:
    """Whether a file is called like a NATS configuration. Other programs begin theirs with a section: `[metadata]`."""
    return file.lower().endswith((".conf", ".cfg")) and not text.lstrip(_BLANKS).startswith(("[", "<"))


def belongs_to_others(keys: Iterable[str], *, is_broken: bool) -> bool:
    """Whether a file with *keys* at its top is another program's, which shares a few options with servers."""
    folded = {key.lower() for key in keys}
    strangers = folded - _NATS - _SHARED - _WEAK
    return not (folded & _NATS or any(map(nearest_option, folded))) and len(strangers) * 2 + is_broken > len(folded)


def is_server_json(data: Mapping[str, Json], *, is_named: bool) -> bool:
    """
    Whether JSON configures a server: texts of an application have a key `jetstream` or two as well.

    More has to speak for it if nobody named it. Search engines have `mappings` too, with `properties` in them.
    """
    is_index = "properties" in object_or_empty(data.get("mappings"))
    folded = {key.lower() for key in data}
    strangers = len(folded - _NATS - _SHARED - _WEAK)
    if is_named:
        return strangers <= _MAX_STRANGERS or strangers * 2 < len(folded)
    return not is_index and bool(folded & _NATS) and strangers * 2 < len(folded)


def nearest_option(key: str) -> str | None:
    """The option that a misspelt key at the top of a file was meant to be, if it is nearly one that stands there alone."""
    if key.lower() in _TOP_OPTIONS:
        return None
    return next(iter(get_close_matches(key.lower(), _TOP_OPTIONS, n=1, cutoff=_CUTOFF)), None)


def looks_checkable(text: str) -> bool:
    """Whether JSON that cannot be read was meant to be something that is checked here."""
    return _STREAM.search(text) is not None


def find_claims(text: str) -> tuple[str, int, int] | None:
    """The claims, decoded to text, of the first JWT in *text*, and where the token begins and ends in it."""
    match = _TOKEN.search(text)
    if match is None:
        return None
    body = match[1]
    try:
        claims = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return claims, match.start(), match.end()
