"""A server that knows no secret, and tries to join: as a route, a gateway and a leaf node."""

from __future__ import annotations

from pathlib import Path

from tests.support.paths import ROOT
from tests.support.ports import free_port
from vstream.topology.bundle import ServerAddress

_CERTIFICATE = ROOT / "tests" / "fixtures" / "tls"
_CONFIGURATION = """
server_name: rogue
listen: "127.0.0.1:{client}"
cluster {{
  name: "{cluster_name}", listen: "127.0.0.1:{route}", routes: ["{scheme}://127.0.0.1:{peer_route}"]
  {tls}
}}
gateway {{
  name: "{cluster_name}", listen: "127.0.0.1:{gateway}"
  gateways: [{{name: "{cluster_name}", urls: ["{scheme}://127.0.0.1:{peer_gateway}"]}}]
  {tls}
}}
leafnodes {{ remotes: [
  {{
    urls: ["{scheme}://leaf:none@127.0.0.1:{peer_leaf}"]
    {tls}
  }}
] }}
"""


def write_rogue(directory: Path, peer: ServerAddress, *, has_certificate: bool) -> Path:
    """The configuration of a rogue server that dials every port of *peer*, perhaps with a certificate of its own."""
    files = f'cert_file: "{_CERTIFICATE}/certificate.pem", key_file: "{_CERTIFICATE}/key.pem", insecure: true'
    configuration = directory / "rogue.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            client=free_port(),
            route=free_port(),
            gateway=free_port(),
            cluster_name=peer.cluster_name,
            scheme="tls" if has_certificate else "nats",
            peer_route=peer.cluster,
            peer_gateway=peer.gateway,
            peer_leaf=peer.cluster,
            tls=f"tls {{ {files} }}" if has_certificate else "",
        )
    )
    return configuration
