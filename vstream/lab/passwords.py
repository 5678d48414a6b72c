"""
The passwords of a lab's users: made up when it first starts, in a file that nobody else can read.

They stand where servers read them, beside the accounts that name them, and nowhere else.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from vstream.model.accounts import PASSWORDS, password_variable
from vstream.model.artifacts import ACCOUNTS_PATH, PASSWORDS_PATH, Artifact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_LINE = re.compile(r'^(\w+): "([\w-]+)"$', re.MULTILINE)
_BYTES = 24


def completed(conf: Path, artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """*artifacts* with the passwords that they need, if they do: those that *conf* has, and new ones for the rest."""
    if not any(artifact.path == ACCOUNTS_PATH for artifact in artifacts):
        return tuple(artifacts)
    known = _known(conf)
    lines = (f'{variable}: "{known.get(variable) or secrets.token_urlsafe(_BYTES)}"\n' for variable in PASSWORDS)
    return (*artifacts, Artifact(path=PASSWORDS_PATH, text="".join(lines)))


def password(conf: Path, user: str) -> str | None:
    """The password of *user*, None if the lab has no users."""
    return _known(conf).get(password_variable(user))


def _known(conf: Path) -> Mapping[str, str]:
    try:
        return dict(_LINE.findall((conf / PASSWORDS_PATH).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
