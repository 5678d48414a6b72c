"""Files: written completely or not at all, and not read through a link out of a repository."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from vstream.errors import VstreamError

BUNDLE_MARKER = ".vstream-bundle"
"""The file that `vstream render` leaves in a directory of its own."""
READABLE_MODE = 0o644
"""Mode of files without secrets, further restricted by the umask. Nobody else may ever write them."""
PRIVATE_MODE = 0o600
"""Mode of files that hold secrets or describe what is on the servers."""
_MAX_NAME_LENGTH = 40
"""Characters of a file's name that its temporary file repeats: names end at 255 bytes."""


class PathBelow:
    """An attribute of what has a *path*: the file or directory *name* below it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _type: type) -> Path:
        """Return where it is below *owner*."""
        return Path(owner.path, self._name)


def save_output(path: Path, text: str, *, is_private: bool = False) -> None:
    """
    Write a file that the user asked for, and create its directories. An old file stays until the new one is complete.

    Raises VstreamError if it cannot be written.
    """
    try:
        target = path.resolve()  # a link keeps leading to the file
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8", newline="")  # a pipe or /dev/stdout; a directory refuses
        else:
            # Whoever made a file private meant its next content, too. What is a link still, is a loop: `stat` refuses it.
            old_mode = target.stat().st_mode & 0o7777 if os.path.lexists(target) else None
            write_atomically(target, text, mode=old_mode or (PRIVATE_MODE if is_private else None))
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise VstreamError(f"{path} cannot be written: {reason}", hint="name a file that you may write") from error


def ensure_writable(directory: Path) -> None:
    """
    Create *directory* if needed, and make sure that files can be written in it, before work that takes long.

    One that is created is its owner's alone: it will hold what messages say. Raises VstreamError if it cannot.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"vstream")
    except (OSError, ValueError) as error:  # a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise VstreamError(
            f"cannot write files in {directory}: {reason}", hint="name a directory that you may write to"
        ) from error


def write_private(path: Path, text: str) -> None:
    """Like `write_atomically`, for a file that nobody else may read."""
    write_atomically(path, text, mode=PRIVATE_MODE)


def write_atomically(path: Path, text: str, *, mode: int | None = None) -> None:
    """
    Replace the file at *path*: a reader, and a machine that loses power, sees the old text or the new one.

    With *mode*, nobody else can read it at any time.
    """
    temporary = path.with_name(f".{path.name[:_MAX_NAME_LENGTH]}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, READABLE_MODE if mode is None else mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            if mode is not None:
                temporary.chmod(mode)  # exactly that: the umask has taken from it
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # what the system says of a full disk names no file
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def state_directory() -> Path:
    """Where vstream keeps what it knows between two commands, with symbolic links resolved: `VSTREAM_STATE_DIR`, or the user's."""
    chosen = os.environ.get("VSTREAM_STATE_DIR")
    return (Path(chosen).expanduser() if chosen else user_state_path("vstream")).resolve()


def leaves_repository(path: Path) -> bool:
    """
    Whether *path*, of a git repository, leads out of it by a link.

    A repository is what others wrote: such a link would have a file of this machine read, and quoted.
    """
    named = Path(os.path.normpath(path.absolute()))  # `resolve` would follow the links that are looked for
    repository = next((parent for parent in named.parents if (parent / ".git").exists()), None)
    return repository is not None and not named.resolve().is_relative_to(repository.resolve())
