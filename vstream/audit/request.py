"""The request for an audit, and checks before anything is read. Does not import Spark."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from vstream.capture.store import Capture
from vstream.errors import UnknownNameError, VstreamError
from vstream.files import ensure_writable
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint, Topology
from vstream.value_class import value_class

SMALL_AUDIT_MESSAGES = 1_000_000
"""With fewer messages, compiling plans takes Spark longer than it saves."""
MAX_STREAMS_WITH_FIGURES = 100
"""Up to this number of virtual streams, a report has the figures of all; of more, those that do not pass, and so many at most."""
LOCAL_SCHEME = "file://"


class AuditStage(Enum):
    """What is done with the extracted tables, in order."""

    NORMALISE = "normalise"
    RECONCILE = "reconcile"
    JUDGE = "judge"


class TargetKind(Enum):
    """What is audited."""

    TOPOLOGY = "topology"
    CAPTURE = "capture"
    TABLES = "tables"


@value_class
class NamedTarget:
    """What a user names to be audited: its *place*, a path or a Spark URI, and what is there."""

    place: str
    kind: TargetKind

    @classmethod
    def at(cls, place: str) -> NamedTarget:
        """What is at *place*."""
        if "://" not in place and not Path(place).is_dir():
            return cls(place=place, kind=TargetKind.TOPOLOGY)
        is_capture = Path(place, "manifest.json").is_file()
        return cls(place=place, kind=TargetKind.CAPTURE if is_capture else TargetKind.TABLES)


@value_class
class AuditRequest:
    """The options of an audit."""

    streams: tuple[str, ...] = ()
    since_ns: int | None = None
    """Length of the audited period, in nanoseconds."""
    sample: int | None = None
    tables_uri: str | None = None
    """Where all tables are kept; None if they are not."""
    first_stage: AuditStage = AuditStage.NORMALISE
    """The tables of the stages before it exist."""
    publish: str | None = None
    """A schema in Spark's catalog that gets the results."""
    publish_as: str = "parquet"
    max_shown: int = MAX_STREAMS_WITH_FIGURES
    """Up to this number of virtual streams, all have figures."""
    state: Path | None = None
    """The directory that keeps the messages read for the next audit."""


@value_class
class SparkAddress:
    """Where Spark runs: without *master* and *remote*, on this machine."""

    master: str | None = None
    remote: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a process of this audit."""
        return not (self.master or self.remote)


@value_class
class AuditedServers:
    """The servers of a topology, and how to reach them."""

    topology: Topology
    description: str
    """Where they are, as shown to users."""
    endpoints: Mapping[str, Endpoint]
    """By region."""
    streams: Sequence[RenderedStream]


@value_class
class AuditedTables:
    """The tables of an earlier audit, at a *uri* for Spark."""

    uri: str


AuditTarget = AuditedServers | Capture | AuditedTables
"""What is audited."""


class AuditProgress:
    """Receives the progress of an audit. This one tells nobody."""

    def begin(self, stage: str) -> None:
        """A new stage begins."""

    def tasks(self, progress: Any) -> None:
        """Spark's progress with the current stage."""

    def note(self, text: str) -> None:
        """Show a note to the user."""

    def keeping(self, file: Path) -> None:
        """A process in the background goes on after the audit, and writes *file*."""


class SparkEndedError(VstreamError):
    """Spark's Java process has ended, so the session cannot be used any more."""


def uri_of(place: str) -> str:
    """*place* as a URI for Spark. Without a scheme it is a local path, whatever Spark's default file system is."""
    # Spark takes the name as it is: escaped, a space would be written as %20.
    return place.rstrip("/") if "://" in place else f"{LOCAL_SCHEME}{Path(place).resolve()}"


def require_tables(place: str) -> None:
    """Raise VstreamError if *place* is a local directory without the tables of an audit: Spark takes seconds to say so."""
    if "://" not in place and not (Path(place) / "state").is_dir():
        raise VstreamError(
            f"`{place}` contains neither a capture nor tables of an audit",
            hint="`vstream scenario run` writes captures, `vstream audit --tables` writes tables",
        )


def require_tables_directory(uri: str) -> None:
    """Raise VstreamError if *uri* is a local directory with other files, which tables might overwrite, or a file."""
    place = Path(uri.removeprefix(LOCAL_SCHEME))
    if not uri.startswith(LOCAL_SCHEME) or not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not any((place / "state").glob("part-*.json")):
        problem = "is not empty and holds no audit tables" if place.is_dir() else "is not a directory"
        raise VstreamError(f"`{place}` {problem}", hint="choose another directory for the tables")


@contextmanager
def reserve_outputs(tables: str | None, html: Path | None) -> Iterator[None]:
    """
    Inside the block, no other audit on this machine writes to *tables* (a URI), if that is a local path.

    Raises VstreamError if another one does, or if *tables* or *html* cannot be written: checked now, because
    the audit may take an hour.
    """
    if html is not None and (html.is_file() or not html.exists()):
        ensure_writable(html.resolve().parent)
    if tables is None or not tables.startswith(LOCAL_SCHEME):
        yield
        return
    place = Path(tables.removeprefix(LOCAL_SCHEME))
    ensure_writable(place)
    held = os.open(place, os.O_RDONLY)
    try:
        with suppress(OSError):  # file systems that cannot lock
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise VstreamError(
                    f"another audit is writing to `{place}`", hint="wait until it ends, or name another directory"
                ) from None
        yield
    finally:
        os.close(held)


def require_streams(names: Sequence[str], streams: set[str]) -> None:
    """Raise UnknownNameError if one of *names* is not in *streams*."""
    for name in names:
        if name not in streams:
            choices = f"choose one of {', '.join(sorted(streams))}"
            raise UnknownNameError(f"there is no virtual stream `{name}`", hint=choices)


def require_no_move(topology: Topology) -> None:
    """Refuse a topology during a move: its new streams source the old ones, so the origin of a message is unknown."""
    finish_first = "finish the move, and audit what was written since with `--since` (docs/changes.md)"
    for verb, profile, hint in (
        ("to", topology.moves_to, "remove `moves_to` to audit the streams that clients use now"),
        ("from", topology.moves_from, finish_first),
    ):
        if profile is not None:
            problem = f"this topology moves {verb} `{profile.value}`: its new streams source the old ones"
            raise VstreamError(problem, hint=hint)
