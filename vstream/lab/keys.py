"""The keys of a lab in operator mode: made when it first starts, in its own directory, and gone with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.jetstream.keyring import Keyring
from vstream.lab.state import lab_directory
from vstream.model.artifacts import OPERATOR_PATH
from vstream.model.topology import Security

if TYPE_CHECKING:
    from vstream.model.topology import Topology


def keyring(name: str) -> Keyring:
    """The keys of lab *name*, which may have none."""
    return Keyring(lab_directory(name).path / "keys")


def credentials(name: str, user: str, region: str) -> str | None:
    """The file that *user* of lab *name* logs in with in *region*, None if its servers have no operator."""
    path = keyring(name).credentials_in(region, user)
    has_operator = (lab_directory(name).conf / OPERATOR_PATH).is_file()
    return str(path) if has_operator and path else None


def signer(name: str, topology: Topology) -> Keyring | None:
    """The keys of lab *name*, complete for *topology*; None where that has no operator."""
    if topology.security is not Security.OPERATOR:
        return None
    keys = keyring(name)
    keys.complete(topology)
    return keys
