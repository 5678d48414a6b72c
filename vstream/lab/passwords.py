"""
The passwords of a lab's users: generated at its first start, in a file that nobody else can read.

They are stored only where servers read them, beside the accounts.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from vstream.lab.state import KEYS
from vstream.render.environment import quote
from vstream.topology.accounts import (
    HUB_PASSWORDS,
    LEAF_USER,
    LEAF_VARIABLE,
    PASSWORDS,
    REGIONAL_PASSWORDS,
    SYSTEM_PASSWORDS,
    SYSTEM_USER,
    password_variable,
    regional_user,
)
from vstream.topology.bundle import (
    ACCOUNTS_PATH,
    HUB_PASSWORDS_PATH,
    HUBS_PATH,
    PASSWORDS_PATH,
    SYSTEM_PASSWORD_PATH,
    TLS_PATH,
    Artifact,
    Bundle,
    leaf_path,
    passwords_path,
)
from vstream.topology.signing import CA_FILE, SERVER_CERTIFICATE, SERVER_KEY
from vstream.topology.stream_config import REGION_ACCOUNT_PREFIX

_LINE = re.compile(r'^(\w+): "([\w-]+)"$', re.MULTILINE)
_BYTES = 24


def with_passwords(conf: Path, bundle: Bundle) -> tuple[Artifact, ...]:
    """The files of *bundle* with the passwords they need: existing ones from *conf*, and new ones for the rest."""
    texts = {artifact.path: artifact.text for artifact in bundle.artifacts}
    hubs = {address.region: address for address in bundle.servers if address.is_hub}
    if not (ACCOUNTS_PATH in texts or hubs):
        # Such a lab asks nobody who they are, but for the system account.
        names_system = any(f'include "../{SYSTEM_PASSWORD_PATH}"' in artifact.text for artifact in bundle.artifacts)
        return (
            *bundle.artifacts,
            *([_preserve_passwords(conf, SYSTEM_PASSWORD_PATH, SYSTEM_PASSWORDS)] if names_system else []),
        )
    variable = f"${password_variable(SYSTEM_USER)}"
    has_passwords = variable in texts.get(ACCOUNTS_PATH, "")
    regional = [account.name for account in bundle.accounts if account.name.startswith(REGION_ACCOUNT_PREFIX)]
    regions = [name.removeprefix(REGION_ACCOUNT_PREFIX) for name in regional]
    if regions and not has_passwords:
        return (*bundle.artifacts, *_make_certificate_file(conf, bundle))
    if regions:
        files = {
            SYSTEM_PASSWORD_PATH: SYSTEM_PASSWORDS,
            **{passwords_path(region): REGIONAL_PASSWORDS for region in regions},
        }
        return (*bundle.artifacts, *(_preserve_passwords(conf, path, variables) for path, variables in files.items()))
    existing = _read_passwords(conf)
    passwords = {name: existing.get(name) or secrets.token_urlsafe(_BYTES) for name in (*PASSWORDS, *HUB_PASSWORDS)}
    secret = [*_make_certificate_file(conf, bundle)]
    if has_passwords:
        secret.append(_make_password_file(PASSWORDS_PATH, {name: passwords[name] for name in PASSWORDS}))
    if hubs:
        variables = HUB_PASSWORDS if variable in texts[HUBS_PATH] else (password_variable(LEAF_USER),)
        secret.append(_make_password_file(HUB_PASSWORDS_PATH, {name: passwords[name] for name in variables}))
    for region, hub in hubs.items():
        scheme = "nats-leaf" if hub.transport is None else hub.scheme
        url = f"{scheme}://{LEAF_USER}:{passwords[password_variable(LEAF_USER)]}@{hub.leaf_address}"
        secret.append(_make_password_file(leaf_path(region), {LEAF_VARIABLE: url}))
    return (*bundle.artifacts, *secret)


def _make_certificate_file(conf: Path, bundle: Bundle) -> Iterator[Artifact]:
    """Where the lab's servers find their certificate, if they ask clients for theirs."""
    if any(f'include "../{TLS_PATH}"' in artifact.text for artifact in bundle.artifacts):
        files = {"cert_file": SERVER_CERTIFICATE, "key_file": SERVER_KEY, "ca_file": CA_FILE}
        ring = conf.parent / KEYS
        yield Artifact(
            path=TLS_PATH, text="".join(f"{option}: {quote(str(ring / file))}\n" for option, file in files.items())
        )


def _preserve_passwords(conf: Path, path: str, variables: Iterable[str]) -> Artifact:
    """The file at *path* with a password for each of *variables*: those that *conf* has, and new ones for the rest."""
    existing = _read(conf / path)
    return _make_password_file(path, {name: existing.get(name) or secrets.token_urlsafe(_BYTES) for name in variables})


def _make_password_file(path: str, values: Mapping[str, str]) -> Artifact:
    # Servers refuse a file with a variable that they do not use: each has its own.
    return Artifact(path=path, text="".join(f'{variable}: "{value}"\n' for variable, value in values.items()))


def find_password(conf: Path, user: str) -> str | None:
    """The password of *user*; None if the lab has no users."""
    return _read_passwords(conf).get(password_variable(user))


def find_login(conf: Path, user: str, region: str) -> tuple[str, str] | None:
    """The name of *user* in *region* and the password; None if the lab has no users."""
    regional_password = _read(conf / passwords_path(region)).get(password_variable(user))
    if regional_password is not None:
        return regional_user(user, region), regional_password
    common = find_password(conf, user)
    return None if common is None else (user, common)


def _read_passwords(conf: Path) -> Mapping[str, str]:
    values: dict[str, str] = {}
    for path in (PASSWORDS_PATH, HUB_PASSWORDS_PATH, SYSTEM_PASSWORD_PATH):
        values.update(_read(conf / path))
    return values


def _read(path: Path) -> dict[str, str]:
    with suppress(FileNotFoundError):
        return dict(_LINE.findall(path.read_text(encoding="utf-8")))
    return {}
