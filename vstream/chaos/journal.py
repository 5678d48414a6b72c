"""
The open faults of a lab, on disk: `chaos.json` in its directory.

A fault is written down before its first signal, whole and at once. So whoever
comes after a crash, at whichever point it happened, knows what may have to be undone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vstream.chaos.disk_full import DiskFull
from vstream.chaos.faults import Kill, LabFault, Pause, Restart
from vstream.chaos.links import LinkShape, Partition
from vstream.chaos.power_loss import PowerLoss
from vstream.errors import LabError
from vstream.files import write_atomically
from vstream.lab.links.state import decode_states, encode_states

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vstream.lab.state import LabDirectory

_FORMAT = 2
_ON_SERVERS: Mapping[str, type[Kill | Pause | Restart | DiskFull]] = {
    one.kind: one for one in (Kill, Pause, Restart, DiskFull)
}
_ON_LINKS: Mapping[str, type[Partition | LinkShape]] = {one.kind: one for one in (Partition, LinkShape)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFault:
    """A fault that was, or was about to be, injected and was not undone since."""

    id: str
    asked: str
    """The command that it came from, such as `kill-region west`."""
    fault: LabFault
    since: datetime
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What is open in one lab."""

    faults: tuple[OpenFault, ...] = ()
    number: int = 0
    """Of the last fault: names are not used again."""

    def get(self, fault_id: str) -> OpenFault | None:
        """The open fault *fault_id*."""
        return next((one for one in self.faults if one.id == fault_id), None)

    def opened(self, asked: str, fault: LabFault) -> tuple[Journal, OpenFault]:
        """With one more fault."""
        number = self.number + 1
        entry = OpenFault(id=f"f{number}", asked=asked, fault=fault, since=datetime.now(UTC))
        return replace(self, number=number, faults=(*self.faults, entry)), entry

    def confirmed(self, fault_id: str) -> Journal:
        """With *fault_id* seen to bite."""
        return replace(
            self, faults=tuple(replace(one, is_confirmed=True) if one.id == fault_id else one for one in self.faults)
        )

    def closed(self, fault_id: str) -> Journal:
        """Without *fault_id*."""
        return replace(self, faults=tuple(one for one in self.faults if one.id != fault_id))


def path(directory: LabDirectory) -> Path:
    """Where the journal of a lab is."""
    return directory.path / "chaos.json"


def read(directory: LabDirectory) -> Journal | None:
    """The journal, None if nothing was ever written. Raises LabError if it cannot be understood."""
    file = path(directory)
    try:
        return _journal(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"the journal of open faults `{file}` cannot be read: {error}",
            hint=f"`vstream lab down {directory.name}` ends every server, paused ones too; then remove the file",
        ) from error


def write(directory: LabDirectory, journal: Journal) -> None:
    """Keep *journal*, whatever happens to this process or machine next. Call it with the lab's lock held."""
    document = {
        "format": _FORMAT,
        "number": journal.number,
        "faults": [_entry(one) for one in journal.faults],
    }
    write_atomically(path(directory), json.dumps(document, indent=2) + "\n")


def _entry(one: OpenFault) -> dict[str, Any]:
    return {
        "id": one.id,
        "asked": one.asked,
        "kind": one.fault.kind,
        "servers": list(one.fault.servers),
        **({"seconds": one.fault.seconds} if isinstance(one.fault, PowerLoss) else {}),
        **({"links": list(encode_states(one.fault.states))} if isinstance(one.fault, Partition | LinkShape) else {}),
        "since": one.since.isoformat(),
        "confirmed": one.is_confirmed,
    }


def _journal(document: Mapping[str, Any]) -> Journal:
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is {document['format']}, this vstream knows {_FORMAT}")
    return Journal(
        number=int(document["number"]),
        faults=tuple(
            OpenFault(
                id=str(entry["id"]),
                asked=str(entry["asked"]),
                fault=_fault(entry),
                since=datetime.fromisoformat(entry["since"]),
                is_confirmed=bool(entry["confirmed"]),
            )
            for entry in document["faults"]
        ),
    )


def _fault(entry: Mapping[str, Any]) -> LabFault:
    kind = entry["kind"]
    if kind in _ON_LINKS:
        return _ON_LINKS[kind](states=decode_states(entry["links"]))
    if kind == PowerLoss.kind:
        return PowerLoss(servers=tuple(entry["servers"]), seconds=float(entry["seconds"]))
    return _ON_SERVERS[kind](servers=tuple(entry["servers"]))
