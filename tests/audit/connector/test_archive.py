"""Executors that do not have vstream get a part of it as an archive, which is all that this part imports."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from vstream.audit.connector import write_archive


def test_the_archive_has_everything_that_its_modules_import(tmp_path: Path) -> None:
    archive = write_archive(tmp_path)
    with zipfile.ZipFile(archive) as file:
        names = [name for name in file.namelist() if name.startswith("vstream/audit/")]
    modules = [name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in names]
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import vstream; assert {str(archive)!r} in vstream.__file__\n"
        + "\n".join(f"import {module}" for module in modules)
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
