"""The keys of a lab in operator mode: created at its first start, in its own directory, and removed with it."""

from __future__ import annotations

from typing import Any

from vstream.jetstream.keyring import Keyring, default_key_directory
from vstream.lab.state import lab_directory
from vstream.topology.bundle import ACCOUNTS_PATH, OPERATOR_PATH, TLS_PATH
from vstream.topology.model import Security, Topology
from vstream.topology.signing import CA_FILE, user_key


def keyring(name: str) -> Keyring:
    """The keys of lab *name*, which may have none."""
    return Keyring(lab_directory(name).keys)


def find_login_files(name: str, user: str) -> dict[str, Any]:
    """The Endpoint fields that *user* of lab *name* logs in with; empty if that is a password, or nothing."""
    ring = keyring(name)
    conf = lab_directory(name).conf
    # The servers show a certificate of the lab's own authority then, not of the one that signed the users'.
    record = lab_directory(name).read()
    has_own_tls = record is not None and record.transport is not None
    if (conf / OPERATOR_PATH).is_file() and ring.credentials_path(user).is_file():
        return {"creds": str(ring.credentials_path(user))}
    certificate, key = ring.certificate_paths(user)
    if certificate.is_file() and (has_own_tls or (conf / TLS_PATH).is_file()):
        ca = {} if has_own_tls else {"tls_ca": str(ring.directory / CA_FILE)}
        return {**ca, "tls_cert": str(certificate), "tls_key": str(key)}
    if not (conf / ACCOUNTS_PATH).is_file() or not ring.seed_path(user).is_file():
        return {}
    is_known = ring.public_key(user_key(user)) in (conf / ACCOUNTS_PATH).read_text(encoding="utf-8")
    return {"nkey": str(ring.seed_path(user))} if is_known else {}


def provide_keyring(name: str, topology: Topology) -> Keyring | None:
    """
    The keys of lab *name*, complete for *topology*; None where that has none.

    Certificates are taken from where those of the topology are. Raises VstreamError if one is not there.
    """
    keys = keyring(name)
    if topology.security is Security.CERTIFICATES:
        keys.copy_certificates(topology, default_key_directory(topology.name))
    if not topology.security.has_keys:
        return None
    keys.ensure_keys(topology)
    return keys
