"""What surrounds the files that `lint` and `validate` check: settings, a baseline, the environment, corrected files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vstream.cli import input_files
from vstream.cli.exit_codes import NO, OK, UNKNOWN
from vstream.errors import VstreamError
from vstream.lint.baseline import Baseline, parse_baseline
from vstream.lint.config import OWN_FILE, LintConfig, parse_config
from vstream.lint.engine import LintReport, Surroundings
from vstream.lint.selection import Anchor, known_codes
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.topology.model import ServerVersion

_WATCH_SECONDS = 0.3
_LONGEST_VERSION = 12


def make_surroundings(
    roots: input_files.Roots | None,
    env: Mapping[str, str] | None,
    *,
    templates: Path | None = None,
    overlays: Mapping[str, bytes] | None = None,
) -> Surroundings:
    """What a linter reads besides the given files: from *roots*, or from anywhere."""
    return Surroundings(
        read=input_files.read_included if roots is None else roots.read,
        env=env,
        overlays=overlays or {},
        templates=templates,
        is_directory=os.path.isdir,
    )


def exit_code(report: LintReport, config: LintConfig) -> int:
    """0 if nothing weighs enough to fail, 3 if something could not be read."""
    if not report.is_complete:
        return UNKNOWN
    return NO if report.has_any(config.fail_on) else OK


def save_texts(texts: Mapping[str, str]) -> None:
    """Write corrected files. Raises VstreamError."""
    for name, text in sorted(texts.items()):
        try:
            Path(name).write_bytes(text.encode())
        except OSError as error:
            raise VstreamError(f"{name} cannot be written: {error.strerror}", hint="check its permissions") from None


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


def read_stamps(names: Sequence[str], extra: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """When the files of *names*, in their directories too, and *extra* were changed, and their sizes; None for one that is not there."""
    return {file: _read_stamp(file) for file in (*input_files.list_files(names), *extra)}


def _read_stamp(file: str) -> tuple[int, int] | None:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


def wait_for_change(
    names: Sequence[str], before: Mapping[str, tuple[int, int] | None], includes: Iterable[str]
) -> None:
    """Return when the stamps of *names* and *includes* are not *before*: a file was changed, added or removed."""
    extra = list(includes)
    while read_stamps(names, extra) == before:
        time.sleep(_WATCH_SECONDS)


CONFIG_FILES = (OWN_FILE, "pyproject.toml")


@value_class
class Settings:
    """The settings of a directory: what they say, which file says it, and the top of the repository."""

    config: LintConfig = field(default_factory=LintConfig)
    file: Path | None = None
    top: Anchor = field(default_factory=lambda: anchor_at(Path.cwd()))

    def path(self, name: str) -> Path:
        """A path that the settings name, from the working directory."""
        return Path(os.path.relpath(Path(self.file.parent if self.file else ".", name)))


def anchor_at(directory: Path) -> Anchor:
    """What makes paths relative to *directory*."""
    return Anchor(root=directory.resolve().as_posix(), working_directory=Path.cwd().as_posix())


def find_settings(directory: Path) -> Settings:
    """The settings of the nearest directory that has some, up to the top of the repository. Raises VstreamError."""
    top = next((parent for parent in (directory, *directory.parents) if (parent / ".git").exists()), directory)
    for parent in (directory, *directory.parents):
        for name in CONFIG_FILES:
            file = parent / name
            config = _read(file)
            if config is not None:
                return Settings(config=config, file=file, top=anchor_at(top))
        if parent == top:
            break
    return Settings(top=anchor_at(top))


def common_directory(names: Sequence[str]) -> Path:
    """The directory that has all of *names* in it, this one for patterns and the standard input."""
    paths = [Path(name).absolute() for name in names if Path(name).exists()]
    if not paths or len(paths) < len(names):
        return Path.cwd()
    common = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))
    return Path(os.path.normpath(common))


def _read(file: Path) -> LintConfig | None:
    """The settings of lint in *file*, None if there are none."""
    if not file.is_file():
        return None
    name = os.path.relpath(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise VstreamError(f"{name} cannot be read: {error}", hint="it must be TOML, in UTF-8") from None
    return parse_config(text, name, known_codes(), anchor_at(file.parent))


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
        for line in lines:
            name, separator, value = line.strip().removeprefix("export ").partition("=")
            if separator and not name.startswith("#"):
                # As a shell reads it: quotes within the quotes are the server's.
                variables[name.strip()] = re.sub(r"^(['\"])(.*)\1$", r"\2", value.strip())
    for name in names:
        if name not in os.environ:
            raise VstreamError(f"the environment has no `{name}`", hint="set it, or leave `--env` out")
        variables[name] = os.environ[name]
    return variables


def parse_version(text: str | None) -> ServerVersion | None:
    """A version such as 2.12, or None for None. Raises a usage error for anything else."""
    if text is None:
        return None
    major, _, rest = text.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    is_number = all(part.isascii() and part.isdecimal() for part in (major, minor))
    if not is_number or len(text) > _LONGEST_VERSION:
        raise typer.BadParameter(f"`{text}` is not a server version such as 2.12", param_hint="--server-version")
    return int(major), int(minor)
