"""
Files for hosts: a directory for each host with what belongs on it, started by systemd or in containers.

A host has the configuration of each of its servers and what these include. Files with passwords and keys are not in a
bundle: `list_missing_files` names them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import jinja2

from vstream.errors import VstreamError
from vstream.topology.bundle import Artifact, Bundle
from vstream.topology.model import Topology
from vstream.topology.server_address import ServerAddress

_INCLUDE = re.compile(r'^\s*include "(?:\.\./)?([^"]+)"', re.MULTILINE)
_PATH = re.compile(r"[\w/.+-]+")
STATE_DIRECTORY = "/var/lib/nats"
"""The working directory of servers, below which a relative `store_dir` is."""


def render_systemd(topology: Topology, bundle: Bundle, templates: jinja2.Environment) -> tuple[Artifact, ...]:
    """`HOST/etc/nats/…` and `HOST/etc/systemd/system/nats-server@.service`: what is copied to `/` of each host."""
    unit = templates.get_template("targets/systemd/nats-server@.service.j2")
    return tuple(_render_hosts(topology, bundle, unit, "etc/systemd/system/nats-server@.service", "etc/nats"))


def render_compose(topology: Topology, bundle: Bundle, templates: jinja2.Environment) -> tuple[Artifact, ...]:
    """`HOST/compose.yaml`, and beside it `nats/…`, which containers see as `/etc/nats`."""
    compose = templates.get_template("targets/compose/compose.yaml.j2")
    return tuple(_render_hosts(topology, bundle, compose, "compose.yaml", "nats"))


def list_missing_files(bundle: Bundle) -> tuple[str, ...]:
    """What configurations of *bundle* include and a bundle never holds: files with passwords, keys and certificates."""
    present = {artifact.path for artifact in bundle.artifacts}
    configurations = [artifact for artifact in bundle.artifacts if artifact.path.endswith((".cfg", ".conf"))]
    included = {path for artifact in configurations for path in _INCLUDE.findall(artifact.text)}
    return tuple(sorted(included - present))


def list_exposures(topology: Topology) -> list[str]:
    """What the rendered server configurations leave open, where servers have host names: others may reach those."""
    if all(seat.server.host is None for seat in topology.all_seats):
        return []
    exposures = []
    if topology.transport is None:
        exposures.append("the servers have no TLS: whoever is on the way reads and changes what they send")
    if not topology.has_accounts:
        exposures.append("the servers have no users: whoever reaches their ports may do everything")
    return [f"{exposure} (docs/security.md)" for exposure in exposures]


def _render_hosts(
    topology: Topology, bundle: Bundle, template: jinja2.Template, path: str, directory: str
) -> Iterator[Artifact]:
    """Of each host, what its servers need in *directory*, and the file at *path* that starts them."""
    for host, addresses in _servers_of_hosts(topology, bundle).items():
        yield from _list_configurations(bundle, addresses, f"{host}/{directory}")
        text = template.render(
            topology=topology,
            host=host,
            servers=addresses,
            image=f"nats:{topology.server_version[0]}.{topology.server_version[1]}-alpine",
            working_directory=STATE_DIRECTORY,
            writable=sorted({address.store_dir for address in addresses if address.store_dir.startswith("/")}),
        )
        yield Artifact(path=f"{host}/{path}", text=text, origin=("regions",))


def _servers_of_hosts(topology: Topology, bundle: Bundle) -> Mapping[str, Sequence[ServerAddress]]:
    for region in topology.regions:
        if any(server.host is None for server in region.servers):
            raise VstreamError(
                f"region `{region.name}` says how many servers it has, not on which hosts",
                hint=f"list them: `regions: {{{region.name}: {{servers: [HOST, …]}}}}`; a lab needs no hosts",
            )
    hosts: dict[str, list[ServerAddress]] = defaultdict(list)
    for address in bundle.servers:
        if not _PATH.fullmatch(address.store_dir):
            raise VstreamError(
                f"`store_dir` is `{address.store_dir}`: systemd or Docker would act on some of its characters",
                hint="use letters, digits, and `/ . _ - +`, or `--target files`",
            )
        hosts[address.host].append(address)
    return hosts


def _list_configurations(bundle: Bundle, addresses: Sequence[ServerAddress], directory: str) -> Iterator[Artifact]:
    """The configurations of the servers at *addresses*, and what of the bundle these include."""
    included: set[str] = set()
    for address in addresses:
        path = f"servers/{address.server.name}.conf"
        text = bundle.text(path)
        included.update(_INCLUDE.findall(text))
        yield Artifact(path=f"{directory}/{path}", text=text, origin=("regions", address.region))
    for artifact in bundle.artifacts:
        if artifact.path in included:
            yield Artifact(path=f"{directory}/{artifact.path}", text=artifact.text, origin=artifact.origin)
