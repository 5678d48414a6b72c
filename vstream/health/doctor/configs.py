"""What is wrong with what servers run with: configuration files, feature flags, versions, room for streams."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.health.doctor.finding import diagnose
from vstream.health.units import format_size, list_names
from vstream.topology.versions import format_version, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.diagnostics import Finding
    from vstream.health.snapshot import ServerSnapshot, Snapshot
    from vstream.topology.model import Topology

_MUCH = 0.8
_SHOWN = len("sha256:") + 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The configuration file of a server: the *digest* that a server has which loads it, or why that is not known."""

    path: str
    digest: str | None = None
    problem: str | None = None
    is_asked_for: bool = True
    """Whether it is to be said if its server is too old for it to be compared."""


def check(topology: Topology, facts: Snapshot, configs: Mapping[str, ConfigFile]) -> Iterator[Finding]:
    """Findings about the servers of *topology*, whose files are *configs*, by their names."""
    reached = [server for server in facts.servers if server.is_reached]
    for server in reached:
        if server.name in configs:
            yield from _file(server, configs[server.name])
        yield from _room(server)
    yield from _versions(topology, reached)
    for flag in sorted({flag for server in reached for flag in server.flags}):
        yield from _flag(flag, reached)


def count_compared(facts: Snapshot, configs: Mapping[str, ConfigFile]) -> int:
    """How many of the files were compared with what their servers have loaded."""
    return sum(
        server.config_digest is not None and server.name in configs and configs[server.name].digest is not None
        for server in facts.servers
    )


def _file(server: ServerSnapshot, file: ConfigFile) -> Iterator[Finding]:
    if file.problem is not None or server.config_digest is None:
        silent = f"a server that runs {server.version} does not say what it has loaded: from 2.12 on they do"
        if file.is_asked_for or file.problem is not None:
            yield diagnose(code="VD413", about=server.name, evidence=file.problem or silent, do="compare it yourself")
    elif file.digest is not None and file.digest != server.config_digest:
        at = f", which it did at {server.config_loaded}" if server.config_loaded else ""
        yield diagnose(
            code="VD410",
            about=server.name,
            evidence=f"it has loaded {server.config_digest[:_SHOWN]}…{at}, and `{file.path}` is {file.digest[:_SHOWN]}…",
            do="`nats-server --signal reload`, and look into its log: a refused reload is an error there. Or put the file back",
        )


def _room(server: ServerSnapshot) -> Iterator[Finding]:
    if server.storage_limit and server.storage >= _MUCH * server.storage_limit:
        yield diagnose(
            code="VD414",
            about=server.name,
            evidence=f"its streams fill {format_size(server.storage)} of the {format_size(server.storage_limit)} that they may",
            do="raise `max_file_store` there, which takes a restart, or lower the limits of streams",
        )


def _versions(topology: Topology, reached: Sequence[ServerSnapshot]) -> Iterator[Finding]:
    older: defaultdict[str, list[str]] = defaultdict(list)
    for server in reached:
        version = parse_version(server.version or "")
        if version is not None and version[:2] < topology.server_version:
            older[server.version or ""].append(server.name)
    for version_text, names in sorted(older.items()):
        yield diagnose(
            code="VD412",
            about=list_names(names),
            evidence=f'it runs {version_text}, and the topology promises `server_version: "{format_version(topology.server_version)}"`',
            do="upgrade it, or lower `server_version`",
        )


def _flag(flag: str, reached: Sequence[ServerSnapshot]) -> Iterator[Finding]:
    """Servers of one version are to agree; and what one server of a cluster writes, the others must be able to read."""
    on = [server for server in reached if server.flags.get(flag)]
    for server in on:
        off = [one.name for one in reached if one.version == server.version and one.flags.get(flag) is False]
        unknown = [one.name for one in reached if one.cluster == server.cluster and flag not in one.flags]
        said = [
            *([f"off on {list_names(off)}, which run the same version"] if off else ()),
            *([f"not known to {list_names(unknown)} in the same cluster, which run older ones"] if unknown else ()),
        ]
        if said:
            yield diagnose(
                code="VD411",
                about=server.name,
                evidence=f"`{flag}` is on there, and {' and '.join(said)}",
                do="the same `feature_flags` on all servers, and none that some of them do not know",
            )
