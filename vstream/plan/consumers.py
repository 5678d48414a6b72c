"""Durables: what they are in canonical form, and desired × observed → changes. Pure functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vstream.plan.plan import Blocked, CreateConsumer, DeleteConsumer, FieldChange, UpdateConsumer
from vstream.plan.risk import Risk
from vstream.topology.consumer_config import FAILOVER_KEY, ConsumerConfig
from vstream.topology.stream_config import REGION_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import RenderedConsumer
    from vstream.topology.consumer_config import ObservedConsumer

_HALF_A_MINUTE = 30 * 10**9
_DEFAULTS: Mapping[str, Json] = {
    "ack_policy": "none",
    "ack_wait": 0,
    "backoff": [],
    "deliver_group": "",
    "deliver_policy": "all",
    "deliver_subject": "",
    "description": "",
    "filter_subjects": [],
    "flow_control": False,
    "headers_only": False,
    "idle_heartbeat": 0,
    "inactive_threshold": 0,
    "max_ack_pending": 0,
    "max_batch": 0,
    "max_bytes": 0,
    "max_deliver": -1,
    "max_expires": 0,
    "max_waiting": 512,
    "mem_storage": False,
    "metadata": {},
    "num_replicas": 0,
    "opt_start_seq": 0,
    "opt_start_time": None,
    "priority_groups": [],
    "priority_policy": "none",
    "priority_timeout": 0,
    "rate_limit_bps": 0,
    "replay_policy": "instant",
    "sample_freq": "",
}
"""Every field that servers up to 2.15 know, with the value that leaving it out means (server/consumer.go)."""
_NOT_COMPARED = frozenset({"name", "durable_name", "pause_until"})
"""Its names, and what somebody does with it for a while."""
_FIXED: Mapping[str, str] = {
    "ack_policy": "servers cannot change how a consumer is acknowledged",
    "deliver_policy": "a consumer has begun where it has begun",
    "deliver_subject": "servers cannot turn a consumer that pushes into one that is pulled from, or back",
    "flow_control": "servers cannot change the flow control of a consumer",
    "idle_heartbeat": "servers cannot change the heartbeat of a consumer",
    "max_waiting": "servers cannot change how many requests of a consumer may wait",
    "mem_storage": "servers cannot change where a consumer is stored",
    "opt_start_seq": "a consumer has begun where it has begun",
    "opt_start_time": "a consumer has begun where it has begun",
    "replay_policy": "servers cannot change how a consumer replays",
}
"""What servers refuse to change (server/consumer.go, checkNewConsumerConfig), in plain words."""
_START = ("deliver_policy", "opt_start_seq", "opt_start_time")
_TIMING = "deliveries from now on"
_WHY: Mapping[str, tuple[Risk, str]] = {
    "ack_wait": (Risk.SAFE, _TIMING),
    "backoff": (Risk.SAFE, _TIMING),
    "description": (Risk.SAFE, "a text"),
    "filter_subjects": (Risk.DISRUPTIVE, "from where it is now, it takes other messages"),
    "headers_only": (Risk.DISRUPTIVE, "clients get other messages"),
    "max_ack_pending": (Risk.SAFE, _TIMING),
    "max_deliver": (Risk.DISRUPTIVE, "messages are given up earlier or later"),
    "metadata": (Risk.SAFE, "a label"),
    "num_replicas": (Risk.DISRUPTIVE, "its state moves to other servers"),
}


def canonical(fields: Mapping[str, Json]) -> dict[str, Json]:
    """*fields* with defaults filled in and sets in order, without its names. What vstream does not know is kept."""
    said = {key: value for key, value in fields.items() if value is not None and key not in _NOT_COMPARED}
    form: dict[str, Any] = {**_DEFAULTS, **said}
    single = form.pop("filter_subject", "")
    form["filter_subjects"] = sorted([single] if single else form["filter_subjects"])
    form["metadata"] = {key: value for key, value in sorted(form["metadata"].items()) if not key.startswith("_nats.")}
    if form["ack_policy"] in {"explicit", "all"}:
        form["ack_wait"] = (form["backoff"] or [form["ack_wait"] or _HALF_A_MINUTE])[0]
        form["max_ack_pending"] = form["max_ack_pending"] or 1_000
    form["max_deliver"] = form["max_deliver"] or -1
    form["max_waiting"] = form["max_waiting"] or 512
    return dict(sorted(form.items()))


def diff_consumers(
    topology: str,
    desired: Sequence[RenderedConsumer],
    found: Mapping[str, Mapping[str, ObservedConsumer]],
    *,
    silent: Collection[str],
    stays: Collection[str],
    adopt: frozenset[str],
) -> tuple[list[CreateConsumer | UpdateConsumer | DeleteConsumer], list[Blocked]]:
    """
    What brings the durables in *found*, by stream and name, to *desired*, and what cannot be brought there.

    *silent* are those that exist and did not answer, and streams that did not; *stays* are the streams
    that will exist: with others their consumers go anyhow.
    """
    changes: list[CreateConsumer | UpdateConsumer | DeleteConsumer] = []
    blocked: list[Blocked] = []
    for one in _compared(topology, desired, found, silent=silent, stays=stays, adopt=adopt):
        if isinstance(one, Blocked):
            blocked.append(one)
        else:
            changes.append(one)
    return changes, blocked


def _compared(
    topology: str,
    desired: Sequence[RenderedConsumer],
    found: Mapping[str, Mapping[str, ObservedConsumer]],
    *,
    silent: Collection[str],
    stays: Collection[str],
    adopt: frozenset[str],
) -> Iterator[CreateConsumer | UpdateConsumer | DeleteConsumer | Blocked]:
    wanted = {one.config.name for one in desired}
    for one in desired:
        if one.config.stream in silent:
            continue  # the stream is blocked, which says it
        seen = found.get(one.config.stream, {}).get(one.config.durable)
        if one.config.name in silent:
            yield Blocked(
                name=one.config.name,
                region=one.region,
                reason="it exists, but no server answered for it",
                hint=f"is `{one.region}` down? plan again when it is back",
            )
        elif seen is None:
            yield CreateConsumer(config=one.config, region=one.region)
        else:
            change = _update(topology, one, seen.config, adopt)
            if change is not None:
                yield change
    for stream, durables in sorted(found.items()):
        for consumer in durables.values():
            config = consumer.config
            if config.owner == topology and config.name not in wanted and stream in stays:
                yield DeleteConsumer(config=config, region=config.metadata.get(REGION_KEY))


def _update(
    topology: str, one: RenderedConsumer, found: ConsumerConfig, adopt: frozenset[str]
) -> UpdateConsumer | Blocked | None:
    is_adopted = found.owner != topology
    if is_adopted and not adopt & {found.name, "all"}:
        owner = found.owner
        return Blocked(
            name=found.name,
            region=one.region,
            reason=f"it belongs to the topology `{owner}`" if owner else "it exists, and vstream did not create it",
            hint=f"rename one of the two, or take it over with `--adopt '{found.name}'`",
        )
    before, after = canonical(found.fields), canonical(_kept(one.config, found).fields)
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    # What only the server knows is left as it is.
    different = [name for name in names if name in after]
    if not different:
        return None
    for name in different:
        if name in _FIXED:
            return Blocked(
                name=found.name,
                region=one.region,
                reason=f"`{name}` is {_shown(before.get(name))}, the topology says {_shown(after[name])}: {_FIXED[name]}",
                hint="change the topology back, or give the consumer another name and move its clients over",
            )
    changes = []
    for name in different:
        risk, why = _WHY.get(name, (Risk.DISRUPTIVE, "vstream does not know what this change does to clients"))
        changes.append(FieldChange(field=name, before=before.get(name), after=after[name], risk=risk, why=why))
    kept = {key: value for key, value in found.fields.items() if key not in after and key != "filter_subject"}
    fields = {**kept, **_kept(one.config, found).fields}
    return UpdateConsumer(
        config=ConsumerConfig(stream=found.stream, durable=found.durable, fields=fields),
        region=one.region,
        fields=tuple(changes),
        adopts=is_adopted,
    )


def _kept(desired: ConsumerConfig, found: ConsumerConfig) -> ConsumerConfig:
    """*desired*, beginning where *found* began if that was given another's position: it is no drift."""
    if FAILOVER_KEY not in found.metadata:
        return desired
    start = {key: found.fields[key] for key in _START if key in found.fields}
    metadata: dict[str, Json] = {**desired.metadata, FAILOVER_KEY: found.metadata[FAILOVER_KEY]}
    return ConsumerConfig(
        stream=desired.stream, durable=desired.durable, fields={**desired.fields, **start, "metadata": metadata}
    )


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
