"""The input of `vstream audit`: servers, a scenario's capture, or kept tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vstream.audit import load_audit
from vstream.audit.request import STAGES, AuditedServers, AuditRequest, check_tables_directory, uri_of
from vstream.cli import options
from vstream.cli.servers import build_bundle, endpoints_as_user, find_servers
from vstream.errors import VstreamError
from vstream.jetstream.endpoints import check_endpoints
from vstream.topology.accounts import AUDIT_USER
from vstream.topology.model import Topology

if TYPE_CHECKING:
    from vstream.audit.run import CaptureSource, TablesSource, TopologySource


def open_source(
    target: str, wanted: AuditRequest, *, templates: Path | None = None, lab: str | None = None
) -> TopologySource | CaptureSource | TablesSource:
    """The source for *target*. Raises VstreamError if it cannot be audited, BadParameter for options that do not apply."""
    path = Path(target)
    is_directory = "://" in target or path.is_dir()
    is_capture = is_directory and (path / "manifest.json").is_file()
    for value, option in ((wanted.since_ns, "--since"), (wanted.sample, "--sample")):
        if is_directory and value is not None:
            raise typer.BadParameter("it works only for a topology, not for captures and tables", param_hint=option)
    if wanted.begin != STAGES[0] and (not is_directory or is_capture):
        raise typer.BadParameter("it works only for the tables of an earlier audit", param_hint="--from")
    if wanted.tables is not None:
        check_tables_directory(wanted.tables)
    if is_capture:
        return load_audit().capture(wanted, path)
    if is_directory:
        if wanted.streams and wanted.tables == uri_of(target):
            raise typer.BadParameter(
                "it would replace the audit with a subset of its streams: choose another directory",
                param_hint="--tables",
            )
        return load_audit().tables(wanted, target)
    servers = _servers(path, wanted, templates, lab)
    return load_audit().servers(wanted, servers)


def _servers(path: Path, wanted: AuditRequest, templates: Path | None, lab: str | None) -> AuditedServers:
    topology = options.load_topology(path).require()
    _check_no_move(topology)
    existing = sorted(stream.name for stream in topology.streams)
    if unknown := [name for name in wanted.streams if name not in existing]:
        problem = f"`{unknown[0]}` is not a stream of {path}: {', '.join(existing)}"
        raise typer.BadParameter(problem, param_hint="--stream")
    target = find_servers(topology, lab)
    endpoints = endpoints_as_user(topology, target, AUDIT_USER)
    check_endpoints(topology, endpoints)
    streams = build_bundle(topology, target, templates).streams
    return AuditedServers(
        topology=topology,
        description=target.description,
        endpoints=endpoints,
        streams=[stream for stream in streams if not wanted.streams or stream.virtual in wanted.streams],
    )


def _check_no_move(topology: Topology) -> None:
    """Refuse a topology during a move: its new streams source the old ones, so the origin of a message is unknown."""
    finish_first = "finish the move, and audit what was written since with `--since` (docs/changes.md)"
    for verb, profile, hint in (
        ("to", topology.moves_to, "remove `moves_to` to audit the streams that clients use now"),
        ("from", topology.moves_from, finish_first),
    ):
        if profile is not None:
            problem = f"this topology moves {verb} `{profile.value}`: its new streams source the old ones"
            raise VstreamError(problem, hint=hint)
