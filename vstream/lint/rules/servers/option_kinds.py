"""The kinds of values that server options have, by block: from server/opts.go, and asked of `nats-server -t` one by one."""

from __future__ import annotations

import re
from base64 import b32decode
from binascii import crc_hqx
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from vstream.subjects.algebra import is_literal, is_valid


class ValueKind(Enum):
    """The kind of value that the server accepts for an option."""

    BOOLEAN = "true or false"
    INTEGER = "a whole number"
    DURATION = "a duration"
    DURATION_TEXT = "a duration in quotes"
    SECONDS = "a number of seconds, or a duration"
    SYNC = "a duration, or `always`"
    SIZE = "a size"
    TEXT = "a text"
    ARRAY = "an array"
    MAP = "a map"
    SWITCH = "`enabled`, `disabled` or a map"
    FLAG_OR_MAP = "true, false or a map"
    TEXTS = "a text, or an array of texts"
    TEXT_OR_MAP = "a text or a map"
    ADDRESS = "a port, or `host:port`"
    FIRST = "true, false, `auto` or a duration"


Words = tuple[str, ...]
"""The words that an option may be; a value that is no text is looked at by nothing."""


class TextForm(NamedTuple):
    """A text of a certain form: what it is called, an example, what to do instead, and whether a text has the form."""

    title: str
    example: str
    hint: str
    matches: Callable[[str], bool]
    is_secret: bool = False


OptionKind = ValueKind | Words | TextForm


def is_key(text: str, first: str, length: int = 56) -> bool:
    """Whether *text* is an nkey: its letter says whose, its last two bytes are a checksum of the others (nkeys, strkey.go)."""
    if len(text) != length or not text.startswith(first):
        return False
    try:
        decoded = b32decode(text + "=" * (-length % 8))
    except ValueError:
        return False
    return crc_hqx(decoded[:-2], 0) == int.from_bytes(decoded[-2:], "little")


def _make_key_form(letter: str, owner: str, example: str) -> TextForm:
    hint = f"write the 56 letters that begin with `{letter}`, as `nsc` or `nk -pubout` print them"
    return TextForm(f"the public key of {owner}", example, hint, lambda text: is_key(text, letter))


FORMS: Final = {
    "account_key": _make_key_form("A", "an account", "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"),
    "operator_key": _make_key_form("O", "an operator", "OAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QZVT"),
    "user_key": _make_key_form("U", "a user", "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"),
    "curve_key": _make_key_form("X", "a curve (xkey)", "XAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QAJY"),
    "proxy_key": TextForm(
        "the public key of a proxy",
        "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK",
        "write the 56 letters that `nk -pubout` prints",
        lambda text: is_key(text, ""),
    ),
    "seed": TextForm(
        "the seed of an nkey",
        "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y",
        "write the 58 letters that begin with `SU`, from a variable, or name a file in `credentials`",
        lambda text: is_key(text, "S", 58),
        is_secret=True,
    ),
    "fingerprint": TextForm(
        "the SHA-256 of a public key, in 64 hexadecimal digits",
        "0" * 64,
        "write what `openssl x509 -pubkey -noout -in CERT | openssl pkey -pubin -outform DER | sha256sum` prints",
        lambda text: re.fullmatch("[0-9a-fA-F]{64}", text) is not None,
    ),
    "server_version": TextForm(
        "a version of servers from 2.8.0 on",
        "2.10.0",
        "write `2.10.0`, or a later one",
        lambda text: re.match(r"v?2\.([89]|\d\d+)\.\d+", text) is not None,
    ),
    "literal": TextForm(
        "a subject without wildcards",
        "trace.here",
        "write tokens between single dots",
        lambda text: is_valid(text) and is_literal(text),
    ),
}
"""Texts of a certain form, by their names in `options.toml`."""
