"""Remove secrets from texts that others will read: known values, and whatever looks like one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from vstream.credentials import ALLOWED_VARIABLES
from vstream.findings import SHAPES
from vstream.topology.model import Endpoint

REDACTED = "<redacted>"
_MIN_LENGTH = 4
"""Shorter values would remove half of every text; those after their key are removed anyway."""
_WORDS = (
    r"pass(?:word|wd|phrase)?|token|secret|seed|credentials?|jwt|auth_callout|nkey_seed|private_key|encryption_key|key"
)
_PAIR = re.compile(
    rf"""(?P<key>(?:"[\w$-]*(?:{_WORDS})"|'[\w$-]*(?:{_WORDS})'|\b[\w$-]*(?:{_WORDS}|password_(?!env\b)\w+))\s*[:=]\s*)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,}\]#$\[{][^\s,}\]#]*)""",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?P<scheme>\b[a-z+]+://)[^/@\s\"']+@")
_SECRET_NAMES = re.compile(r"PASS|TOKEN|SECRET|SEED|KEY|CREDS|URL", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"://[^/@\s:]*:?([^/@\s]+)@")


def redact(text: str, secrets: Iterable[str]) -> str:
    """*text* without *secrets*, and without everything in the place or form of a secret."""
    for shape in SHAPES:
        text = shape.sub(REDACTED, text)
    text = _LOGIN.sub(rf"\g<scheme>{REDACTED}@", text)
    text = _PAIR.sub(_redact_pair, text)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def _redact_pair(match: re.Match[str]) -> str:
    value = match["value"]
    if value in {"true", "false", "null"} or REDACTED in value:
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['key']}{quote}{REDACTED}{quote}"


def find_secrets(endpoints: Iterable[Endpoint], texts: Iterable[str]) -> frozenset[str]:
    """
    Values that must not leave: of the logins in *endpoints*, of this process's environment, and the quoted ones of *texts*.

    *texts* are files with nothing but secrets, such as `passwords.cfg`.
    """
    values = {value for endpoint in endpoints for value in _list_secrets(endpoint)}
    for name, value in os.environ.items():
        if name.startswith(ALLOWED_VARIABLES) and _SECRET_NAMES.search(name):
            values |= {value, *_URL_PASSWORD.findall(value)}
    for text in texts:
        values |= set(re.findall(r'"([^"\n]+)"', text))
    return frozenset(value for value in values if len(value) >= _MIN_LENGTH)


def _list_secrets(endpoint: Endpoint) -> Iterator[str]:
    yield from (value for value in (endpoint.password, endpoint.token) if value)
    for variable in (endpoint.password_env, endpoint.token_env):
        if variable and variable in os.environ:
            yield os.environ[variable]
    for url in endpoint.urls:
        yield from _URL_PASSWORD.findall(url)
    if endpoint.system is not None:
        yield from _list_secrets(endpoint.system)
