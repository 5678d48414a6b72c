"""The accounts of a parsed NATS configuration: what each exports and imports (server/opts.go, parseAccounts)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfNode, ConfScalar, to_python
from vstream.topology.accounts import Account, Export, Import, ShareKind

_UNREPORTED_KEYS = ("users", "default_permissions", "exports")
"""What servers do not report of a loaded account: its users, and how long answers may take."""
_CLIENT_LIMITS = ("limits", "jetstream")
"""Limits on what clients may create, which servers do not report either."""
_SECRET_KEYS = frozenset({"password", "pass"})
_DIGITS = 16


def parse_accounts_block(block: ConfMap, marks: Mapping[str, str] | None = None) -> tuple[Account, ...]:
    """
    The accounts of an `accounts { … }` block, in the order written, without their users and the system account.

    An exported subject that is in *marks* is read as what it stands for there.
    """
    accounts = []
    for name, node in block.items():
        if isinstance(node, ConfMap) and not name.startswith("$"):
            accounts.append(
                Account(
                    name=name,
                    purpose="",
                    has_jetstream=_has_jetstream(node.get_folded("jetstream")),
                    exports=tuple(_read_exports(node.get_folded("exports"), marks or {})),
                    imports=tuple(_read_imports(node.get_folded("imports"))),
                )
            )
    return tuple(accounts)


def _has_jetstream(node: ConfNode | None) -> bool:
    return isinstance(node, ConfMap) or _text(node) not in {None, "", "disabled", "False"}


def unreported_digest(block: ConfMap) -> str:
    """A digest of what servers do not report of an `accounts { … }` block. No password is in it."""
    contents = {}
    for name, node in block.items():
        if isinstance(node, ConfMap):
            contents[name] = {key: _without_secrets(node.get_folded(key)) for key in _UNREPORTED_KEYS}
            if "limits" in node or isinstance(node.get_folded("jetstream"), ConfMap):
                contents[name] |= {key: _without_secrets(node.get_folded(key)) for key in _CLIENT_LIMITS}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _without_secrets(node: ConfNode | None) -> object:
    if isinstance(node, ConfMap):
        return {key: _without_secrets(value) for key, value in node.items() if key.lower() not in _SECRET_KEYS}
    if isinstance(node, ConfArray):
        return [_without_secrets(value) for value in node.items]
    return None if node is None else to_python(node)


def _read_exports(node: ConfNode | None, marks: Mapping[str, str]) -> Iterator[Export]:
    for entry in _read_maps(node):
        for shared in ShareKind:
            subject = _text(entry.get_folded(shared.value))
            if subject is not None:
                takers = entry.get_folded("accounts")
                yield Export(
                    kind=shared,
                    subject=marks.get(subject, subject),
                    accounts=tuple(str(_text(name)) for name in takers.items) if isinstance(takers, ConfArray) else (),
                    threshold=_text(entry.get_folded("threshold")),
                )


def _read_imports(node: ConfNode | None) -> Iterator[Import]:
    for entry in _read_maps(node):
        for shared in ShareKind:
            source = entry.get_folded(shared.value)
            if isinstance(source, ConfMap):
                yield Import(
                    kind=shared,
                    account=_text(source.get_folded("account")) or "",
                    subject=_text(source.get_folded("subject")) or "",
                    to=_text(entry.get_folded("to")),
                )


def _read_maps(node: ConfNode | None) -> Iterator[ConfMap]:
    return (item for item in (node.items if isinstance(node, ConfArray) else ()) if isinstance(item, ConfMap))


def _text(node: ConfNode | None) -> str | None:
    return str(node.value) if isinstance(node, ConfScalar) else None
