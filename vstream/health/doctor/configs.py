"""What is wrong with what servers run with: configuration files, feature flags, versions, room for streams."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.health.doctor.check import Drift, Patient, Symptom, check
from vstream.health.units import format_size, list_names
from vstream.topology.versions import format_version, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.health.snapshot import ServerSnapshot, Snapshot

_SHOWN = len("sha256:") + 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The configuration file of a server: the *digest* that a server has which loads it, or why that is not known."""

    path: str
    digest: str | None = None
    problem: str | None = None
    is_asked_for: bool = True
    """Whether to say so if its server is too old for a comparison."""


def count_compared(snapshot: Snapshot, files: Mapping[str, ConfigFile]) -> int:
    """How many of the files were compared with what their servers have loaded."""
    digests = {name: file.digest for name, file in files.items()}
    return sum(bool(server.config_digest and digests.get(server.name)) for server in snapshot.servers)


@check("VD410", "config-not-loaded", Severity.WARNING, drift=Drift.DIFFERENCE)
def config_not_loaded(patient: Patient) -> Iterator[Symptom]:
    """
    The configuration file of a server is not what the server runs with.

    ## Why is this bad?
    It was edited and not loaded, or a reload was refused: as a whole, if anything in the file cannot be reloaded (`gateway`,
    `listen`, `server_name`, …). With the next restart the server does something else than now.

    Compared is the digest that servers from 2.12 on give of what they have loaded (`config_digest` in `/varz`). It covers every
    value of the file and of all that it includes, with comments, order and spelling left out; values that depend on the
    server's environment cannot be known here (VD413). Files are read where a lab runs, or where `--configs` says they are.

    ## What to do
    `nats-server --signal reload`, and look into its log: `Failed to reload server configuration` says what cannot be. Then put
    that back, or restart the server when it suits. `nats-server -t -c FILE` prints the digest of a file.
    """
    for server, file in _files(patient):
        loaded = server.config_digest
        if file.problem is None and loaded is not None and file.digest not in {None, loaded}:
            at = f", which it did at {server.config_loaded}" if server.config_loaded else ""
            yield Symptom(
                about=server.name,
                evidence=f"it has loaded {loaded[:_SHOWN]}…{at}, and `{file.path}` is {str(file.digest)[:_SHOWN]}…",
                do="`nats-server --signal reload`, and look into its log: a refused reload is an error there. "
                "Or put the file back",
            )


@check("VD411", "other-flags", Severity.WARNING, drift=Drift.DIFFERENCE)
def other_flags(patient: Patient) -> Iterator[Symptom]:
    """
    Servers run with different feature flags.

    ## Why is this bad?
    Some flags (`js_raft_delete_range`, `js_snapshot_sources`) change what servers of a cluster send each other: one that does
    not know it fails, or refuses it. Others (`js_ack_fc_v2`) change what clients see, and permissions must allow: it then
    depends on the server that a client is connected to. Servers of different versions may have different defaults.

    ## What to do
    The same `feature_flags` in all configurations, and none that a server of the cluster does not know yet: finish the
    upgrade first.
    """
    reached = _answering(patient)
    for flag in sorted({flag for server in reached for flag in server.flags}):
        yield from _flag_symptoms(flag, reached)


@check("VD412", "too-old", drift=Drift.DIFFERENCE)
def too_old(patient: Patient) -> Iterator[Symptom]:
    """
    A server is older than the `server_version` that the topology promises.

    ## Why is this bad?
    What vstream renders for newer servers is refused there, or ignored: a stream that this server leads then does something
    else. `plan` and `apply` refuse to work over a connection to it.

    ## What to do
    Upgrade it, or say the older version in the topology and look at what `vstream validate` says then.
    """
    older: defaultdict[str, list[str]] = defaultdict(list)
    for server in _answering(patient):
        version = parse_version(server.version or "")
        if version is not None and version[:2] < patient.topology.server_version:
            older[server.version or ""].append(server.name)
    promised = format_version(patient.topology.server_version)
    for version_text, names in sorted(older.items()):
        yield Symptom(
            about=list_names(names),
            evidence=f'it runs {version_text}, and the topology promises `server_version: "{promised}"`',
            do="upgrade it, or lower `server_version`",
        )


@check("VD413", "unread-config", Severity.NOTE, drift=Drift.UNKNOWN)
def unread_config(patient: Patient) -> Iterator[Symptom]:
    """
    The configuration file of a server could not be compared with what it runs.

    ## Why is this bad?
    Nothing: whether the file was loaded is just not known. It is missing where `--configs` says, cannot be parsed, depends on
    the environment of the server, or the server is older than 2.12.

    ## What to do
    For a file with variables: run `nats-server -t -c FILE` in the server's environment, and compare the digest that it prints
    with `config_digest` in `/varz`.
    """
    for server, file in _files(patient):
        silent = f"a server that runs {server.version} does not say what it has loaded: from 2.12 on they do"
        is_silent = server.config_digest is None and file.is_asked_for
        if file.problem is not None or is_silent:
            yield Symptom(about=server.name, evidence=file.problem or silent, do="compare it yourself")


@check("VD414", "little-room", Severity.WARNING)
def little_room(patient: Patient) -> Iterator[Symptom]:
    """
    JetStream of a server has used more than four fifths of the storage that it may use.

    ## Why is this bad?
    When it is full, streams there refuse every publish ("insufficient resources"), read streams take nothing any more, and no
    stream can be made. Without `max_file_store` the limit is three quarters of what was free when the server started.

    ## What to do
    Raise `max_file_store`, which takes a restart, or lower `max_age` and `max_bytes` of streams.
    """
    for server in _answering(patient):
        if server.is_nearly_full:
            used, limit = format_size(server.storage), format_size(server.storage_limit)
            yield Symptom(
                about=server.name,
                evidence=f"its streams fill {used} of the {limit} that they may",
                do="raise `max_file_store` there, which takes a restart, or lower the limits of streams",
            )


def _answering(patient: Patient) -> list[ServerSnapshot]:
    return [server for server in patient.snapshot.servers if server.is_reached]


def _files(patient: Patient) -> Iterator[tuple[ServerSnapshot, ConfigFile]]:
    """Each server that answers and whose file is known."""
    for server in _answering(patient):
        if server.name in patient.files:
            yield server, patient.files[server.name]


def _flag_symptoms(flag: str, reached: Sequence[ServerSnapshot]) -> Iterator[Symptom]:
    """Servers of one version are to agree; and what one server of a cluster writes, the others must be able to read."""
    for server in reached:
        if not server.flags.get(flag):
            continue
        peers = [peer for peer in reached if peer.version == server.version]
        members = [member for member in reached if member.cluster == server.cluster]
        off = [peer.name for peer in peers if peer.flags.get(flag) is False]
        ignorant = [member.name for member in members if flag not in member.flags]
        reasons = []
        if off:
            reasons.append(f"off on {list_names(off)}, which run the same version")
        if ignorant:
            reasons.append(f"not known to {list_names(ignorant)} in the same cluster, which run older ones")
        if reasons:
            yield Symptom(
                about=server.name,
                evidence=f"`{flag}` is on there, and {' and '.join(reasons)}",
                do="the same `feature_flags` on all servers, and none that some of them do not know",
            )
