"""What an audit is asked for, and what is checked before anything is read. Imports no Spark."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vstream.errors import VstreamError
from vstream.files import check_writable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.topology.bundle import RenderedStream
    from vstream.topology.model import Endpoint, Topology

STAGES = ("normalise", "reconcile", "judge")
"""Those after the extraction, in their order."""
SMALL = 1_000_000
"""Messages below which it takes Spark longer to get fast than to get done."""
HERE = "file://"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What was asked for."""

    streams: tuple[str, ...]
    since_ns: int | None
    """How far back, in nanoseconds."""
    sample: int | None
    tables: str | None
    begin: str
    publish: str | None
    """A schema of Spark's catalog for the results."""
    publish_as: str
    state: Path | None = None
    """Where what was read is kept for the next audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedServers:
    """The servers of a topology, and how they are reached."""

    topology: Topology
    description: str
    """Where they are, for people."""
    endpoints: Mapping[str, Endpoint]
    """By region."""
    streams: Sequence[RenderedStream]


class AuditProgress(Protocol):
    """Who is told how far an audit is."""

    def begin(self, stage: str) -> None:
        """Something else is done from now on."""

    def tasks(self, progress: Any) -> None:
        """How far Spark is with it."""

    def note(self, text: str) -> None:
        """Tell something to whoever is waiting."""


class SparkEndedError(VstreamError):
    """Nothing can be done with this Spark any more."""


class UnknownStreamError(VstreamError):
    """The requested virtual stream does not exist."""


def uri_of(place: str) -> str:
    """*place* as Spark has to be told it: without a scheme it is here, whatever Spark's own file system is."""
    # Spark takes the name as it is: escaped, a space would be written as %20.
    return place.rstrip("/") if "://" in place else f"{HERE}{Path(place).resolve()}"


def check_tables_directory(uri: str) -> None:
    """Raise VstreamError if *uri* is a local path with other contents, which tables might overwrite."""
    place = Path(uri.removeprefix(HERE))
    if not uri.startswith(HERE) or not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not any((place / "state").glob("part-*.json")):
        problem = "is not empty and holds no audit tables" if place.is_dir() else "is not a directory"
        raise VstreamError(f"`{place}` {problem}", hint="choose another directory for the tables")


@contextmanager
def reserve_outputs(tables: str | None, html: Path | None) -> Iterator[None]:
    """
    Inside of the block, no other audit writes *tables* (a URI) where this one does, if that is on this machine.

    Raises VstreamError if another one does, or if *tables* or *html* cannot be written here: it may take
    an hour to have something to write.
    """
    if html is not None and (html.is_file() or not html.exists()):
        check_writable(html.resolve().parent)
    if tables is None or not tables.startswith(HERE):
        yield
        return
    place = Path(tables.removeprefix(HERE))
    check_writable(place)
    held = os.open(place, os.O_RDONLY)
    try:
        with suppress(OSError):  # file systems that cannot lock
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise VstreamError(
                    f"another audit is writing its tables into `{place}`", hint="wait for it, or name a new directory"
                ) from None
        yield
    finally:
        os.close(held)


def check_streams(given: Sequence[str], known: set[str]) -> None:
    """Raise UnknownStreamError for one of *given* that is not *known*."""
    for name in given:
        if name not in known:
            raise UnknownStreamError(f"there is no virtual stream `{name}`; there are {', '.join(sorted(known))}")
