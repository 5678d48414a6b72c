"""Find the configuration files of servers, for commands that compare them with what is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from vstream.errors import VstreamError
from vstream.health.doctor.configs import ConfigFile
from vstream.lab.state import lab_directory
from vstream.servers.find_servers import Servers
from vstream.syntax import natsconf
from vstream.syntax.natsconf.digest import digest
from vstream.topology.model import Topology


def read_configs(topology: Topology, servers: Servers, directory: Path | None) -> Mapping[str, ConfigFile]:
    """
    The configuration files of the servers of *topology*, in *directory* or in the directory of their lab.

    A *directory* must have a file for every server: a missing file is a problem. Raises VstreamError if it has none.
    """
    names = [seat.server.name for seat in topology.all_seats]
    if directory is None:
        lab_files = {} if servers.lab is None else _read_all(lab_directory(servers.lab).conf, names)
        return {name: replace(file, is_asked_for=False) for name, file in lab_files.items()}
    files = _read_all(directory, names)
    if not files:
        raise VstreamError(
            f"{directory} holds no configuration of a server of `{topology.name}`",
            hint=f"a file must be named after its server: {names[0]}.conf, or servers/{names[0]}.conf",
        )
    return {name: files.get(name) or _report_absence(directory, name) for name in names}


def _read_all(directory: Path, names: list[str]) -> dict[str, ConfigFile]:
    files = {}
    for name in names:
        candidates = (directory / "servers" / f"{name}.conf", directory / f"{name}.conf")
        path = next((candidate for candidate in candidates if candidate.exists()), None)
        if path is not None:
            files[name] = read_config(path)
    return files


def _report_absence(directory: Path, name: str) -> ConfigFile:
    return ConfigFile(path=str(directory), problem=f"{directory} holds neither {name}.conf nor servers/{name}.conf")


def read_config(path: Path) -> ConfigFile:
    """The file at *path* with all that it includes, as a server reads it whose environment is not known."""
    try:
        text = _read_text(path)
    except (OSError, ValueError) as error:
        return ConfigFile(path=str(path), problem=f"{path} cannot be read: {error}")
    document = natsconf.parse(text, str(path), include=_read_included)
    problem = next((finding for finding in document.findings if finding.is_error), None)
    if problem is not None:
        position = f"{problem.about}: " if problem.span else ""
        return ConfigFile(path=str(path), problem=f"{position}{problem.message}")
    return ConfigFile(path=str(path), digest=digest(document))


def _read_included(path: str, by: str) -> tuple[str, str]:
    # To the server a leading slash makes no difference: every path is relative.
    included = Path(by).parent / path.lstrip("/")
    return str(included), _read_text(included)


def _read_text(path: Path) -> str:
    # Line breaks stay as they are: the server does not read CRLF as it reads LF.
    return path.read_bytes().decode()
