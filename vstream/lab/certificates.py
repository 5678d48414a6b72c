"""
The certificates of a lab: one that all its servers show, and the authority that signed it.

They are created once and removed with the lab. The authority's key is never stored, so nothing else can be signed by
it: whoever has a certificate of it is a server of this lab.

A separate program creates them (see `make_certificates`): loading the library takes longer than using it, and no other
command needs it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from vstream.errors import LabError
from vstream.lab.state import LabDirectory
from vstream.topology.model import Security, Topology, Transport
from vstream.topology.signing import CA_FILE, SERVER_CERTIFICATE, SERVER_KEY

_PROGRAM = "vstream.lab.make_certificates"
_PROGRAM_TIMEOUT = 30.0


async def provide_transport(directory: LabDirectory, topology: Topology) -> Transport:
    """The files that the servers of a lab of *topology* speak TLS with, made if they are missing. Raises LabError."""
    transport = _make_transport(directory, topology)
    if not _exists(transport):
        await _run_make_certificates(directory.certificates)
    return transport


def _exists(transport: Transport) -> bool:
    return Path(transport.cert_file).is_file()


def _make_transport(directory: LabDirectory, topology: Topology) -> Transport:
    files = directory.certificates
    return Transport(
        cert_file=str(files / SERVER_CERTIFICATE),
        key_file=str(files / SERVER_KEY),
        ca_file=str(files / CA_FILE),
        client_ca_file=str(directory.keys / CA_FILE) if topology.security is Security.CERTIFICATES else None,
    )


async def _run_make_certificates(files: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _PROGRAM, str(files), stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_PROGRAM_TIMEOUT):
            _, problem = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise LabError(f"the lab's certificates were not made within {_PROGRAM_TIMEOUT:g} s") from None
    if process.returncode != 0:
        reason = problem.decode(errors="replace").strip().rpartition("\n")[2]
        raise LabError(f"the lab's certificates cannot be made: {reason}", hint="`vstream lab up --no-tls` needs none")
