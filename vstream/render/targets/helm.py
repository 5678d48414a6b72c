"""
Values of the official NATS chart: a release for each region, and one for each member of the stretch cluster.

The chart has no schema for its values: what it does not know passes silently. `scripts/check-targets` renders the chart
with these values and compares the configuration that comes out with what vstream renders for files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jinja2

from vstream.errors import VstreamError
from vstream.render.server_view import select_supported_options
from vstream.render.targets.hosts import list_missing_files
from vstream.topology.bundle import OPERATOR_PATH, Artifact, Bundle, loaded_path
from vstream.topology.model import JetStreamLimits, Region, Security, Server, Stretch, Topology

_MIB_BYTES = 1024**2
_EVALUATED = re.compile(r"<<|\$(?:include|tplYaml)")
_MAX_CONFIG_MAP_BYTES = 1_000_000
"""Size that Kubernetes accepts in a ConfigMap, in bytes, minus its wrapping."""
_POD_NAMES = re.compile(r"[a-z](?:[a-z0-9-]{0,50}[a-z0-9])?")
_VOLUME_FACTOR = 1.1
"""A volume is larger than what JetStream may store: the file system takes some, and files are deleted late."""


def render_values(topology: Topology, bundle: Bundle, templates: jinja2.Environment) -> tuple[Artifact, ...]:
    """
    `REGION/values.yaml`, and beside it `CLUSTER-values.yaml` for a member of the stretch cluster; with tokens, these too.

    Raises VstreamError for what a release cannot be.
    """
    _require_fit_for_chart(topology)
    _require_literal_texts(topology)
    template = templates.get_template("targets/helm/values.yaml.j2")
    common = _common_view(topology, bundle)
    artifacts = []
    for region in topology.regions:
        origin = ("regions", region.name)
        releases = {"values.yaml": _region_view(topology, region)}
        if topology.stretch is not None and region.name in topology.stretch.members:
            releases[f"{topology.stretch.cluster}-values.yaml"] = _stretch_view(topology, topology.stretch, region)
        for name, view in releases.items():
            text = template.render({**common, **view, "place": region.name, "file": name})
            artifacts.append(Artifact(path=f"{region.name}/{name}", text=text, origin=origin))
        if topology.security is Security.OPERATOR:
            tokens = Artifact(path=f"{region.name}/{OPERATOR_PATH}", text=bundle.text(OPERATOR_PATH), origin=origin)
            artifacts.append(tokens)
    return tuple(artifacts)


def _require_fit_for_chart(topology: Topology) -> None:
    if topology.hubs is not None:
        raise VstreamError(
            "the chart cannot make hubs: servers without JetStream that others join as leaf nodes",
            hint="take `--target files` for `routing: domains`",
        )
    if topology.security is Security.CERTIFICATES and topology.transport is None:
        raise VstreamError(
            "users with certificates need TLS, and the topology does not set it up",
            hint="say so: `security: {transport: {cert_file: …, key_file: …, ca_file: …}}`; the chart's paths are its own",
        )
    stretch = topology.stretch
    open_members = [region for region, server in stretch.members.items() if server.host is None] if stretch else []
    if stretch is not None:
        _require_pod_name(stretch.cluster, f"cluster `{stretch.cluster}`")
    if stretch is not None and open_members:
        raise VstreamError(
            f"the stretch cluster's member in region `{open_members[0]}` does not say where the others reach it",
            hint=f"name its load balancer: `stretch: {{members: {{{open_members[0]}: "
            f"{stretch.cluster}.{open_members[0]}.example.net, …}}}}`",
        )
    for region in topology.regions:
        _require_region_fits(topology, region)


def _require_literal_texts(topology: Topology) -> None:
    """The chart puts what stands in `<< >>` and behind `$include` into the configuration as it is: more than a text may say."""
    metadata = topology.server_options.metadata
    tags = (tag for region in topology.regions for server in region.servers for tag in server.tags)
    for text in (*tags, *metadata, *metadata.values()):
        if _EVALUATED.search(text):
            raise VstreamError(
                f"the chart would obey the tag or metadata `{text}`", hint="write it without `<<` and `$`"
            )


def _require_region_fits(topology: Topology, region: Region) -> None:
    if region.gateway is None and (len(topology.regions) > 1 or topology.stretch is not None):
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
    _require_pod_name(pods, f"region `{region.name}`")


def _require_pod_name(name: str, place: str) -> None:
    if not _POD_NAMES.fullmatch(name):
        raise VstreamError(
            f"`{name}` cannot be what the pods of {place} are called: Kubernetes takes small letters, digits and `-`",
            hint="such as `nats`: then the servers are called `nats-0`, …, with any name and `-` before it",
        )


def _split_pod_names(region: Region) -> tuple[str, str]:
    """The prefix of server names, which tells regions apart, and the name of the StatefulSet: `west-`, `nats`."""
    base = region.servers[0].name.removesuffix("-0")
    prefix, dash, pods = base.rpartition("-")
    return prefix + dash, pods


def _common_view(topology: Topology, bundle: Bundle) -> dict[str, Any]:
    """What all releases have in common."""
    loaded = loaded_path(topology)
    text = bundle.text(loaded)
    if len(text.encode()) > _MAX_CONFIG_MAP_BYTES:
        raise VstreamError(
            f"{loaded} has {len(text.encode()):,} bytes: a ConfigMap takes 1 MiB",
            hint="put streams below common `roots`, or ship the file in a volume of your own",
        )
    has_tokens = topology.security is Security.OPERATOR
    return {
        "topology": topology,
        "transport": topology.transport,
        "asks_for_certificates": topology.security is Security.CERTIFICATES,
        "has_tokens": has_tokens,
        "options": select_supported_options(topology),
        "loaded": loaded,
        "text": text,
        "secrets": (*list_missing_files(bundle), *((loaded,) if has_tokens else ())),
    }


def _region_view(topology: Topology, region: Region) -> dict[str, Any]:
    prefix, pods = _split_pod_names(region)
    return {
        "prefix": prefix,
        "pods": pods,
        "config_map": f"{pods}-vstream",
        "server_name": None,
        "replicas": len(region.servers),
        "cluster": region.cluster,
        "routes": None,
        "cluster_port": None,
        "gateway_port": region.ports.gateway,
        "advertise": region.gateway,
        "gateways": _gateways_to_dial(topology, region),
        "tags": region.servers[0].tags,
        **_storage_view(region.jetstream),
    }


def _stretch_view(topology: Topology, stretch: Stretch, region: Region) -> dict[str, Any]:
    """A release of one pod, which finds the other members by their load balancers."""
    scheme, server = _scheme(topology), stretch.members[region.name]
    return {
        "prefix": "",
        "pods": stretch.cluster,
        "config_map": f"{stretch.cluster}-vstream",
        "server_name": server.name,
        "replicas": 1,
        "cluster": stretch.cluster,
        "routes": [f"{scheme}://{member.host}:{stretch.ports.cluster}" for member in stretch.members.values()],
        "cluster_port": stretch.ports.cluster,
        "gateway_port": stretch.ports.gateway,
        "advertise": f"{server.host}:{stretch.ports.gateway}",
        "gateways": [
            *(_gateway(topology, peer.cluster, str(peer.gateway)) for peer in topology.regions if peer.gateway),
            *_list_members_gateway(topology, stretch.members.values()),
        ],
        "tags": server.tags,
        **_storage_view(stretch.jetstream),
    }


def _storage_view(jetstream: JetStreamLimits) -> dict[str, Any]:
    return {"jetstream": jetstream, "volume": f"{-(-int(jetstream.max_file * _VOLUME_FACTOR) // _MIB_BYTES)}Mi"}


def _gateways_to_dial(topology: Topology, region: Region) -> list[dict[str, Any]]:
    """
    *region* and those before it. Later ones dial in, and are heard of then: a new region changes no old list.

    All of them where gateways refuse others. Of the stretch cluster, the member in *region*: through another, each publish
    would cross to that region first.
    """
    stretch, transport = topology.stretch, topology.transport
    if len(topology.regions) == 1 and stretch is None:
        return []
    is_closed = transport is not None and transport.rejects_unknown_clusters
    dialed = topology.regions if is_closed else topology.regions[: topology.regions.index(region) + 1]
    gateways = [_gateway(topology, peer.cluster, str(peer.gateway)) for peer in dialed]
    if stretch is not None:
        near = [member for name, member in stretch.members.items() if name == region.name]
        elsewhere = stretch.members.values() if is_closed else ()
        gateways += _list_members_gateway(topology, near or elsewhere)
    return gateways


def _list_members_gateway(topology: Topology, members: Iterable[Server]) -> list[dict[str, Any]]:
    """The stretch cluster as reached through *members*; none without any."""
    stretch = topology.stretch
    addresses = [f"{member.host}:{stretch.ports.gateway}" for member in members] if stretch else []
    return [_gateway(topology, stretch.cluster, *addresses)] if stretch and addresses else []


def _gateway(topology: Topology, cluster: str, *addresses: str) -> dict[str, Any]:
    return {"name": cluster, "urls": [f"{_scheme(topology)}://{address}" for address in addresses]}


def _scheme(topology: Topology) -> str:
    return "tls" if topology.transport else "nats"
