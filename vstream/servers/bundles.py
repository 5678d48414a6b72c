"""What the servers of a topology get: its bundle, signed with its keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vstream.errors import VstreamError
from vstream.formatting import summarize_names
from vstream.jetstream.keyring import Keyring, default_key_directory
from vstream.lab import keys
from vstream.lab.endpoints import list_addresses
from vstream.render.pipeline import render_bundle
from vstream.servers.find_servers import Servers
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology
from vstream.topology.server_address import ServerAddress


def provide_signer(topology: Topology, lab_name: str | None) -> Keyring | None:
    """
    The keys of *topology* for its servers, or for those of lab *lab_name*; None if its users have no keys.

    A lab gets the keys that it lacks. Elsewhere, VstreamError is raised if one is missing.
    """
    if not topology.security.has_keys:
        return None
    if lab_name is not None:
        return keys.provide_keyring(lab_name, topology)
    ring = Keyring(default_key_directory(topology.name))
    if missing := ring.find_missing(topology):
        raise VstreamError(
            f"topology `{topology.name}` needs keys that are not in {ring.directory}: {summarize_names(list(missing))}",
            hint="`vstream keys create` makes what is missing; $VSTREAM_KEYS names another directory",
        )
    return ring


def provide_bundle(topology: Topology, servers: Servers, templates: Path | None, *, with_files: bool = True) -> Bundle:
    """
    The bundle of *topology* as *servers* need it: those of a lab have addresses of their own.

    It is signed with their keys; a lab gets those that it lacks, on its disk.

    Without *with_files* it lacks the files of servers, if they are of vstream's own templates: enough to compare the rest.
    """
    seats = {seat.server.name for seat in topology.all_seats}
    addresses = None
    if servers.lab is not None:
        addresses = tuple(address for address in list_addresses(servers.lab) if address.server.name in seats)
    signer = provide_signer(topology, servers.lab)
    written = None if with_files or templates else ()
    return render_bundle(topology, addresses=addresses, written=written, templates=templates, signer=signer)


def render_lab(name: str, topology: Topology, templates: Path | None, addresses: Sequence[ServerAddress]) -> Bundle:
    """The bundle of *topology* for the lab *name*, which has or gets servers at *addresses*."""
    signer = keys.provide_keyring(name, topology)
    return render_bundle(topology, addresses=addresses, templates=templates, signer=signer)
