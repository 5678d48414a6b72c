"""A bundle in a directory of its own: files written, and those of an earlier bundle removed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from vstream.errors import VstreamError
from vstream.files import BUNDLE_MARKER, READABLE_MODE, write_atomically
from vstream.topology.bundle import Artifact, is_private

_PRIVATE, _PRIVATE_DIRECTORY = 0o600, 0o700


def write_bundle(artifacts: Sequence[Artifact], directory: Path) -> int:
    """
    Write *artifacts* and remove what an earlier one left; returns how many files were removed.

    Nothing outside of *directory* is touched, whatever links and lists of files lie in it. Raises VstreamError for a
    directory that has other things in it.
    """
    marker = directory / BUNDLE_MARKER
    paths = {artifact.path for artifact in artifacts}
    private = {(directory / path).parent for path in paths if is_private(path)}
    try:
        directory.mkdir(mode=_PRIVATE_DIRECTORY if directory in private else 0o755, parents=True, exist_ok=True)
        _require_inside(directory, PurePosixPath(BUNDLE_MARKER))
        if any(directory.iterdir()) and not marker.is_file():
            raise VstreamError(
                f"{directory} has files that vstream did not write", hint="name an empty or new directory with -o"
            )
        old_paths = set(marker.read_text(encoding="utf-8").splitlines()) if marker.is_file() else set()
        for path in paths | old_paths:
            _require_inside(directory, PurePosixPath(path))
        # Both lists first: whatever happens below, the next run knows which files are ours.
        _write_readable(marker, "".join(f"{path}\n" for path in sorted(paths | old_paths)))
        for parent in sorted({(directory / path).parent for path in paths}):
            parent.mkdir(mode=_PRIVATE_DIRECTORY if parent in private else 0o755, parents=True, exist_ok=True)
        for artifact in artifacts:
            _write_artifact(directory / artifact.path, artifact)
        stale_paths = old_paths - paths
        for path in stale_paths:
            (directory / path).unlink(missing_ok=True)
        _write_readable(marker, "".join(f"{path}\n" for path in sorted(paths)))
    except (OSError, ValueError) as error:  # a NUL, or no UTF-8
        reason = error.strerror if isinstance(error, OSError) else error
        blamed = getattr(error, "filename", None) or directory
        raise VstreamError(f"{blamed} cannot be written: {reason}", hint="name another directory with -o") from None
    return len(stale_paths)


def _require_inside(directory: Path, path: PurePosixPath) -> None:
    """Raises VstreamError if *path* leads out of *directory*, or may lead out of it."""
    if path.is_absolute() or ".." in path.parts:
        raise VstreamError(
            f"{directory / BUNDLE_MARKER} lists a file outside of {directory}: {path}", hint=f"remove {directory}"
        )
    for part in (path, *path.parents):
        if part.parts and (directory / part).is_symlink():
            raise VstreamError(
                f"{directory / part} is a symbolic link: vstream does not write through links",
                hint="remove it, or name another directory with -o",
            )


def _write_artifact(path: Path, artifact: Artifact) -> None:
    if is_private(artifact.path):
        write_atomically(path, artifact.text, mode=_PRIVATE)
    else:
        _write_readable(path, artifact.text)


def _write_readable(path: Path, text: str) -> None:
    """Write a file for nobody else to write, whatever the umask is, and through no link that came meanwhile."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, READABLE_MODE), "w", encoding="utf-8", newline="") as file:
        file.write(text)
