"""Arguments and options that several commands have: the topology file, templates, a lab."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import typer

from vstream import resources
from vstream.cli import lazy_group
from vstream.cli.views import console
from vstream.errors import InvalidInputError, UnknownNameError, VstreamError
from vstream.files import leaves_repository, state_directory
from vstream.lint.check_topology import CheckedTopology, check_topology
from vstream.syntax.yaml import MAX_BYTES
from vstream.topology.model import Topology, VirtualStream
from vstream.value_class import value_class


def _require_templates(directory: Path | None) -> Path | None:
    built_in = resources.templates()
    if directory and not any((directory / file.relative_to(built_in)).is_file() for file in built_in.rglob("*.*")):
        raise typer.BadParameter("has none in the place of a built-in one: see `vstream render --eject`")
    return directory


TopologyFile = Annotated[
    Path, typer.Argument(help="The topology file; `-` reads standard input.", metavar="FILE", envvar="VSTREAM_TOPOLOGY")
]
TemplatesDirectory = Annotated[
    Path | None,
    typer.Option(
        "--templates",
        help="A directory with templates: each replaces the built-in one of the same name.",
        # Else a typing error would silently mean the built-in ones.
        callback=_require_templates,
        exists=True,
        file_okay=False,
    ),
]
LabName = Annotated[
    str | None,
    typer.Option("--lab", help="Use this lab: its servers, and its topology where none is here.", envvar="VSTREAM_LAB"),
]
ServedTopology = Annotated[
    Path, typer.Option("--topology", "-t", help="The topology that the servers run.", envvar="VSTREAM_TOPOLOGY")
]
StreamNames = Annotated[
    list[str] | None, typer.Option("--stream", "-s", help="Only this virtual stream. Can be repeated.")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        help="Seconds to wait, and one more for each 1,000 streams. What has not answered then is reported as silent.",
        min=0.5,
        max=300,
    ),
]
CheckInterval = Annotated[float, typer.Option(help="With --watch: seconds between two checks.", min=0.2, max=3600)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it. Without this, only show what would be done.")]
TextOrJson = Annotated[Literal["text", "json"], typer.Option("--format", help="How the result is written.")]
TextJsonOrJunit = Annotated[
    Literal["text", "json", "junit"], typer.Option("--format", help="How the result is written.")
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html", help="Also write one self-contained HTML page to this file.", metavar="FILE", dir_okay=False
    ),
]
ServerVersion = Annotated[
    str | None, typer.Option("--server-version", help="The nats-server of all servers, such as 2.12.8.")
]
ConfigsDirectory = Annotated[
    Path | None,
    typer.Option(
        "--configs",
        help="A directory with the configuration files of servers, as the servers read them: SERVER.conf or "
        "servers/SERVER.conf. Each is compared with what its server has loaded. A lab needs none.",
        exists=True,
        file_okay=False,
    ),
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(
        "--log-format",
        help="How notes on standard error are written: `json` is one object a line.",
        envvar="VSTREAM_LOG_FORMAT",
    ),
]
Quiet = Annotated[
    bool | None,
    typer.Option("--quiet/--verbose", "-q/-v", help="-q: only warnings and errors are said; -v: each look, too."),
]
Adopt = Annotated[
    list[str] | None,
    typer.Option("--adopt", help="Take over this stream, which vstream did not create (`all` for every one needed)."),
]
Lost = Annotated[
    list[str] | None,
    typer.Option(
        "--lost",
        metavar="REGION",
        help="Give up this region, which is lost for good, with everything stored only there. "
        "The topology's streams must not be there any more.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every mapping rule and account entry.")]
GateTimeout = Annotated[float, typer.Option("--gate-timeout", help="Wait this long for each gate, such as 5m.", min=0)]
RegionName = Annotated[str, typer.Argument(help="The region.", metavar="REGION")]
ShipWith = Annotated[
    str | None,
    typer.Option("--ship-with", metavar="COMMAND", help="As with `apply`: run this for each server before it reloads."),
]
DEFAULT_FILE = Path("topology.yaml")
Made = TypeVar("Made")


def default_file() -> Path:
    """The topology file of commands whose argument may be other files, too: VSTREAM_TOPOLOGY, or `topology.yaml`."""
    return Path(os.environ.get("VSTREAM_TOPOLOGY") or DEFAULT_FILE)


def refuse_options(reason: str, chosen: Mapping[str, Any]) -> None:
    """Raises BadParameter if one of *chosen*, by option, is set: *reason* begins with `has no effect with` or `needs`."""
    for option, value in chosen.items():
        if value:
            raise typer.BadParameter(reason, param_hint=option)


def read_bytes(path: Path, *, limit: int) -> bytes:
    """At most *limit* bytes of a file, or of standard input; all if it is negative. Raises VstreamError."""
    if str(path) == "-":
        return sys.stdin.buffer.read(limit)
    if leaves_repository(path):
        raise VstreamError(f"{path} is a link out of the repository", hint="name the file that it leads to")
    try:
        with path.open("rb") as stream:
            return stream.read(limit)
    except FileNotFoundError:
        hint = "name the file, or `vstream init` writes one" if path == DEFAULT_FILE else "check the path"
        if path == DEFAULT_FILE and any((state_directory() / "labs").glob("*/lab.json")):
            hint += "; where a command has it, `--lab NAME` takes the file of a lab"
        raise VstreamError(f"{path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise VstreamError(f"{path} is a directory", hint="name a file in it") from None
    except OSError as error:
        raise VstreamError(f"{path} cannot be read: {error.strerror}", hint="who may read it?") from None


@value_class
class TopologySource:
    """What a topology is read from: its file, and the overlays of this command."""

    file: str
    content: bytes
    overlays: Mapping[str, bytes]

    def parse(self) -> CheckedTopology:
        """The topology, and everything that is wrong with it."""
        return check_topology(self.content, self.file, self.overlays)


def read_topology_file(path: Path) -> TopologySource:
    """Read a topology file, or standard input, and the overlays of this command. Raises VstreamError."""
    content = read_bytes(path, limit=MAX_BYTES + 1)
    return TopologySource(file="<stdin>" if str(path) == "-" else str(path), content=content, overlays=read_overlays())


def check_topology_file(path: Path) -> CheckedTopology:
    """Read and check a topology file, with the overlays of this command. Raises VstreamError if it cannot be read."""
    return read_topology_file(path).parse()


class FollowedTopology(Generic[Made]):
    """What *make* makes of a topology: again whenever its file or an overlay has changed, as a failover changes it."""

    def __init__(self, file: Path, make: Callable[[Topology], Made]) -> None:
        """Raises VstreamError where nothing can be made of it now."""
        self.tell: Callable[[str], object] = console.print_note
        self._file, self._make = file, make
        # Standard input and pipes can be read once.
        files = (file, *lazy_group.chosen_overlays())
        self._is_fixed = not all(path.is_file() and str(path) != "-" for path in files)
        self._source = read_topology_file(file)
        self._loaded = self._source.parse()
        self._latest = make(self._loaded.require())
        self._is_used, self._problem = True, ""

    def latest(self) -> Made:
        """What is made of the files as they are, or as they were when that was possible; each change is told once."""
        console.print_detail(f"looking at the servers of {self._file}")
        problem = ""
        try:
            self._follow()
        except InvalidInputError as error:
            problem = f"{error.message}: see `vstream validate {self._file}`"
        except VstreamError as error:
            problem = error.message
        if problem and problem != self._problem:
            self.tell(f"going on with the topology as it was: {problem}")
        self._problem = problem
        return self._latest

    def _follow(self) -> None:
        source = self._source if self._is_fixed else read_topology_file(self._file)
        if source != self._source:
            self._source, self._loaded, self._is_used = source, source.parse(), False
        if not self._is_used:
            self._latest = self._make(self._loaded.require())
            self._is_used = True
            self.tell(f"{self._file} has changed: going on with what it says now")


def read_overlays() -> dict[str, bytes]:
    """The content of each `--overlay` by its name, in order. Raises VstreamError."""
    return {str(path): read_bytes(path, limit=MAX_BYTES + 1) for path in lazy_group.chosen_overlays()}


def choose_streams(topology: Topology, names: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the virtual streams that `--stream` asks for, or of all. Raises UnknownNameError."""
    streams = tuple(stream.name for stream in topology.streams)
    return choose_names("virtual stream", streams, names)


def choose_regions(topology: Topology, names: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the regions that `--region` asks for, or of all. Raises UnknownNameError."""
    return choose_names("region", tuple(region.name for region in topology.regions), names)


def choose_names(kind: str, existing: tuple[str, ...], names: Sequence[str] | None) -> tuple[str, ...]:
    """*names*, which must exist, or all that do. Raises UnknownNameError."""
    for name in names or ():
        if name not in existing:
            raise UnknownNameError(f"there is no {kind} `{name}`", hint=f"choose one of {', '.join(existing)}")
    return tuple(names or existing)


def require_virtual_stream(topology: Topology, name: str, regions: Iterable[str] = ()) -> VirtualStream:
    """The virtual stream *name*. Raises UnknownNameError if there is none, or it is not in all of *regions*."""
    choose_streams(topology, [name])
    stream = topology.stream(name)
    for region in regions:
        if region not in stream.regions:
            raise UnknownNameError(
                f"`{name}` is not in region `{region}`", hint=f"it is in {', '.join(stream.regions)}"
            )
    return stream
