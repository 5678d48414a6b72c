"""
A capture on disk: a directory that needs nothing else to be judged again.

    manifest.json               what it is of
    scenario.yaml topology.yaml the files that it came from
    operations/REGION.jsonl     what clients did
    deliveries/REGION.jsonl     what consumers received
    streams/STREAM.jsonl        every physical stream's contents in the end
    samples.jsonl faults.jsonl windows.jsonl
    logs/SERVER.log             what servers said

Lines are JSON objects, and fields with their default value are left out.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from vstream.capture.records import Delivery, FaultRecord, Manifest, OperationRecord, Sample, StoredRecord, Window
from vstream.errors import VstreamError
from vstream.files import PathBelow
from vstream.syntax.document import object_or_empty

FORMAT = 2
_ADAPTERS: dict[object, TypeAdapter[Any]] = {}
_CHUNK_BYTES = 256 * 1024
"""Bytes read and decoded at once."""
MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of the longest line. None that vstream writes has a hundredth of that, but a capture may come from anybody."""
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
"""Bytes of the largest manifest, scenario or topology."""

_Record = TypeVar("_Record", OperationRecord, Delivery, StoredRecord, Sample, FaultRecord, Window, Manifest)


class RecordWriter(Generic[_Record]):
    """Appends records to one file. After a crash the file is still readable: only its last line may be cut."""

    def __init__(self, path: Path, kind: type[_Record]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._adapter: TypeAdapter[_Record] = _adapter(kind)

    def write(self, record: _Record) -> None:
        """Append *record*. It reaches the disk after `flush` or `close`."""
        self._file.write(self._adapter.dump_json(record, exclude_defaults=True) + b"\n")

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Capture:
    """The directory of one capture."""

    path: Path

    def operations_file(self, region: str) -> Path:
        """The file with the operations of *region*."""
        return self.path / "operations" / f"{region}.jsonl"

    def deliveries_file(self, region: str) -> Path:
        """The file with the deliveries in *region*."""
        return self.path / "deliveries" / f"{region}.jsonl"

    def stream_file(self, stream: str) -> Path:
        """The file with the contents of the physical *stream*."""
        return self.path / "streams" / f"{stream.replace('/', '~')}.jsonl"

    samples_file = PathBelow("samples.jsonl")
    """The file with the samples."""
    faults_file = PathBelow("faults.jsonl")
    """The file with the faults."""
    windows_file = PathBelow("windows.jsonl")
    """The file with the windows."""
    logs = PathBelow("logs")
    """The directory with the servers' logs."""

    def samples(self) -> Iterator[Sample]:
        """All samples; those of one region are in order of time."""
        return self._read(self.samples_file, Sample)

    def faults(self) -> Iterator[FaultRecord]:
        """The faults that have ended, in order of their end."""
        return self._read(self.faults_file, FaultRecord)

    def windows(self) -> Iterator[Window]:
        """The named steps that were taken."""
        return self._read(self.windows_file, Window)

    def operations(self) -> Iterator[OperationRecord]:
        """Every operation, region by region."""
        for file in sorted((self.path / "operations").glob("*.jsonl")):
            yield from self._read(file, OperationRecord)

    def deliveries(self) -> Iterator[Delivery]:
        """Every delivery, region by region."""
        for file in sorted((self.path / "deliveries").glob("*.jsonl")):
            yield from self._read(file, Delivery)

    def read_stored(self, stream: str) -> Iterator[StoredRecord]:
        """The contents of the physical *stream*, by sequence."""
        return self._read(self.stream_file(stream), StoredRecord)

    def count_lines(self) -> dict[str, int]:
        """
        The number of complete lines, by file, such as `operations/west.jsonl`.

        Streams are left out: the manifest counts their messages.
        """
        files = [self.samples_file, self.faults_file, self.windows_file]
        files += [file for part in ("operations", "deliveries") for file in (self.path / part).glob("*.jsonl")]
        return {file.relative_to(self.path).as_posix(): _count_lines(file) for file in sorted(files) if file.is_file()}

    def read_document(self, name: str) -> bytes:
        """The content of the file *name*. Raises OSError if it is not there, and VstreamError if no capture has such a file."""
        with self.open(self.path / name) as file:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(content) > MAX_DOCUMENT_BYTES:
            raise VstreamError(f"`{self.path / name}` has more than {MAX_DOCUMENT_BYTES:,} bytes")
        return content

    def manifest(self) -> Manifest:
        """The manifest. Raises VstreamError if this is not a capture, or one that this version cannot read."""
        file = self.path / "manifest.json"
        try:
            text = self.read_document("manifest.json")
            result = object_or_empty(json.loads(text)).get("format")
            if result != FORMAT:
                raise VstreamError(f"`{file}` is of format {result}, this vstream reads {FORMAT}")
            return cast("Manifest", _adapter(Manifest).validate_json(text, strict=True))
        except OSError as error:
            raise VstreamError(
                f"`{self.path}` is not a capture: manifest.json: {error.strerror}",
                hint="name a directory that `vstream scenario run` wrote",
            ) from error
        except (ValueError, RecursionError) as error:
            raise VstreamError(f"`{file}` cannot be understood: {_describe_first(error)}") from error

    def open(self, file: Path) -> BufferedReader:
        """
        Open a *file* of the capture, which others may have made.

        A link would have any file of this machine read, and quoted where it is wrong; a pipe would never end.
        """
        if not file.is_relative_to(self.path):
            raise VstreamError(f"`{file}` is not in `{self.path}`")
        if file.resolve() != self.path.resolve() / file.relative_to(self.path):
            raise VstreamError(
                f"`{file}` is a symbolic link, which no capture contains",
                hint="copy the file that it points to, if it is yours",
            )
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise VstreamError(f"`{file}` cannot be read: it is not a file")
        return os.fdopen(descriptor, "rb")

    def _read(self, file: Path, kind: type[_Record]) -> Iterator[_Record]:
        """
        The records in *file*, none if there is no file.

        A last line without an end was cut by a crash and is left out; any other line
        that cannot be understood raises VstreamError with file and line.
        """
        many: TypeAdapter[list[_Record]] = _adapter(list[kind])  # type: ignore[valid-type]  # known to pydantic alone
        try:
            content = self.open(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise VstreamError(f"`{file}` cannot be read: {error.strerror or error}") from error
        number = 1
        with content:
            for lines in _complete_lines(content, file):
                try:
                    # Several lines at once take half the time.
                    records = many.validate_json(b"[" + b",".join(lines) + b"]", strict=True)
                except ValidationError:
                    records = []
                if len(records) == len(lines):
                    yield from records
                else:
                    yield from _read_one_by_one(file, number, lines, kind)
                number += len(lines)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest atomically: a reader sees either the old one or the new one."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / ".manifest.json.tmp"
        temporary.write_bytes(_adapter(Manifest).dump_json(manifest, indent=2) + b"\n")
        temporary.replace(self.path / "manifest.json")


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made once for each kind: that takes as long as reading a thousand lines."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _complete_lines(content: BufferedReader, file: Path) -> Iterator[list[bytes]]:
    """Some lines at a time, without what the last one lacks an end of. Raises VstreamError at a line without end."""
    rest = b""
    while chunk := content.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise VstreamError(f"`{file}` has a line of more than {MAX_LINE_BYTES:,} bytes")
        if lines:
            yield lines


def _read_one_by_one(file: Path, number: int, lines: Sequence[bytes], kind: type[_Record]) -> Iterator[_Record]:
    """The records on *lines*, of which the first has this *number*. Raises VstreamError at the one that is wrong."""
    adapter: TypeAdapter[_Record] = _adapter(kind)
    for place, line in enumerate(lines, number):
        try:
            yield adapter.validate_json(line, strict=True)
        except ValidationError as error:
            raise VstreamError(f"{file}:{place}: {_describe_first(error)}") from error


def _count_lines(file: Path) -> int:
    with file.open("rb") as content:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: content.read(_CHUNK_BYTES), b""))


def _describe_first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        item = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
    return str(error)
