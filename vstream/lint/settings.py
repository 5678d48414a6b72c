"""What surrounds the files that are checked: the settings of their directory, a baseline, the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from vstream.errors import VstreamError
from vstream.lint.baseline import Baseline, parse_baseline
from vstream.lint.selection import Anchor, known_codes
from vstream.lint.settings_file import OWN_FILE, LintSettings, parse_settings
from vstream.value_class import value_class

CONFIG_FILES = (OWN_FILE, "pyproject.toml")


def load_baseline(path: Path, *, may_be_missing: bool) -> Baseline | None:
    """The baseline at *path*, None if there is none yet. Raises VstreamError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if may_be_missing:
            return None
        raise VstreamError(f"there is no baseline {path}", hint="`--write-baseline` writes it") from None
    except (OSError, ValueError) as error:
        raise VstreamError(f"{path} cannot be read: {error}", hint="check its permissions") from None
    return parse_baseline(text, str(path), anchor_at(path.parent))


@value_class
class DirectorySettings:
    """The settings that hold in a directory, which file says so, and the top of the repository."""

    settings: LintSettings = field(default_factory=LintSettings)
    file: Path | None = None
    top: Anchor = field(default_factory=lambda: anchor_at(Path.cwd()))

    def path(self, name: str) -> Path:
        """A path that the settings name, from the working directory."""
        return Path(os.path.relpath(Path(self.file.parent if self.file else ".", name)))


def anchor_at(directory: Path) -> Anchor:
    """What makes paths relative to *directory*."""
    return Anchor(root=directory.resolve().as_posix(), working_directory=Path.cwd().as_posix())


def find_settings(directory: Path) -> DirectorySettings:
    """The settings of the nearest directory that has some, up to the top of the repository. Raises VstreamError."""
    top = next((parent for parent in (directory, *directory.parents) if (parent / ".git").exists()), directory)
    for parent in (directory, *directory.parents):
        for name in CONFIG_FILES:
            file = parent / name
            settings = _read(file)
            if settings is not None:
                return DirectorySettings(settings=settings, file=file, top=anchor_at(top))
        if parent == top:
            break
    return DirectorySettings(top=anchor_at(top))


def common_directory(names: Sequence[str]) -> Path:
    """The directory that has all of *names* in it, this one for patterns and the standard input."""
    paths = [Path(name).absolute() for name in names if Path(name).exists()]
    if not paths or len(paths) < len(names):
        return Path.cwd()
    common = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))
    return Path(os.path.normpath(common))


def _read(file: Path) -> LintSettings | None:
    """The settings of lint in *file*, None if there are none."""
    if not file.is_file():
        return None
    name = os.path.relpath(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise VstreamError(f"{name} cannot be read: {error}", hint="it must be TOML, in UTF-8") from None
    return parse_settings(text, name, known_codes(), anchor_at(file.parent))


def read_environment(names: Sequence[str], env_files: Sequence[Path]) -> Mapping[str, str] | None:
    """The variables that were asked for; None if nobody asked for any. Raises VstreamError."""
    if not names and not env_files:
        return None
    variables: dict[str, str] = {}
    for file in env_files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise VstreamError(f"{file} cannot be read: {error}") from None
        for number, line in enumerate(lines, start=1):
            assignment = line.strip()
            if not assignment or assignment.startswith("#"):
                continue
            name, separator, value = assignment.removeprefix("export ").partition("=")
            if not separator or len(name.split()) != 1:
                # Without the line itself: it may be part of a secret.
                raise VstreamError(
                    f"{file}: line {number} is not NAME=VALUE", hint="a line that begins with # is a comment"
                )
            # As a shell reads it: quotes within the quotes are the server's.
            variables[name.strip()] = re.sub(r"^(['\"])(.*)\1$", r"\2", value.strip())
    for name in names:
        if name not in os.environ:
            raise VstreamError(f"the environment has no `{name}`", hint="set it, or leave `--env` out")
        variables[name] = os.environ[name]
    return variables
