"""The rendered bundle on disk: complete, accepted by the servers, and known to be what they run with."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from vstream.errors import LabError
from vstream.files import write_private
from vstream.lab.server import find_config_problem
from vstream.lab.state import LabDirectory
from vstream.topology.bundle import Artifact

_SERVERS = "servers/"
_SERVER_FILES = (".conf", ".cfg")
"""Files that servers read. The rest of a bundle (streams, contexts) is for people and for `vstream apply`."""
_DIALLED = re.compile(r"^[ \t]*(?:gateways|routes): \[\n.*?^[ \t]*\]\n", re.MULTILINE | re.DOTALL)
"""Whom a server dials, as vstream's own template writes it."""


def replace_files(conf: Path, artifacts: Sequence[Artifact]) -> None:
    """Make *conf* hold exactly *artifacts*. Files that are already right are left alone."""
    for artifact in artifacts:
        path = _path_in(conf, artifact)
        if _read_text(path) == artifact.text:
            continue
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if artifact.path.endswith(_SERVER_FILES):
            write_private(path, artifact.text)
        else:
            # Thousands of stream files: if the power fails half way, the next call writes what is missing.
            path.write_text(artifact.text, encoding="utf-8", newline="")
    paths = {_path_in(conf, artifact) for artifact in artifacts}
    for path in sorted(conf.rglob("*")):
        if path.is_file() and path not in paths:
            path.unlink()


def list_differing_configs(conf: Path, artifacts: Sequence[Artifact]) -> tuple[str, ...]:
    """
    Paths of the server configurations in *artifacts* that differ in *conf*.

    Whom a server dials does not count: new servers dial it. Nor do mappings, which are loaded while servers run, and
    configurations that *conf* does not hold.
    """
    paths = []
    for artifact in artifacts:
        text = _read_text(_path_in(conf, artifact)) if artifact.path.startswith(_SERVERS) else None
        if text is not None and _DIALLED.sub("", text) != _DIALLED.sub("", artifact.text):
            paths.append(artifact.path)
    return tuple(paths)


def keep_loaded_files(conf: Path, artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """*artifacts*, except that files read by servers come from *conf*, which the servers run with."""
    kept_files = []
    for artifact in artifacts:
        text = _read_text(_path_in(conf, artifact)) if artifact.path.endswith(_SERVER_FILES) else None
        kept_files.append(artifact if text is None else dataclasses.replace(artifact, text=text))
    return tuple(kept_files)


def keep_server_configs(conf: Path, artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """*artifacts*, except that existing server configurations come from *conf*."""
    paths = {f"{_SERVERS}{path.name}": path for path in (conf / "servers").glob("*.conf")}
    held = [Artifact(path=name, text=path.read_text(encoding="utf-8")) for name, path in paths.items()]
    return (*(artifact for artifact in artifacts if artifact.path not in paths), *held)


async def check_with_server(
    binaries: Mapping[str, Path], conf: Path, on_checked: Callable[[int], None] = lambda _: None
) -> None:
    """
    Ask `nats-server -t` about the configuration of each server below *conf*; *binaries* are by server.

    Raises LabError with the server's own words about the first that is refused.
    """
    checked = 0
    processors = asyncio.Semaphore(os.cpu_count() or 1)

    async def find_problem(name: str) -> str | None:
        nonlocal checked
        async with processors:
            refusal = await find_config_problem(binaries[name], conf / "servers" / f"{name}.conf")
        checked += 1
        on_checked(checked)
        return refusal

    for name, refusal in zip(binaries, await asyncio.gather(*map(find_problem, binaries)), strict=True):
        if refusal is not None:
            raise LabError(
                f"nats-server refuses the configuration of server `{name}`: {refusal.replace(f'{conf}{os.sep}', '')}",
                hint="the templates or the topology's settings are wrong; `vstream lint` says more",
            )


async def replace_if_valid(
    directory: LabDirectory, artifacts: Sequence[Artifact], *, binaries: Mapping[str, Path]
) -> None:
    """
    Replace the bundle of a lab, unless a server would refuse its part of it.

    Raises LabError with the server's own words in that case: the old files are untouched.
    """
    candidate = directory.path / "conf.candidate"
    shutil.rmtree(candidate, ignore_errors=True)
    candidate.mkdir(mode=0o700)
    try:
        replace_files(candidate, artifacts)
        names = [path.stem for path in sorted((candidate / "servers").glob("*.conf"))]
        await check_with_server({name: binaries[name] for name in names}, candidate)
    finally:
        shutil.rmtree(candidate, ignore_errors=True)
    replace_files(directory.conf, artifacts)


def _path_in(conf: Path, artifact: Artifact) -> Path:
    path = PurePosixPath(artifact.path)
    if path.is_absolute() or ".." in path.parts:
        raise LabError(f"the bundle holds a file outside of its directory: `{artifact.path}`")
    return conf / path


def _read_text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
