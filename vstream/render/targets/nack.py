"""
Custom resources of NACK, the JetStream controller for Kubernetes: a stream or a consumer each.

NACK creates what is missing and vstream changes it: each resource says `preventUpdate` and `preventDelete`, since NACK
knows no order between resources, no gates, and takes a stream away with its resource.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jinja2

from vstream.errors import VstreamError
from vstream.syntax.document import Json, object_or_empty
from vstream.topology.bundle import Artifact, Bundle, RenderedConsumer, RenderedStream
from vstream.topology.model import Topology

DEFAULT_CLIENT_PORT = 4222
API_VERSION = "jetstream.nats.io/v1beta2"
_UNITS = (("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
_Converter = tuple[str, "Callable[[Json], Any]"]
_NAMED_ALIKE = ("name", "subjects", "retention", "discard", "storage", "compression", "placement", "sealed")


def render_resources(topology: Topology, bundle: Bundle, templates: jinja2.Environment) -> tuple[Artifact, ...]:
    """`REGION/account.yaml`, `REGION/streams.yaml` and `REGION/consumers.yaml`. Raises VstreamError."""
    if any(stream.account is not None for stream in bundle.streams):
        raise VstreamError(
            f"with `routing: {topology.routing.value}` streams live in accounts that NACK does not log in to",
            hint="`vstream apply` makes them; NACK fits `routing: mapped`, where one account has all streams",
        )
    artifacts: list[Artifact] = []
    for place in dict.fromkeys(stream.region for stream in bundle.streams):
        account = _make_resource_name(f"{topology.name}-{place}")
        streams = [_make_stream_resource(rendered, account) for rendered in bundle.streams if rendered.region == place]
        consumers = [_consumer_resource(rendered, account) for rendered in bundle.consumers if rendered.region == place]
        files = {"account": [_account(topology, bundle, place, account)], "streams": streams, "consumers": consumers}
        for name, resources in files.items():
            _refuse_equal_names(resources)
            if resources:
                template = templates.get_template("targets/nack/resources.yaml.j2")
                view = {"topology": topology, "place": place, "api_version": API_VERSION, "resources": resources}
                artifacts.append(Artifact(path=f"{place}/{name}.yaml", text=template.render(view), origin=("streams",)))
    return tuple(artifacts)


def _account(topology: Topology, bundle: Bundle, place: str, name: str) -> dict[str, Any]:
    """
    How NACK logs in to *place*: at the addresses of `connect`, at servers with host names, else at the chart's service.

    Where there is TLS, the certificate authority is in the secret `nats-client-tls`. Users are not in it: a password
    or a key goes into the Account by hand.
    """
    region = next((region for region in topology.regions if region.name == place), None)
    members = [address for address in bundle.servers if place in {address.region, address.cluster_name}]
    if region is not None and region.endpoint is not None and region.endpoint.urls:
        servers = list(region.endpoint.urls)
    elif all(member.server.host for member in members):
        servers = [f"{member.scheme}://{member.host}:{member.client}" for member in members]
    else:
        servers = [f"{members[0].scheme}://nats:{DEFAULT_CLIENT_PORT}"]
    spec: dict[str, Any] = {"name": name, "servers": servers}
    if topology.transport is not None:
        spec["tls"] = {"secret": {"name": "nats-client-tls"}, "ca": "ca.crt"}
    return {"kind": "Account", "name": name, "spec": spec}


def _make_stream_resource(rendered: RenderedStream, account: str) -> dict[str, Any]:
    spec = convert_stream(rendered.config.fields, rendered.path)
    return _make_resource("Stream", rendered.config.name, account, spec)


def _consumer_resource(rendered: RenderedConsumer, account: str) -> dict[str, Any]:
    config = rendered.config
    spec = {"streamName": config.stream, **convert_consumer(config.fields, rendered.path)}
    return _make_resource("Consumer", f"{config.stream}-{config.durable}", account, spec)


def _make_resource(kind: str, name: str, account: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    guarded = {"account": account, "preventDelete": True, "preventUpdate": True}
    return {"kind": kind, "name": _make_resource_name(name), "spec": {**spec, **guarded}}


def _make_resource_name(name: str) -> str:
    """*name* as Kubernetes takes it (RFC 1123): in lower case, without what it does not know."""
    return _NOT_IN_NAMES.sub("-", name.lower()).strip("-")


def _refuse_equal_names(resources: list[dict[str, Any]]) -> None:
    names = [resource["name"] for resource in resources]
    for name in names:
        if names.count(name) > 1:
            raise VstreamError(
                f"two resources would be called `{name}`: names in Kubernetes have no capitals and no `_`",
                hint="rename one of the streams or consumers",
            )


def format_go_duration(nanoseconds: int) -> str:
    """A duration as Go reads it, in the largest unit that needs no fraction: `720h`, `1500ms`."""
    for unit, size in _UNITS:
        if nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{nanoseconds}ns"


def _keep(value: Json) -> Any:
    return value


def _convert_duration(value: Json) -> Any:
    return format_go_duration(int(str(value)))


def _convert_durations(value: Json) -> Any:
    return [_convert_duration(item) for item in value] if isinstance(value, list) else value


def _convert_camel(value: Json) -> Any:
    """A word of the API in the spelling of the resource: `by_start_time` becomes `byStartTime`."""
    head, *tail = str(value).split("_")
    return head + "".join(part.capitalize() for part in tail)


def _convert_transform(value: Json) -> Any:
    # The destination is required, also where it is empty.
    return {"source": value["src"], "dest": value.get("dest", "")} if isinstance(value, dict) else value


def _convert_republish(value: Json) -> Any:
    return {"source": value["src"], "destination": value["dest"]} if isinstance(value, dict) else value


def _convert_source(value: Json) -> Any:
    return _convert(value, _SOURCE_FIELDS, "a source") if isinstance(value, dict) else value


def _convert_sources(value: Json) -> Any:
    return [_convert_source(item) for item in value] if isinstance(value, list) else value


_CONSUMER_LIMITS: dict[str, _Converter] = {
    "inactive_threshold": ("inactiveThreshold", _convert_duration),
    "max_ack_pending": ("maxAckPending", _keep),
}
_SOURCE_FIELDS: dict[str, _Converter] = {
    "name": ("name", _keep),
    "opt_start_seq": ("optStartSeq", _keep),
    "opt_start_time": ("optStartTime", _keep),
    "filter_subject": ("filterSubject", _keep),
    "subject_transforms": ("subjectTransforms", lambda value: [_convert_transform(item) for item in value]),  # type: ignore[union-attr]
}
_STREAM_FIELDS: dict[str, _Converter] = {
    **{field: (field, _keep) for field in (*_NAMED_ALIKE, "metadata", "description")},
    "max_consumers": ("maxConsumers", _keep),
    "max_msgs": ("maxMsgs", _keep),
    "max_bytes": ("maxBytes", _keep),
    "discard_new_per_subject": ("discardPerSubject", _keep),
    "max_age": ("maxAge", _convert_duration),
    "max_msgs_per_subject": ("maxMsgsPerSubject", _keep),
    "max_msg_size": ("maxMsgSize", _keep),
    "num_replicas": ("replicas", _keep),
    "no_ack": ("noAck", _keep),
    "duplicate_window": ("duplicateWindow", _convert_duration),
    "mirror": ("mirror", _convert_source),
    "sources": ("sources", _convert_sources),
    "deny_delete": ("denyDelete", _keep),
    "deny_purge": ("denyPurge", _keep),
    "allow_rollup_hdrs": ("allowRollup", _keep),
    "first_seq": ("firstSequence", _keep),
    "subject_transform": ("subjectTransform", _convert_transform),
    "republish": ("republish", _convert_republish),
    "allow_direct": ("allowDirect", _keep),
    "mirror_direct": ("mirrorDirect", _keep),
    "allow_msg_ttl": ("allowMsgTtl", _keep),
    "subject_delete_marker_ttl": ("subjectDeleteMarkerTtl", _convert_duration),
    "allow_msg_counter": ("allowMsgCounter", _keep),
    "allow_atomic": ("allowAtomicPublish", _keep),
    "allow_msg_schedules": ("allowMsgSchedules", _keep),
    "persist_mode": ("persistMode", _keep),
    "consumer_limits": (
        "consumerLimits",
        lambda value: value and _convert(object_or_empty(value), _CONSUMER_LIMITS, "consumer_limits"),
    ),
}
_CONSUMER_FIELDS: dict[str, _Converter] = {
    "durable_name": ("durableName", _keep),
    "description": ("description", _keep),
    "deliver_policy": ("deliverPolicy", _convert_camel),
    "opt_start_seq": ("optStartSeq", _keep),
    "opt_start_time": ("optStartTime", _keep),
    "ack_policy": ("ackPolicy", _keep),
    "ack_wait": ("ackWait", _convert_duration),
    "max_deliver": ("maxDeliver", _keep),
    "backoff": ("backoff", _convert_durations),
    "filter_subject": ("filterSubject", _keep),
    "filter_subjects": ("filterSubjects", _keep),
    "replay_policy": ("replayPolicy", _keep),
    "sample_freq": ("sampleFreq", _keep),
    "max_waiting": ("maxWaiting", _keep),
    "rate_limit_bps": ("rateLimitBps", _keep),
    "max_ack_pending": ("maxAckPending", _keep),
    "headers_only": ("headersOnly", _keep),
    "max_batch": ("maxRequestBatch", _keep),
    "max_expires": ("maxRequestExpires", _convert_duration),
    "max_bytes": ("maxRequestMaxBytes", _keep),
    "inactive_threshold": ("inactiveThreshold", _convert_duration),
    "priority_policy": ("priorityPolicy", _keep),
    "priority_timeout": ("pinnedTtl", _convert_duration),
    "priority_groups": ("priorityGroups", _keep),
    "num_replicas": ("replicas", _keep),
    "mem_storage": ("memStorage", _keep),
    "metadata": ("metadata", _keep),
}


def convert_stream(fields: Mapping[str, Json], origin: str) -> dict[str, Any]:
    """
    A stream's configuration as the `spec` of a Stream resource.

    Values that a server has anyway are left out: limits of zero, and what is false. Raises VstreamError for a field
    that the resource does not have, with *origin* as its place.
    """
    return _convert({key: value for key, value in fields.items() if value not in (False, 0)}, _STREAM_FIELDS, origin)


def convert_consumer(fields: Mapping[str, Json], origin: str) -> dict[str, Any]:
    """A consumer's configuration as the `spec` of a Consumer resource, as `convert_stream` does it."""
    written = {key: value for key, value in fields.items() if key != "name" and value not in (False, 0)}
    return _convert(written, _CONSUMER_FIELDS, origin)


def _convert(fields: Mapping[str, Json], table: Mapping[str, _Converter], origin: str) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for field, value in fields.items():
        if field not in table:
            raise VstreamError(
                f"{origin}: `{field}` does not exist in NACK's resources",
                hint="leave the setting out, or make the streams with `vstream apply`",
            )
        name, convert = table[field]
        spec[name] = convert(value)
    return spec
