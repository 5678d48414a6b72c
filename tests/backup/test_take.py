"""The cut, and the directory of a backup, without servers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import vstream
from tests.support.topologies import one_region
from vstream.backup.directory import FORMAT, BackupDirectory, BackupRecord, SavedStream
from vstream.backup.take import find_cut
from vstream.errors import RefusedError, VstreamError


def make_saved(name: str, role: str, last: int, **positions: int) -> SavedStream:
    return SavedStream(
        name=name,
        virtual="foo",
        region="west",
        role=role,
        config={"name": name, "sources": [{"name": origin} for origin in ("w", "e") if role == "read"]},
        state={"first_seq": 1, "last_seq": last, "messages": last},
        last_before=last,
        positions=positions,
        consumers=(),
        beyond=0,
    )


def test_the_cut_is_where_the_reader_is_that_is_furthest_behind() -> None:
    streams = [
        make_saved("w", "write", 9),
        make_saved("e", "write", 5),
        make_saved("r1", "read", 12, w=8, e=5),
        make_saved("r2", "read", 9, w=7),
    ]
    assert find_cut(streams) == {"w": 7, "e": 0}
    ordering = [*streams[:2], make_saved("o", "order", 9, w=4, e=5), make_saved("r1", "read", 9, w=8, e=5)]
    assert find_cut(ordering) == {"w": 4, "e": 5}


def test_a_reader_that_has_taken_as_much_as_there_ever_was_has_taken_everything() -> None:
    """Also of an origin of which it holds nothing any more, where servers do not say how far it is."""
    streams = [make_saved("w", "write", 9), make_saved("e", "write", 5), make_saved("r1", "read", 14, w=9)]
    assert find_cut(streams) == {"w": 9, "e": 5}


def record(directory: BackupDirectory) -> BackupRecord:
    return BackupRecord(
        format=FORMAT,
        id="a",
        vstream="1",
        topology="acme",
        started="2026-11-26T00:00:00+00:00",
        cut={"w": 9},
        streams=(make_saved("w", "write", 9),),
        checksums=directory.sync_and_hash_files(),
    )


def test_a_backup_is_one_when_all_of_it_is_written(tmp_path: Path) -> None:
    directory = BackupDirectory(tmp_path / "dir")
    directory.create(b"version: 1\n")
    with pytest.raises(RefusedError, match="not finished"):
        directory.read()
    with pytest.raises(RefusedError, match="not finished"):
        directory.create(b"version: 1\n")
    directory.snapshot_file("w").write_bytes(b"snapshot")
    directory.finish(record(directory))
    assert directory.read() == record(directory)
    directory.verify(directory.read())
    with pytest.raises(RefusedError, match="not empty"):
        directory.create(b"version: 1\n")


def test_a_file_that_is_missing_or_changed_is_named(tmp_path: Path) -> None:
    directory = BackupDirectory(tmp_path)
    directory.create(b"version: 1\n")
    for name in ("w", "R_w/foo"):
        directory.snapshot_file(name).write_bytes(b"snapshot")
    directory.finish(record(directory))
    directory.snapshot_file("R_w/foo").write_bytes(b"snapshoT")
    with pytest.raises(VstreamError, match=r"R_w~foo\.bin is not what was written"):
        directory.verify(directory.read())
    directory.snapshot_file("R_w/foo").unlink()
    with pytest.raises(VstreamError, match=r"R_w~foo\.bin is missing"):
        directory.verify(directory.read())


def test_what_is_no_backup_is_said(tmp_path: Path) -> None:
    with pytest.raises(VstreamError, match="holds no backup"):
        BackupDirectory(tmp_path).read()
    (tmp_path / "backup.json").write_text("{}")
    with pytest.raises(VstreamError, match="cannot be understood"):
        BackupDirectory(tmp_path).read()
    directory = BackupDirectory(tmp_path / "later")
    directory.create(b"")
    directory.finish(replace(record(directory), format=2))
    with pytest.raises(VstreamError, match="of format 2"):
        directory.read()


@pytest.mark.parametrize("is_named", [False, True], ids=["without a checksum", "with its checksum"])
def test_a_backup_of_somebody_else_has_no_file_of_this_machine_sent(tmp_path: Path, *, is_named: bool) -> None:
    secret = tmp_path / "id_ed25519"
    secret.write_text("a private key")
    directory = BackupDirectory(tmp_path / "dir")
    directory.create(b"version: 1\n")
    directory.snapshot_file("w").symlink_to(secret)
    checksums = directory.sync_and_hash_files()
    directory.finish(replace(record(directory), checksums=checksums if is_named else {}))
    with pytest.raises(VstreamError, match="damaged" if not is_named else "is a symbolic link"):
        directory.verify(directory.read())
    with pytest.raises(VstreamError, match="is a symbolic link"):
        next(directory.read_chunks("w", 10))


@pytest.mark.parametrize("name", ["../id_ed25519", "/etc/passwd", "snapshots", "pipe"])
def test_a_backup_of_somebody_else_has_nothing_outside_of_it_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "id_ed25519").write_text("a private key")
    directory = BackupDirectory(tmp_path / "dir")
    directory.create(b"version: 1\n")
    directory.snapshot_file("w").write_bytes(b"snapshot")
    whole = record(directory)
    os.mkfifo(directory.path / "pipe")
    directory.finish(replace(whole, checksums={**whole.checksums, name: "0"}))
    with pytest.raises(VstreamError, match=r"is a symbolic link|no file|cannot be read|is not in"):
        directory.verify(directory.read())


@pytest.mark.parametrize(
    "change",
    [{"state": {}}, {"state": {"messages": 1, "first_seq": "x", "last_seq": 1}}, {"config": {"sources": [5]}}],
)
def test_a_record_of_another_shape_is_one_error(tmp_path: Path, change: dict[str, Any]) -> None:
    directory = BackupDirectory(tmp_path / "dir")
    directory.create(b"version: 1\n")
    directory.finish(replace(record(directory), streams=(replace(make_saved("w", "write", 9), **change),)))
    with pytest.raises(VstreamError, match=r"backup\.json cannot be understood"):
        directory.read()


def test_a_record_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    """It could lead to a device without end."""
    (tmp_path / "backup.json").symlink_to("/dev/null")
    with pytest.raises(VstreamError, match="is a symbolic link"):
        BackupDirectory(tmp_path).read()


def test_nobody_else_reads_a_backup_also_where_the_directory_was_there(tmp_path: Path) -> None:
    directory = tmp_path / "dir"
    directory.mkdir(mode=0o755)
    BackupDirectory(directory).create(b"version: 1\n")
    assert directory.stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_where_a_region_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(one_region("nats://127.0.0.1:1"))
    assert vstream("backup", "take", tmp_path / "monday", file).code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["acme.yaml"]
