"""Problems of server configurations: files that are not loaded, and feature flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vstream.findings import Severity
from vstream.formatting import summarize_names
from vstream.health.doctor.check import Drift, Issue, LiveSystem, check
from vstream.health.snapshot import ServerSnapshot, Snapshot
from vstream.value_class import value_class

_SHOWN = len("sha256:") + 12


@value_class
class ConfigFile:
    """The configuration file of a server: its *digest* when loaded, or why the digest is unknown."""

    path: str
    digest: str | None = None
    problem: str | None = None
    is_asked_for: bool = True
    """Whether to report that its server is too old for a comparison."""


def count_compared(snapshot: Snapshot, files: Mapping[str, ConfigFile]) -> int:
    """The number of files that were compared with the loaded configuration of their servers."""
    digests = {name: file.digest for name, file in files.items()}
    return sum(bool(server.config_digest and digests.get(server.name)) for server in snapshot.servers)


@check("VD410", "config-not-loaded", Severity.WARNING, drift=Drift.DIFFERENCE)
def config_not_loaded(system: LiveSystem) -> Iterator[Issue]:
    """
    A server does not run with its current configuration file.

    ## Why is this bad?
    The file was edited but not loaded, or a reload was refused, which happens if anything in the file cannot be
    reloaded (`gateway`, `listen`, `server_name`, …). The next restart changes the behaviour of the server.

    The check compares the digest of the loaded configuration, which servers from 2.12 on report (`config_digest` in
    `/varz`). It covers every value of the file and its includes, but not comments, order and spelling; values from the
    server's environment are unknown here (VD413). Files are read from the lab, or from the directory in `--configs`.

    ## What to do
    Run `nats-server --signal reload` and read the log: `Failed to reload server configuration` names the setting that
    cannot be reloaded. Then undo that change, or restart the server at a convenient time. `nats-server -t -c FILE`
    prints the digest of a file.
    """
    for server, file in _list_files(system):
        loaded = server.config_digest
        if file.problem is None and loaded is not None and file.digest not in {None, loaded}:
            at = f" (loaded at {server.config_loaded})" if server.config_loaded else ""
            yield Issue(
                about=server.name,
                evidence=f"the loaded digest is {loaded[:_SHOWN]}…{at}, but that of `{file.path}` is {str(file.digest)[:_SHOWN]}…",
                hint="run `nats-server --signal reload`, and read its log: it contains the reason of a refused reload. Or restore the file",
            )


@check("VD411", "other-flags", Severity.WARNING, drift=Drift.DIFFERENCE)
def other_flags(system: LiveSystem) -> Iterator[Issue]:
    """
    Servers run with different feature flags.

    ## Why is this bad?
    Some flags (`js_raft_delete_range`, `js_snapshot_sources`) change the messages between servers of a cluster: a
    server that does not know them fails or refuses them. Others (`js_ack_fc_v2`) change what clients see and which
    permissions they need: this then depends on the server to which a client is connected. Servers of different versions
    may have different defaults.

    ## What to do
    Use the same `feature_flags` in all configurations, and only flags that every server of the cluster knows: finish
    the upgrade first.
    """
    reached = system.snapshot.reached_servers
    for flag in sorted({flag for server in reached for flag in server.flags}):
        yield from _check_flag(flag, reached)


@check("VD413", "unread-config", Severity.NOTE, drift=Drift.UNKNOWN)
def unread_config(system: LiveSystem) -> Iterator[Issue]:
    """
    The configuration file of a server could not be compared with its loaded configuration.

    ## Why is this bad?
    It is unknown whether the file was loaded. The file is missing from the directory in `--configs`, cannot be parsed,
    or depends on the environment of the server, or the server is older than 2.12.

    ## What to do
    For a file with variables: run `nats-server -t -c FILE` in the server's environment, and compare the digest that it prints
    with `config_digest` in `/varz`.
    """
    for server, file in _list_files(system):
        silent = f"a server that runs {server.version} does not report what it has loaded; servers do from 2.12 on"
        is_silent = server.config_digest is None and file.is_asked_for
        if file.problem is not None or is_silent:
            yield Issue(about=server.name, evidence=file.problem or silent, hint="compare it yourself")


def _list_files(system: LiveSystem) -> Iterator[tuple[ServerSnapshot, ConfigFile]]:
    """Each server that answers and whose file is known."""
    for server in system.snapshot.reached_servers:
        if server.name in system.files:
            yield server, system.files[server.name]


def _check_flag(flag: str, reached: Sequence[ServerSnapshot]) -> Iterator[Issue]:
    """Servers of one version must have the same flags, and every server of a cluster must know the flags of the others."""
    for server in reached:
        if not server.flags.get(flag):
            continue
        peers = [peer for peer in reached if peer.version == server.version]
        members = [member for member in reached if member.cluster == server.cluster]
        off = [peer.name for peer in peers if peer.flags.get(flag) is False]
        ignorant = [member.name for member in members if flag not in member.flags]
        reasons = []
        if off:
            reasons.append(f"off on {summarize_names(off)}, which run the same version")
        if ignorant:
            reasons.append(f"not known to {summarize_names(ignorant)} in the same cluster, which run older versions")
        if reasons:
            yield Issue(
                about=server.name,
                evidence=f"`{flag}` is on there, and {' and '.join(reasons)}",
                hint="use the same `feature_flags` on all servers, and only flags that all of them know",
            )
