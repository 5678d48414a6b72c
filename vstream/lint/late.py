"""
The one place where lint imports late: what reads topologies and scenarios takes longer to import than a small file to check.

Most runs have neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vstream.lint.checked_files import CheckedFiles, LintContext
    from vstream.lint.parse_files import Source
    from vstream.topology.model import ServerVersion, Topology
    from vstream.topology.replication import PhysicalStream


def check_topology_and_bundle(
    source: Source, context: LintContext, server_version: ServerVersion | None
) -> CheckedFiles:
    """What is wrong with a topology, and with what it renders to."""
    from vstream.lint import topology_file

    return topology_file.check_topology_and_bundle(source, context, server_version)


def check_scenario_file(source: Source, context: LintContext) -> CheckedFiles:
    """What is wrong with a scenario, and with its topology."""
    from vstream.lint import check_scenario

    return check_scenario.check_scenario_file(source, context)


def index_physical_streams(topology: Topology) -> dict[str, PhysicalStream]:
    """The physical streams of *topology*, by name."""
    from vstream.topology import replication

    return replication.index_physical_streams(topology)
