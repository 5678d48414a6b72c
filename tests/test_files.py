"""Files that are there as a whole or not at all, and what users hear when they cannot be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vstream.errors import VstreamError
from vstream.files import ensure_writable, save_output, write_atomically


def test_a_file_is_replaced_as_a_whole_and_nothing_is_left_over(tmp_path: Path) -> None:
    path = tmp_path / "lab.json"
    write_atomically(path, "old\r\n")
    write_atomically(path, "new\r\n")
    assert path.read_bytes() == b"new\r\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    really = os.fdopen

    def open_watched(descriptor: int, *arguments: object, **options: object) -> object:
        opened.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return really(descriptor, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "fdopen", open_watched)
    write_atomically(tmp_path / "secret", "s", mode=0o600)
    assert opened == [0o600]
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_what_cannot_be_written_leaves_the_old_text_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nobody_else_can_write_what_is_saved_and_private_files_are_the_owners(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        write_atomically(tmp_path / "state.json", "{}")
        save_output(tmp_path / "report.html", "<p>")
        save_output(tmp_path / "plan.json", "{}", is_private=True)
    finally:
        os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"state.json": 0o644, "report.html": 0o644, "plan.json": 0o600}


def test_a_saved_file_gets_its_directories_and_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    path, link = tmp_path / "a" / "b" / "file", tmp_path / "link"
    save_output(path, "one")
    path.chmod(0o640)
    link.symlink_to(path)
    save_output(link, "two")
    assert (path.read_text(), link.is_symlink(), stat.S_IMODE(path.stat().st_mode)) == ("two", True, 0o640)


def test_a_long_name_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)
    save_output(path, "text")
    assert path.read_text() == "text"


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    save_output(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["directory", "file/below", "loop", "no\0name"])
def test_what_cannot_be_saved_is_one_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(VstreamError, match="cannot be written: "):
        save_output(tmp_path / name, "text")


def test_a_directory_for_what_messages_say_is_its_owners(tmp_path: Path) -> None:
    """Tables of an audit: subjects, headers and message ids, in files that Spark makes readable."""
    before = os.umask(0)
    try:
        ensure_writable(tmp_path / "tables")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "tables").stat().st_mode) == 0o700
