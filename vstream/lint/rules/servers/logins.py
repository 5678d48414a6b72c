"""What VS432 says of logins: servers of one cluster that let in others, and leaf nodes whose hub has another password."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from vstream.diagnostics import Related
from vstream.lint.reading.leafnodes import leaf_passwords
from vstream.lint.reading.nodes import option, table, url_parts
from vstream.lint.registry import Violation
from vstream.lint.rules.server_values import OPERATORS, TRUSTED, has_any, place, system_account
from vstream.lint.workspace import ConfValue, LeafRemote, ServerConf


def compare_secrets(group: list[ServerConf]) -> Iterator[Violation]:
    """Users and tokens whose secret depends on the server. Secrets are not printed."""
    first: dict[tuple[str | None, str], ConfValue] = {}
    for server in group:
        secrets = [((user.account, user.name), f"user `{user.name}`", user.password) for user in server.users]
        token = option(server.authorization, "token")
        for key, title, secret in (*secrets, ((None, ""), "`authorization`", token)):
            if secret is None or not _is_plain(secret.text):
                continue
            earlier = first.setdefault(key, secret)
            if earlier.text != secret.text:
                word = "token" if secret is token else "password"
                yield Violation(
                    at=secret.span,
                    message=f"{title} has another {word} than in `{earlier.span.file}`: "
                    "clients that reconnect to another server of the cluster are refused",
                    hint="make it the same on all servers that connect to each other, with a variable",
                    related=(Related(span=earlier.span, message="the other server"),),
                )


def find_open_servers(group: list[ServerConf]) -> Iterator[Violation]:
    """Servers that let in everybody, in a cluster where others ask for a login."""
    guarded = [server for server in group if _asks_for_login(server)]
    has_guests = any(has_any(server.root, "no_auth_user") for server in group)
    for server in group if guarded and not has_guests else ():
        # Who may log in can also be in a file that is included, and in certificates.
        is_known = not server.included and not has_any(table(server.root, "tls"), "verify", "verify_and_map")
        asks = has_any(server.root, "authorization", *OPERATORS, *TRUSTED) or _asks_for_login(server)
        if is_known and not asks:
            yield Violation(
                at=place(server),
                message=f"`{guarded[0].file}` asks for a login, and this server of the same cluster lets in everybody",
                hint="give it the same `accounts` and `authorization`, from a file that all servers include",
            )


def _asks_for_login(server: ServerConf) -> bool:
    # Users of the system account alone leave everybody else without a login.
    system = system_account(server)
    return has_any(server.authorization, "token") or any(user.account != system for user in server.users)


def compare_leaf_passwords(remote: LeafRemote, hub: ServerConf) -> Iterator[Violation]:
    """Leaf nodes that log in as a user of the hub with another password."""
    passwords = leaf_passwords(hub)
    for url in remote.urls:
        if not url_parts(url)[2]:
            continue
        parts = urlsplit(str(url.value))
        expected = passwords.get(unquote(parts.username or ""))
        secret = unquote(parts.password or "")
        if expected and _is_plain(expected.text) and _is_plain(secret) and secret != expected.text:
            yield Violation(
                at=url.span,
                message=f"`{hub.file}` has another password for user `{parts.username}`: it refuses this leaf node",
                hint="write the password that the hub has, or one variable in both files",
                related=(Related(span=expected.span, message="the password of the hub"),),
            )


def _is_plain(secret: str | None) -> bool:
    """Whether a secret can be compared: variables cannot, and one password has many bcrypt hashes."""
    return bool(secret) and not str(secret).startswith("$")
