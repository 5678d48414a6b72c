"""
The directory of a backup. It is a capture, too, so that `vstream audit` and people can read what it holds.

    backup.json             written last: the cut, what belongs to each stream, and the checksum of every other file
    manifest.json           the capture's own; says `is_complete: false` until the end
    topology.yaml           the file that the streams came from
    snapshots/STREAM.bin    what servers restore: a stream with its consumers, in the servers' own format
    streams/STREAM.jsonl    each message up to the cut, with the digest of its payload
    samples.jsonl           how far each reader had come

Without `backup.json` it is not finished, whatever else is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vstream.capture.store import Capture
from vstream.errors import MalformedAnswerError, RefusedError, VstreamError
from vstream.files import ensure_writable, write_private
from vstream.jetstream.answers import require_config, require_state
from vstream.value_class import value_class

FORMAT = 1
_RECORD_FILE = "backup.json"


@value_class
class SavedStream:
    """One physical stream of a backup."""

    name: str
    virtual: str
    region: str
    role: str
    config: dict[str, Any]
    """Its configuration on the server, in the API's fields."""
    state: dict[str, Any]
    """When the snapshot was taken, in the API's fields."""
    last_before: int
    """Its last sequence just before."""
    positions: dict[str, int]
    """The last sequence of each origin that its snapshot certainly has."""
    consumers: tuple[str, ...]
    """Durables that it had before the snapshot."""
    beyond: int
    """Messages of the snapshot that are after the cut."""


@value_class
class BackupRecord:
    """What `backup.json` says."""

    format: int
    id: str
    """The id of this backup, which is unique."""
    vstream: str
    topology: str
    started: str
    """RFC 3339: when it was begun."""
    cut: dict[str, int]
    """Up to this sequence of each origin, every read stream of the backup has taken everything."""
    streams: tuple[SavedStream, ...]
    """Those that others take from come first."""
    checksums: dict[str, str]
    """SHA-256 of every other file, by its path in the directory."""


_RECORD_TYPE = TypeAdapter(BackupRecord)


@dataclass(frozen=True, slots=True)
class BackupDirectory:
    """The directory of one backup."""

    path: Path

    @property
    def capture(self) -> Capture:
        """The same directory, as an audit reads it."""
        return Capture(self.path)

    def snapshot_file(self, stream: str) -> Path:
        """The servers' own copy of the physical *stream*."""
        return self.path / "snapshots" / f"{stream.replace('/', '~')}.bin"

    def require_empty(self) -> None:
        """Raises RefusedError if something is in it."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            is_begun = (self.path / "snapshots").is_dir() and not (self.path / _RECORD_FILE).exists()
            state = "holds a backup that was not finished" if is_begun else "is not empty"
            raise RefusedError(f"{self.path} {state}", hint="name another directory, or remove this one first")

    def create(self, topology_text: bytes) -> None:
        """Make the directory, for its owner alone. Raises RefusedError if something is in it."""
        self.require_empty()
        ensure_writable(self.path)
        self.path.chmod(0o700)  # an empty one may have been there: it will hold what messages say
        (self.path / "snapshots").mkdir()
        (self.path / "topology.yaml").write_bytes(topology_text)

    def finish(self, record: BackupRecord) -> None:
        """Write *record*: from now on this is a backup. Its checksums are those of what has reached the disk."""
        write_private(self.path / _RECORD_FILE, _RECORD_TYPE.dump_json(record, indent=2).decode() + "\n")

    def read(self) -> BackupRecord:
        """
        What it says. Raises RefusedError for one that was not finished, VstreamError for what is no backup.

        Files are not looked at: `verify` does that.
        """
        try:
            record = _RECORD_TYPE.validate_json(self.capture.read_document(_RECORD_FILE))
            for saved in record.streams:  # it may come from anybody
                require_config(saved.config, saved.name)
                require_state(saved.state, saved.name)
        except FileNotFoundError:
            if (self.path / "snapshots").is_dir():
                hint = "it cannot be restored; remove it, and make another"
                raise RefusedError(f"the backup in {self.path} was not finished", hint=hint) from None
            hint = "`vstream backup take DIR` makes one"
            raise VstreamError(f"{self.path} holds no backup", hint=hint) from None
        except OSError as error:
            raise VstreamError(f"{self.path / _RECORD_FILE} cannot be read: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, MalformedAnswerError) as error:
            problem = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
            raise VstreamError(f"{self.path / _RECORD_FILE} cannot be understood: {problem}") from error
        if record.format != FORMAT:
            raise VstreamError(f"{self.path / _RECORD_FILE} is of format {record.format}, this vstream reads {FORMAT}")
        return record

    def sync_and_hash_files(self) -> dict[str, str]:
        """Write every file but the record to disk for good. Returns the SHA-256 of each, by path."""
        files = sorted(file for file in self.path.rglob("*") if file.is_file() and file.name != _RECORD_FILE)
        for file in files:
            _sync(file)
        return {file.relative_to(self.path).as_posix(): _hash(file) for file in files}

    def verify(self, record: BackupRecord) -> None:
        """
        Raise VstreamError for the first file that is not as it was written.

        A backup may come from anybody. What is sent to servers lies in it, and is what the record names.
        """
        restored = (self.snapshot_file(saved.name).relative_to(self.path).as_posix() for saved in record.streams)
        for name in dict.fromkeys(("topology.yaml", *restored, *record.checksums)):
            file = self.path / name
            try:
                with self.capture.open(file) as content:
                    digest = hashlib.file_digest(content, "sha256").hexdigest()
            except OSError as error:
                reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
                raise VstreamError(f"{file} {reason}: the backup is damaged") from error
            if digest != record.checksums.get(name):
                raise VstreamError(f"{file} is not what was written: the backup is damaged", hint="use another copy")

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Inside of the block, no other restore of it runs on this machine. Raises RefusedError if one does."""
        with (self.path / _RECORD_FILE).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RefusedError(f"another command restores {self.path} right now") from None
            yield

    def read_chunks(self, stream: str, size: int) -> Iterator[bytes]:
        """The snapshot of *stream*, in pieces of *size* bytes."""
        with self.capture.open(self.snapshot_file(stream)) as file:
            while chunk := file.read(size):
                yield chunk


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
