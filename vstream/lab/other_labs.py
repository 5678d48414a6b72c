"""
Labs of this user in other state directories: their ports stay reserved while a fault keeps servers down.

A port that nobody listens on may belong to a server that was killed on purpose and will come back there.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vstream.errors import LabError
from vstream.files import write_private
from vstream.lab import records
from vstream.lab.state import LabDirectory, LabRecord, labs_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


def labs_running_elsewhere(known: Path) -> Iterator[LabRecord]:
    """
    Records of labs in other state directories with servers that should run.

    *known* is a directory that all of them share. From now on it also names this state directory.
    """
    own_directory = labs_directory()
    with suppress(OSError):  # then the others do not hear of us
        _remember(known, own_directory)
    for entry in sorted(known.glob("[!.]*")):
        labs = _labs_in(entry)
        if labs is None or labs == own_directory:
            continue
        directories = [LabDirectory(path.parent.name, path.parent) for path in labs.glob("*/lab.json")]
        if not directories:
            entry.unlink(missing_ok=True)
        for directory in directories:
            with suppress(LabError):
                if records.recorded_servers(directory) and (record := directory.read()) is not None:
                    yield record


def _remember(known: Path, labs: Path) -> None:
    known.mkdir(parents=True, exist_ok=True)
    entry = known / hashlib.sha256(str(labs).encode()).hexdigest()[:16]
    if _labs_in(entry) != labs:
        write_private(entry, str(labs))


def _labs_in(entry: Path) -> Path | None:
    try:
        return Path(entry.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
