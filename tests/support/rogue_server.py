"""Servers that know no secret, and try to join: as a route, a gateway and a leaf node."""

from __future__ import annotations

from pathlib import Path

from tests.support.paths import ROOT
from tests.support.ports import free_port
from vstream.topology.server_address import ServerAddress

OWN_CERTIFICATE = (ROOT / "tests/fixtures/tls/certificate.pem", ROOT / "tests/fixtures/tls/key.pem")
"""The files of a certificate that no authority has signed."""
_AS_ROUTE = """
server_name: rogue
listen: "127.0.0.1:{client}"
cluster {{
  name: "{cluster_name}", listen: "127.0.0.1:{port}", routes: ["{scheme}://127.0.0.1:{peer_route}"]
  {tls}
}}
leafnodes {{ remotes: [
  {{
    urls: ["{scheme}://leaf:none@127.0.0.1:{peer_leaf}"]
    {tls}
  }}
] }}
"""
_AS_GATEWAY = """
server_name: rogue
listen: "127.0.0.1:{client}"
gateway {{
  name: rogue, listen: "127.0.0.1:{port}"
  gateways: [{{name: "{cluster_name}", urls: ["{scheme}://127.0.0.1:{peer_gateway}"]}}]
  {tls}
}}
"""
"""A process of its own: a server dials no gateway of its own cluster."""


def write_rogues(directory: Path, peer: ServerAddress, certificate: tuple[Path, Path] | None) -> dict[str, Path]:
    """The configurations of rogues that dial every port of *peer*, by a name, perhaps with a *certificate* and its key."""
    files = (
        f'tls {{ cert_file: "{certificate[0]}", key_file: "{certificate[1]}", insecure: true }}' if certificate else ""
    )
    configurations = {}
    for name, text in (("rogue-route", _AS_ROUTE), ("rogue-gateway", _AS_GATEWAY)):
        configurations[name] = directory / f"{name}.conf"
        configurations[name].write_text(
            text.format(
                client=free_port(),
                port=free_port(),
                cluster_name=peer.cluster_name,
                scheme="tls" if certificate else "nats",
                peer_route=peer.cluster,
                peer_gateway=peer.gateway,
                peer_leaf=peer.cluster,
                tls=files,
            )
        )
    return configurations
