"""
Values of the official NATS chart: one release for each region, which is one cluster of the super-cluster.

The chart has no schema for its values: what it does not know passes silently. `scripts/check-targets` renders the chart
with these values and compares the configuration that comes out with what vstream renders for files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vstream.errors import VstreamError
from vstream.render.server_view import available_options
from vstream.render.targets.hosts import missing_files
from vstream.topology.bundle import Artifact, loaded_path
from vstream.topology.model import Security

if TYPE_CHECKING:
    import jinja2

    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Region, Topology

_MIB = 1024**2
_MOST_IN_CONFIG_MAP = 1_000_000
"""Size that Kubernetes accepts in a ConfigMap, in bytes, minus its wrapping."""
_ROOM = 1.1
"""A volume is larger than what JetStream may store: the file system takes some, and files are deleted late."""


def render_values(topology: Topology, bundle: Bundle, templates: jinja2.Environment) -> tuple[Artifact, ...]:
    """`REGION/values.yaml`. Raises VstreamError for what one release a region cannot be."""
    _check(topology)
    template = templates.get_template("targets/helm/values.yaml.j2")
    artifacts = []
    for region in topology.regions:
        text = template.render(_view(topology, bundle, region))
        artifacts.append(Artifact(path=f"{region.name}/values.yaml", text=text, origin=("regions", region.name)))
    return tuple(artifacts)


def _check(topology: Topology) -> None:
    if topology.stretch is not None or topology.hubs is not None:
        raise VstreamError(
            f"a {'stretch cluster' if topology.stretch else 'hub'} is no release of the chart in one region",
            hint="take `--target files` for its servers",
        )
    if topology.security in {Security.OPERATOR, Security.CERTIFICATES}:
        raise VstreamError(
            f"`security: {{mode: {topology.security.value}}}` is not written for the chart yet",
            hint="passwords and nkeys are; or take `--target files`",
        )
    for region in topology.regions:
        _check_region(topology, region)


def _check_region(topology: Topology, region: Region) -> None:
    if region.gateway is None and len(topology.regions) > 1:
        raise VstreamError(
            f"region `{region.name}` does not say where other regions reach its gateways",
            hint=f"name its load balancer: `regions: {{{region.name}: {{gateway: nats-gw.{region.name}.example.net}}}}`",
        )
    if topology.server_options.unique_tag is not None and len(region.servers) > 1:
        raise VstreamError(
            "`unique_tag` needs servers with different tags, and pods of one release share a configuration",
            hint="leave it out: the values spread pods over zones",
        )
    if len({server.tags for server in region.servers}) > 1:
        raise VstreamError(
            f"the servers of region `{region.name}` have different tags, and pods of one release share a configuration",
            hint="give all of them the same tags",
        )
    prefix, pods = _split_pod_names(region)
    expected = [f"{prefix}{pods}-{index}" for index in range(len(region.servers))]
    if [server.name for server in region.servers] != expected:
        names = ", ".join(f"{region.name}-nats-{index}" for index in range(len(region.servers)))
        raise VstreamError(
            f"the chart calls the servers of region `{region.name}` after its pods, counted from 0",
            hint=f"say so in the topology: `regions: {{{region.name}: {{names: [{names}]}}}}`",
        )


def _split_pod_names(region: Region) -> tuple[str, str]:
    """The prefix of server names, which tells regions apart, and the name of the StatefulSet: `west-`, `nats`."""
    base = region.servers[0].name.removesuffix("-0")
    prefix, dash, pods = base.rpartition("-")
    return prefix + dash, pods


def _view(topology: Topology, bundle: Bundle, region: Region) -> dict[str, Any]:
    loaded = loaded_path(topology)
    text = bundle.text(loaded)
    if len(text.encode()) > _MOST_IN_CONFIG_MAP:
        raise VstreamError(
            f"{loaded} has {len(text.encode()):,} bytes: a ConfigMap takes 1 MiB",
            hint="put streams below common `roots`, or ship the file in a volume of your own",
        )
    prefix, pods = _split_pod_names(region)
    return {
        "topology": topology,
        "region": region,
        "prefix": prefix,
        "pods": pods,
        "transport": topology.transport,
        "jetstream": region.jetstream,
        "volume": f"{-(-int(region.jetstream.max_file * _ROOM) // _MIB)}Mi",
        "tags": region.servers[0].tags,
        "options": available_options(topology),
        "gateways": _gateways_to_dial(topology, region) if len(topology.regions) > 1 else [],
        "loaded": loaded,
        "text": text,
        "secrets": missing_files(bundle),
    }


def _gateways_to_dial(topology: Topology, region: Region) -> list[dict[str, Any]]:
    """*region* and those before it. Later ones dial in, and are heard of then: a new region changes no old list."""
    scheme = "tls" if topology.transport else "nats"
    dialed = topology.regions[: topology.regions.index(region) + 1]
    return [{"name": peer.cluster, "urls": [f"{scheme}://{peer.gateway}"]} for peer in dialed]
