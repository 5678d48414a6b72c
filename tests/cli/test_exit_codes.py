"""What becomes of failures on the command line."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from vstream.cli.app import run
from vstream.cli.exit_codes import report_failure


@pytest.mark.parametrize("command", ["audit", "lint"])
def test_a_directory_that_is_closed_to_this_user_is_said(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As root, who runs tests in containers, nothing is closed."""

    stat = Path.stat

    def closed(path: Path, **options: bool) -> os.stat_result:
        if path.name == "acme.yaml":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr("sys.argv", ["vstream", command, "closed/acme.yaml"])
    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith("error: closed/acme.yaml cannot be reached: Permission denied")


def test_an_error_that_names_no_file_is_a_bug() -> None:
    with pytest.raises(PermissionError):
        report_failure(PermissionError(errno.EPERM, "Operation not permitted"))
