"""A capture is read as it was written, also after a crash, and never half understood."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.captures import make_manifest
from vstream.capture.records import OperationKind, OperationOutcome, OperationRecord, Sample
from vstream.capture.store import Capture, RecordWriter
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def operation(number: int) -> OperationRecord:
    return OperationRecord(
        client="west/publish-foo",
        region="west",
        kind=OperationKind.PUBLISH,
        stream="foo",
        due=number,
        sent=number + 1,
        done=None,
        outcome=OperationOutcome.INDETERMINATE,
        id=f"west-{number}",
    )


def write_operations(directory: Path, number: int) -> Capture:
    capture = Capture(directory)
    with closing(RecordWriter(capture.operations_file("west"), OperationRecord)) as lines:
        for each in range(number):
            lines.write(operation(each))
    return capture


def test_what_was_written_is_read(tmp_path: Path) -> None:
    capture = write_operations(tmp_path, 3)
    capture.write_manifest(make_manifest())
    sample = Sample(at=1, region="west", control_plane=None, error="no", sourced={"a": {"b": 4}})
    with closing(RecordWriter(tmp_path / "samples.jsonl", Sample)) as samples:
        samples.write(sample)
    assert capture.manifest() == make_manifest()
    assert list(capture.operations()) == [operation(number) for number in range(3)]
    assert list(capture.samples()) == [sample]
    assert list(capture.deliveries()) == []


def test_a_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    capture = write_operations(tmp_path, 2)
    whole = capture.operations_file("west").read_bytes()
    capture.operations_file("west").write_bytes(whole[:-10])
    assert list(capture.operations()) == [operation(0)]


def test_a_line_that_is_wrong_is_named(tmp_path: Path) -> None:
    capture = write_operations(tmp_path, 1)
    with capture.operations_file("west").open("ab") as file:
        file.write(b'{"client": 3}\n')
    with pytest.raises(VstreamError, match=r"west\.jsonl:2: "):
        list(capture.operations())


def test_a_line_that_was_broken_in_two_is_no_record(tmp_path: Path) -> None:
    capture = write_operations(tmp_path, 2)
    whole = capture.operations_file("west").read_bytes()
    capture.operations_file("west").write_bytes(whole.replace(b',"sent"', b'\n"sent"', 1))
    with pytest.raises(VstreamError, match=r"west\.jsonl:1: "):
        list(capture.operations())


@pytest.mark.parametrize("due", [b'"0"', b"true", b"0.5", b"9" * 30, b"-" + b"9" * 30])
def test_a_number_that_is_none_of_the_recorders_is_named(tmp_path: Path, due: bytes) -> None:
    capture = write_operations(tmp_path, 1)
    whole = capture.operations_file("west").read_bytes()
    capture.operations_file("west").write_bytes(whole.replace(b'"due":0', b'"due":' + due))
    with pytest.raises(VstreamError, match=r"west\.jsonl:1: due: "):
        list(capture.operations())


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    capture = Capture(tmp_path)
    capture.operations_file("west").mkdir(parents=True)
    with pytest.raises(VstreamError, match=r"west\.jsonl.*cannot be read"):
        list(capture.operations())


@pytest.mark.parametrize("text", [None, "{", "[]", '{"format": 1}', '{"format": 99}', '{"format": 2}'])
def test_what_is_no_capture_is_said(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(VstreamError):
        Capture(tmp_path).manifest()


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[]", '{"format": []}'])
def test_a_manifest_that_is_none_is_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(VstreamError, match=r"manifest\.json"):
        Capture(tmp_path).manifest()


def make_hole(file: Path, _outside: Path) -> None:
    with file.open("wb") as hole:
        hole.truncate(20 << 30)


FOREIGN: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda file, outside: file.symlink_to(outside),
    "a device": lambda file, _: file.symlink_to("/dev/zero"),
    "a pipe": lambda file, _: os.mkfifo(file),
    "a hole of 20 GiB": make_hole,
}


@pytest.mark.parametrize("name", ["manifest.json", "samples.jsonl", "operations/west.jsonl", "streams/foo.jsonl"])
@pytest.mark.parametrize("put", FOREIGN.values(), ids=FOREIGN)
def test_a_capture_of_somebody_else_leads_nowhere_and_ends(
    tmp_path: Path, name: str, put: Callable[[Path, Path], object]
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("a secret\n")
    capture = Capture(tmp_path / "capture")
    file = capture.path / name
    file.parent.mkdir(parents=True)
    put(file, outside)
    read: Callable[[], object] = {
        "manifest.json": lambda: [capture.manifest()],
        "samples.jsonl": lambda: list(capture.samples()),
        "operations/west.jsonl": lambda: list(capture.operations()),
        "streams/foo.jsonl": lambda: list(capture.read_stored("foo")),
    }[name]
    with pytest.raises(VstreamError, match=r"is a symbolic link|is not a file|more than") as caught:
        read()
    assert "a secret" not in caught.value.message


def test_a_directory_of_a_capture_is_no_link_either(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "west.jsonl").write_text("a secret\n")
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "operations").symlink_to(tmp_path / "outside")
    with pytest.raises(VstreamError, match="is a symbolic link"):
        list(Capture(tmp_path / "capture").operations())


def test_a_capture_may_itself_be_reached_by_a_link(tmp_path: Path) -> None:
    Capture(tmp_path / "capture").write_manifest(make_manifest())
    (tmp_path / "latest").symlink_to("capture")
    assert Capture(tmp_path / "latest").manifest() == make_manifest()


def test_lines_are_read_whole_wherever_a_chunk_ends(tmp_path: Path) -> None:
    capture = Capture(tmp_path)
    records = [replace(operation(number), error="x" * (number * 37 % 5000)) for number in range(500)]
    with closing(RecordWriter(capture.operations_file("west"), OperationRecord)) as lines:
        for record in records:
            lines.write(record)
    assert list(capture.operations()) == records
