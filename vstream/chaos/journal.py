"""
The open faults of a lab, on disk: `chaos.json` in its directory.

A fault is written atomically before its first signal. So after a crash at any point, the next command knows what may
have to be undone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vstream.chaos.faults import LAB_FAULTS
from vstream.chaos.faults.base import LabFault
from vstream.errors import LabError
from vstream.files import write_private
from vstream.lab.state import LabDirectory
from vstream.value_class import value_class

_FORMAT = 2


@value_class
class OpenFault:
    """A fault that was or may have been injected, and was not undone since."""

    id: str
    command: str
    """The command that injected it, such as `kill-region west`."""
    fault: LabFault
    since: datetime
    is_confirmed: bool = False


@value_class
class Journal:
    """The open faults of one lab."""

    faults: tuple[OpenFault, ...] = ()
    number: int = 0
    """Number of the last fault: names are never reused."""

    def get(self, fault_id: str) -> OpenFault | None:
        """The open fault *fault_id*."""
        return next((fault for fault in self.faults if fault.id == fault_id), None)

    def add(self, command: str, fault: LabFault) -> tuple[Journal, OpenFault]:
        """The journal with another fault."""
        number = self.number + 1
        entry = OpenFault(id=f"f{number}", command=command, fault=fault, since=datetime.now(UTC))
        return replace(self, number=number, faults=(*self.faults, entry)), entry

    def confirm(self, fault_id: str) -> Journal:
        """The journal with *fault_id* confirmed."""
        faults = [replace(fault, is_confirmed=True) if fault.id == fault_id else fault for fault in self.faults]
        return replace(self, faults=tuple(faults))

    def remove(self, fault_id: str) -> Journal:
        """The journal without *fault_id*."""
        return replace(self, faults=tuple(fault for fault in self.faults if fault.id != fault_id))


def journal_path(directory: LabDirectory) -> Path:
    """The file of a lab's journal."""
    return directory.path / "chaos.json"


def read_journal(directory: LabDirectory) -> Journal:
    """The journal, which is empty if nothing was ever written. Raises LabError if it cannot be parsed."""
    file = journal_path(directory)
    try:
        return decode(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Journal()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"the journal of open faults `{file}` cannot be read: {error}",
            hint=f"`vstream lab down {directory.name}` ends every server, paused ones too; then remove the file",
        ) from error


def write_journal(directory: LabDirectory, journal: Journal) -> None:
    """Store *journal* durably: it survives a crash of this process or machine. Call it with the lab's lock held."""
    write_private(journal_path(directory), json.dumps(encode(journal), indent=2) + "\n")


def encode(journal: Journal) -> dict[str, Any]:
    """*journal* as plain JSON data, which `decode` reads back."""
    return {
        "format": _FORMAT,
        "number": journal.number,
        "faults": [_encode_fault(open_fault) for open_fault in journal.faults],
    }


def _encode_fault(open_fault: OpenFault) -> dict[str, Any]:
    return {
        "id": open_fault.id,
        "asked": open_fault.command,
        "kind": open_fault.fault.kind,
        **open_fault.fault.journal_entry(),
        "since": open_fault.since.isoformat(),
        "confirmed": open_fault.is_confirmed,
    }


def decode(document: Mapping[str, Any]) -> Journal:
    """The reverse of `encode`. Raises ValueError, KeyError or TypeError for other data."""
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is {document['format']}, this vstream knows {_FORMAT}")
    return Journal(number=int(document["number"]), faults=tuple(map(_decode_fault, document["faults"])))


def _decode_fault(entry: Mapping[str, Any]) -> OpenFault:
    return OpenFault(
        id=str(entry["id"]),
        command=str(entry["asked"]),
        fault=LAB_FAULTS[entry["kind"]].from_journal(entry),
        since=datetime.fromisoformat(entry["since"]),
        is_confirmed=bool(entry["confirmed"]),
    )
