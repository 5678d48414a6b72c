"""Which nats-server each server of a lab runs: one for all, or another in a region or as a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.errors import UnknownNameError
from vstream.lab import binaries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vstream.topology.model import Topology

EVERYWHERE = "*"
"""Stands for all servers that nothing else is said of."""


def versions_by_server(topology: Topology, versions: Mapping[str, str]) -> Mapping[str, str]:
    """
    The version of each server, by name; without those that nothing is said of.

    *versions* are by server, by region or `EVERYWHERE`, and the nearest counts. Raises
    UnknownNameError for a name that is neither a region nor a server.
    """
    servers = {seat.server.name: seat.region for seat in topology.processes}
    regions = tuple(dict.fromkeys(servers.values()))
    for name in versions:
        if name not in {EVERYWHERE, *regions, *servers}:
            raise UnknownNameError(
                f"there is no region or server `{name}` to give a version to",
                hint=f"regions: {', '.join(regions)}; servers: {', '.join(servers)}",
            )
    return {
        server: next(versions[name] for name in (server, region, EVERYWHERE) if name in versions)
        for server, region in servers.items()
        if not versions.keys().isdisjoint((server, region, EVERYWHERE))
    }


def locate_binaries(topology: Topology, versions: Mapping[str, str]) -> Mapping[str, Path]:
    """The nats-server binary of each server, fetched where it is missing. Raises UnknownNameError as `by_server` does."""
    chosen = versions_by_server(topology, versions)
    paths = {version: binaries.locate(version) for version in dict.fromkeys(chosen.values())}
    return {server: paths[version] for server, version in chosen.items()}
