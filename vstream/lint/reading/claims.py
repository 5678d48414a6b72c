"""The mappings of account claims, which operator mode keeps in signed tokens (jwt/v2, account_claims.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.reading.mappings import block, destination_of, entry_of
from vstream.lint.workspace import ConfValue, MappingFault, MappingForm, MappingsBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import MappingDestination, MappingEntry
    from vstream.syntax.json_types import Json
    from vstream.syntax.yaml import Path, SourceMap

_FIELDS = {"subject", "weight", "cluster"}


def is_claims(data: Json) -> bool:
    """Whether *data* are the claims of an account."""
    return (
        isinstance(data, dict)
        and isinstance(nats := data.get("nats"), dict)
        and (nats.get("type") == "account" or "mappings" in nats)
    )


def claims_block(data: Json, source: SourceMap) -> MappingsBlock | None:
    """The mappings of account claims, None if they have none."""
    nats = data.get("nats") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(nats, dict) or nats.get("mappings") is None:
        return None
    path = ("nats", "mappings")
    mappings = nats["mappings"]
    fault = None
    if not isinstance(mappings, dict):
        message = "`mappings` must be an object that maps each source to an array of destinations"
        fault = MappingFault(message=message, server_message="", span=source.value(path))
    entries = (
        [_entry(name, destinations, (*path, name), source) for name, destinations in mappings.items()]
        if fault is None
        else []
    )
    name = data.get("name") or data.get("sub")
    return block(
        entries,
        form=MappingForm.CLAIMS,
        account=name if isinstance(name, str) else None,
        span=source.value(path),
        key_span=source.key(path),
        fault=fault,
    )


def _entry(name: str, value: Json, path: Path, source: SourceMap) -> MappingEntry:
    faults = []
    if not isinstance(value, list):
        message = "the destinations must be an array"
        faults.append(MappingFault(message=message, server_message="", span=source.value(path)))
    destinations = _destinations(value, path, source) if isinstance(value, list) else ()
    return entry_of(name, source.key(path), source.value(path), destinations, is_list=True, faults=faults)


def _destinations(value: list[Json], path: Path, source: SourceMap) -> Iterator[MappingDestination]:
    for index, item in enumerate(value):
        place = (*path, index)
        fields = item if isinstance(item, dict) else {}
        written = {}
        for name in _FIELDS & fields.keys():
            written[name] = ConfValue(
                value=fields[name], span=source.value((*place, name)), key_span=source.key((*place, name))
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
        yield destination_of(
            source.value(place),
            subject=written.get("subject"),
            weight=written.get("weight"),
            cluster=written.get("cluster"),
            # A weight of 0 is that of a field that was left out, and means everything.
            percent=weight or 100,
            faults=faults,
        )


def _fault_at(message: str, path: Path, source: SourceMap) -> MappingFault:
    return MappingFault(message=message, server_message="", span=source.value(path))
