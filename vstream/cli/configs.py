"""The configuration files of servers, for commands that compare them with what servers have loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.cli.servers import Servers
    from vstream.health.doctor.configs import ConfigFile
    from vstream.topology.model import Topology

ConfigsDirectory = Annotated[
    Path | None,
    typer.Option(
        "--configs",
        help="A directory with the configuration files of servers, SERVER.conf or servers/SERVER.conf, as the servers "
        "read them; a lab's own are known. Each is compared with what its server has loaded.",
        exists=True,
        file_okay=False,
    ),
]


def read(topology: Topology, where: Servers, directory: Path | None) -> Mapping[str, ConfigFile]:
    """
    The configuration files of the servers of *topology* in *directory*, or of the lab that is meant.

    Of a directory that was given, every server must have one, else its absence is the answer. Raises VstreamError
    if there is not one of them.
    """
    from vstream.lab.state import lab_directory  # noqa: PLC0415

    names = [seat.server.name for seat in topology.processes]
    if directory is None:
        lab_files = {} if where.lab is None else {name: _one(lab_directory(where.lab).conf, name) for name in names}
        return {name: replace(one, is_asked_for=False) for name, one in lab_files.items() if one is not None}
    files = {name: _one(directory, name) for name in names}
    if all(one is None for one in files.values()):
        raise VstreamError(
            f"{directory} holds no configuration of a server of `{topology.name}`",
            hint=f"it must be named after the server: {names[0]}.conf, or servers/{names[0]}.conf",
        )
    return {name: one or _absent(directory, name) for name, one in files.items()}


def _absent(directory: Path, name: str) -> ConfigFile:
    from vstream.health.doctor.configs import ConfigFile  # noqa: PLC0415

    return ConfigFile(path=str(directory), problem=f"{directory} holds neither {name}.conf nor servers/{name}.conf")


def _one(directory: Path, name: str) -> ConfigFile | None:
    path = next(
        (one for one in (directory / "servers" / f"{name}.conf", directory / f"{name}.conf") if one.exists()), None
    )
    return None if path is None else config_file(path)


def config_file(path: Path) -> ConfigFile:
    """The file at *path* with all that it includes, as a server reads it whose environment is not known."""
    from vstream.health.doctor.configs import ConfigFile  # noqa: PLC0415
    from vstream.syntax import natsconf  # noqa: PLC0415
    from vstream.syntax.natsconf.digest import digest  # noqa: PLC0415

    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        return ConfigFile(path=str(path), problem=f"{path} cannot be read: {error}")
    document = natsconf.parse(text, str(path), include=_included)
    problem = next((diagnostic for diagnostic in document.diagnostics if diagnostic.is_error), None)
    if problem is not None:
        at = f"{problem.span.file}:{problem.span.line}:{problem.span.column}: " if problem.span else ""
        return ConfigFile(path=str(path), problem=f"{at}{problem.message}")
    return ConfigFile(path=str(path), digest=digest(document))


def _included(path: str, by: str) -> tuple[str, str]:
    # To the server a leading slash makes no difference: every path is relative.
    included = Path(by).parent / path.lstrip("/")
    return str(included), _text(included)


def _text(path: Path) -> str:
    # Line breaks stay as they are: the server does not read CRLF as it reads LF.
    return path.read_bytes().decode()
