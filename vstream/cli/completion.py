"""What the shell offers for a value: the regions, streams and consumers of the topology, labs, faults, scenarios, codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from vstream.audit.codes import CHAPTER as AUDIT
from vstream.chaos.journal import read_journal
from vstream.cli import options
from vstream.cli.scenario.find import list_shipped
from vstream.errors import VstreamError
from vstream.health.doctor.examine import CHAPTER as DOCTOR
from vstream.lab.state import lab_directory
from vstream.lab.status import list_lab_names
from vstream.lint.manual import CHAPTERS
from vstream.scenario.fault_types import FAULTS, Target
from vstream.topology.model import Topology
from vstream.topology.permissions import COMMANDS


def complete(parameter: str, context: Any, incomplete: str) -> list[str]:
    """
    The values that *parameter* may have and that begin with *incomplete*, in alphabetical order.

    None where nothing can be read, such as the topology: a shell has no place for errors.
    """
    try:
        values = _VALUE_LISTERS[parameter](context)
    except (VstreamError, OSError, ValueError):
        return []
    return sorted({value for value in values if value.startswith(incomplete)})


def _read_topology(context: Any) -> Topology:
    stated = context.params
    files = stated.get("topology"), stated.get("file"), *(stated.get("files") or ()), options.default_file()
    path = Path(next(filter(None, files)))
    if str(path) == "-":
        raise VstreamError("standard input is the terminal during completion")
    return options.check_topology_file(path).require()


def _list_regions(context: Any) -> Iterable[str]:
    topology = _read_topology(context)
    lost = topology.lost if context.info_name == "failback" else ()
    return (*(region.name for region in topology.regions), *(region.name for region in lost))


def _list_servers(context: Any) -> Iterable[str]:
    return (seat.server.name for seat in _read_topology(context).all_seats)


def _list_streams(context: Any) -> Iterable[str]:
    return (stream.name for stream in _read_topology(context).streams)


def _list_consumers(context: Any) -> Iterable[str]:
    for stream in _read_topology(context).streams:
        if context.params.get("stream") in {None, stream.name}:
            yield from (consumer.name for consumer in stream.consumers)


def _list_targets(context: Any) -> Iterable[str]:
    """What a fault is for, which its declaration says; regions and servers for other commands."""
    target = FAULTS[context.info_name].target if context.info_name in FAULTS else Target.MACHINES
    if target is Target.STREAM:
        return _list_streams(context)
    servers = _list_servers(context) if target in {Target.SERVERS, Target.MACHINES} else ()
    regions = _list_regions(context) if target is not Target.SERVERS else ()
    return (*servers, *regions)


def _list_faults(context: Any) -> Iterable[str]:
    names = [context.params["lab"]] if context.params.get("lab") else list_lab_names()
    return [fault.id for name in names for fault in read_journal(lab_directory(name)).faults]


def _list_codes(_context: Any) -> Iterable[str]:
    return (page.code for chapter in (*CHAPTERS, AUDIT, DOCTOR) for page in chapter.pages)


_VALUE_LISTERS: Final[dict[str, Callable[[Any], Iterable[str]]]] = {
    "region": _list_regions,
    "lost": _list_regions,
    "also": _list_regions,
    "to": lambda context: _list_regions(context) if context.info_name in {"drain", "failover"} else (),
    "come_from": _list_regions,
    "near": _list_regions,
    "far": _list_regions,
    "stream": _list_streams,
    "streams": _list_streams,
    "consumer": _list_consumers,
    "server": lambda context: _list_servers(context) if context.info_name == "logs" else (),
    "targets": _list_targets,
    "fault": _list_faults,
    "lab": lambda _context: list_lab_names(),
    "same": lambda _context: list_lab_names(),
    "target": lambda context: _list_targets(context) if context.info_name == "drain" else (),
    "scenario": lambda _context: list_shipped(),
    "scenarios": lambda _context: list_shipped(),
    "explained": _list_codes,
    "select": _list_codes,
    "ignore": _list_codes,
    "extend_select": _list_codes,
    "commands": lambda _context: COMMANDS,
}
