"""Expected files: compared byte for byte, or rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Golden:
    """*update* rewrites what is expected to what is."""

    update: bool

    def check(self, path: Path, text: str) -> None:
        """The file at *path* holds *text*."""
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert path.is_file(), f"{path} is missing: run with --update-golden"
        assert path.read_bytes().decode() == text

    def check_directory(self, directory: Path, files: Mapping[str, str]) -> None:
        """*directory* holds exactly *files*."""
        present = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
        for unclaimed in sorted(present - set(files)):
            if self.update:
                (directory / unclaimed).unlink()
            else:
                raise AssertionError(f"{directory / unclaimed} belongs to nothing that is rendered")
        for name, text in files.items():
            self.check(directory / name, text)
