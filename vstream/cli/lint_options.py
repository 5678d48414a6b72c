"""What `lint` and `validate` take from the command line beside what is checked: a topology, overlays, a server version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from vstream.cli.lazy_group import chosen_overlays, load_late
from vstream.lint.pipeline import LintJob, TopologyInputs

if TYPE_CHECKING:
    from vstream.topology.model import ServerVersion

_LONGEST_VERSION = 12


def read_topology_inputs(job: LintJob) -> TopologyInputs:
    """The topology of *job*, and the overlays of this command. Raises VstreamError."""
    server_version = parse_version(job.settings.server_version)
    if job.topology is None and not chosen_overlays():
        return TopologyInputs(server_version=server_version)
    # Most runs need neither, and what reads them takes long to import.
    reader = load_late("vstream.cli.options")
    return TopologyInputs(
        topology=reader.check_topology_file(job.topology).require() if job.topology else None,
        server_version=server_version,
        overlays=reader.read_overlays(),
    )


def parse_version(text: str | None) -> ServerVersion | None:
    """A version such as 2.12, or None for None. Raises a usage error for anything else."""
    if text is None:
        return None
    major, _, rest = text.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    is_number = all(part.isascii() and part.isdecimal() for part in (major, minor))
    if not is_number or len(text) > _LONGEST_VERSION:
        raise typer.BadParameter(f"`{text}` is not a server version such as 2.12", param_hint="--server-version")
    return int(major), int(minor)
