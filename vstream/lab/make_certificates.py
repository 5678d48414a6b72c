"""The program `python -m vstream.lab.make_certificates DIRECTORY`: an authority, and a certificate of it for loopback."""

from __future__ import annotations

import sys
from pathlib import Path

import trustme

from vstream.files import write_private
from vstream.topology.signing import CA_FILE, SERVER_CERTIFICATE, SERVER_KEY

HOSTS = ("127.0.0.1", "localhost")
_ORGANIZATION = "vstream lab"


def main(files: Path) -> None:
    """Write both into the directory *files*, readable by nobody else; the authority's own key is written nowhere."""
    authority = trustme.CA(organization_name=_ORGANIZATION)
    certificate = authority.issue_cert(*HOSTS, organization_name=_ORGANIZATION)
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(files / CA_FILE, authority.cert_pem.bytes().decode())
    write_private(files / SERVER_KEY, certificate.private_key_pem.bytes().decode())
    # The last: where it is, the others are too.
    write_private(files / SERVER_CERTIFICATE, "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
