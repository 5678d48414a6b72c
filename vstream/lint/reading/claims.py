"""The mappings of account claims, which operator mode keeps in signed tokens (jwt/v2, account_claims.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vstream.lint import workspace
from vstream.lint.reading.mappings import make_block, make_destination, make_entry
from vstream.syntax.document import Json, object_or_empty

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path, SourceMap

_FIELDS = {"subject", "weight", "cluster"}


def is_account_claims(data: Json) -> bool:
    """Whether *data* are the claims of an account."""
    nats = object_or_empty(object_or_empty(data).get("nats"))
    return nats.get("type") == "account" or "mappings" in nats


def read_claims_account(data: Json, source: SourceMap) -> workspace.ClaimsAccount | None:
    """The account that the claims are of; None if they are of none."""
    claims = object_or_empty(data)
    nats, key, name = claims.get("nats"), claims.get("sub"), claims.get("name")
    if not isinstance(nats, dict):
        return None
    return workspace.ClaimsAccount(
        key=key if isinstance(key, str) else "",
        name=next((word for word in (name, key) if isinstance(word, str) and word), ""),
        file=source.file,
        span=source.value_span(("nats",)),
        block=read_claims_block(data, source),
        imports=tuple(_read_imports(nats.get("imports"), source)),
        exports=tuple(_read_exports(nats.get("exports"), source)),
    )


def _read_texts(item: Json, *names: str) -> dict[str, str]:
    fields = object_or_empty(item)
    return {name: value for name in names if isinstance(value := fields.get(name), str) and value}


def _read_imports(listed: Json, source: SourceMap) -> Iterator[workspace.ClaimedImport]:
    """
    As servers read them (server/accounts.go, updateAccountClaimsWithRefresh).

    `subject` is that of the publisher, `to` that of the subscriber; `local_subject` is always the one in this account.
    """
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        fields = _read_texts(item, "subject", "account", "type", "to", "local_subject")
        if not {"subject", "account", "type"} <= fields.keys():
            continue
        subject, to, local = fields["subject"], fields.get("to"), fields.get("local_subject")
        exported, place, prefix = subject, local, None
        if local is None and to is not None and fields["type"] == "service":
            exported, place = to, subject
        elif local is None:
            prefix = to
        yield workspace.ClaimedImport(
            kind=fields["type"],
            exporter_key=fields["account"],
            exported=exported,
            to=place,
            prefix=prefix,
            span=source.value_span(("nats", "imports", index, "subject")),
        )


def _read_exports(listed: Json, source: SourceMap) -> Iterator[workspace.ClaimedExport]:
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        fields = _read_texts(item, "subject", "type")
        if len(fields) == len(("subject", "type")):
            span = source.value_span(("nats", "exports", index, "subject"))
            yield workspace.ClaimedExport(kind=fields["type"], subject=fields["subject"], span=span)


def read_claims_block(data: Json, source: SourceMap) -> workspace.MappingsBlock | None:
    """The mappings of account claims, None if they have none."""
    claims, path = object_or_empty(data), ("nats", "mappings")
    mappings = object_or_empty(claims.get("nats")).get("mappings")
    if mappings is None:
        return None
    fault = None
    if not isinstance(mappings, dict):
        message = "`mappings` must be an object that maps each source to an array of destinations"
        fault = workspace.MappingFault(message=message, server_message="", span=source.value_span(path))
    entries = [_read_entry(name, listed, (*path, name), source) for name, listed in object_or_empty(mappings).items()]
    name = claims.get("name") or claims.get("sub")
    return make_block(
        entries,
        form=workspace.MappingForm.CLAIMS,
        account=name if isinstance(name, str) else None,
        span=source.value_span(path),
        key_span=source.key_span(path),
        fault=fault,
    )


def _read_entry(name: str, value: Json, path: Path, source: SourceMap) -> workspace.MappingEntry:
    faults = []
    if not isinstance(value, list):
        message = "the destinations must be an array"
        faults.append(workspace.MappingFault(message=message, server_message="", span=source.value_span(path)))
    destinations = _read_destinations(value, path, source) if isinstance(value, list) else ()
    return make_entry(name, source.key_span(path), source.value_span(path), destinations, is_list=True, faults=faults)


def _read_destinations(value: list[Json], path: Path, source: SourceMap) -> Iterator[workspace.MappingDestination]:
    for index, item in enumerate(value):
        place = (*path, index)
        fields = item if isinstance(item, dict) else {}
        written = {}
        for name in _FIELDS & fields.keys():
            written[name] = workspace.ConfValue(
                value=fields[name], span=source.value_span((*place, name)), key_span=source.key_span((*place, name))
            )
        faults = [_fault_at("a destination must be an object", place, source)] if fields is not item else []
        wrong_fields = []
        for name in ("subject", "cluster"):
            if name in written and written[name].text is None:
                wrong_fields.append(_fault_at(f"`{name}` must be text", (*place, name), source))
        faults += wrong_fields
        weight = written["weight"].value if "weight" in written else 0
        if not isinstance(weight, int) or isinstance(weight, bool):
            faults.append(_fault_at("`weight` must be a whole number", (*place, "weight"), source))
            weight = 0
        yield make_destination(
            source.value_span(place),
            subject=written.get("subject"),
            weight=written.get("weight"),
            cluster=written.get("cluster"),
            # A weight of 0 is that of a field that was left out, and means everything.
            percent=weight or 100,
            faults=faults,
        )


def _fault_at(message: str, path: Path, source: SourceMap) -> workspace.MappingFault:
    return workspace.MappingFault(message=message, server_message="", span=source.value_span(path))
