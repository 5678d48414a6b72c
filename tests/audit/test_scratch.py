"""What audits leave in the directory for temporary files: nothing, or the next one removes it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from vstream.audit.scratch import scratch_directory
from vstream.errors import VstreamError

HOLD = """
import sys
from vstream.audit.scratch import scratch_directory
with scratch_directory() as place:
    (place / "vstream-west-password").write_text("secret")
    print(place, flush=True)
    sys.stdin.read()
"""


def begin_process() -> tuple[subprocess.Popen[str], Path]:
    """A process with a directory that looks as if it had been made an hour ago."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    place = Path(process.stdout.readline().strip())
    make_old(place)
    return process, place


def make_old(place: Path) -> None:
    os.utime(place, (place.stat().st_atime, place.stat().st_mtime - 3600))


def test_what_killed_processes_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (running, in_use), (killed, left) = begin_process(), begin_process()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    link = tmp_path / "vstream-scratch-link"
    link.symlink_to(elsewhere)
    make_old(elsewhere)
    new = tmp_path / "vstream-scratch-new"  # somebody is about to lock it
    new.mkdir()
    assert (left / "vstream-west-password").exists()
    with scratch_directory() as scratch:
        assert sorted(tmp_path.iterdir()) == sorted([scratch, in_use, elsewhere, link, new])
        assert scratch.stat().st_mode & 0o777 == 0o700
        assert (in_use / "vstream-west-password").exists()
    running.communicate("")
    assert sorted(tmp_path.iterdir()) == sorted([elsewhere, link, new])
    assert (elsewhere / "file").exists()


@pytest.mark.parametrize("limit", [0, 4096])
def test_an_audit_without_room_for_temporary_files_does_not_begin(limit: int, tmp_path: Path) -> None:
    def fill_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    ran = subprocess.run(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        preexec_fn=fill_disk,
        check=False,
        timeout=60,
    )
    assert "VstreamError: no space for temporary files" in ran.stderr
    assert (ran.stdout, list(tmp_path.iterdir())) == ("", [])


def test_a_disk_that_is_full_later_is_told_from_output_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VstreamError, match="no space for temporary files"), scratch_directory():
        raise OSError(errno.ENOSPC, "No space left on device")
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left"), scratch_directory():
            sys.stdout.write("what was found\n")
        monkeypatch.undo()
        with suppress(OSError):
            full.close()
