"""Durable consumers: canonical form, and the changes from observed to desired. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Blocked, CreateConsumer, Delete, DeleteConsumer, FieldChange, UpdateConsumer
from vstream.plan.risk import Risk
from vstream.syntax.document import Json
from vstream.topology.bundle import RenderedConsumer
from vstream.topology.consumer_config import FAILOVER_KEY, ConsumerConfig
from vstream.topology.defaults import ACK_WAIT_NS
from vstream.topology.stream_config import REGION_KEY

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
"""Its names, and temporary states such as a pause."""
_FIXED: Mapping[str, str] = {
    "ack_policy": "servers cannot change how a consumer is acknowledged",
    "deliver_policy": "servers cannot change where a consumer begins",
    "deliver_subject": "servers cannot turn a consumer that pushes into one that is pulled from, or back",
    "flow_control": "servers cannot change the flow control of a consumer",
    "idle_heartbeat": "servers cannot change the heartbeat of a consumer",
    "max_waiting": "servers cannot change how many requests of a consumer may wait",
    "mem_storage": "servers cannot change where a consumer is stored",
    "opt_start_seq": "servers cannot change where a consumer begins",
    "opt_start_time": "servers cannot change where a consumer begins",
    "replay_policy": "servers cannot change how a consumer replays",
}
"""Fields that servers refuse to change (server/consumer.go, checkNewConsumerConfig), in plain words."""
_START = ("deliver_policy", "opt_start_seq", "opt_start_time")
_TIMING = "deliveries from now on"
_WHY: Mapping[str, tuple[Risk, str]] = {
    "ack_wait": (Risk.SAFE, _TIMING),
    "backoff": (Risk.SAFE, _TIMING),
    "description": (Risk.SAFE, "a text"),
    "filter_subjects": (Risk.DISRUPTIVE, "it delivers other messages from its position on"),
    "headers_only": (Risk.DISRUPTIVE, "clients get other messages"),
    "max_ack_pending": (Risk.SAFE, _TIMING),
    "max_deliver": (Risk.DISRUPTIVE, "it stops redelivering a message earlier or later"),
    "metadata": (Risk.SAFE, "a label"),
    "num_replicas": (Risk.DISRUPTIVE, "its state moves to other servers"),
}


def to_canonical_consumer(fields: Mapping[str, Json]) -> dict[str, Json]:
    """*fields* with defaults filled in and sets in order, without its names. What vstream does not know is kept."""
    stated = {key: value for key, value in fields.items() if value is not None and key not in _NOT_COMPARED}
    form: dict[str, Any] = {**_DEFAULTS, **stated}
    single = form.pop("filter_subject", "")
    form["filter_subjects"] = sorted([single] if single else form["filter_subjects"])
    form["metadata"] = {key: value for key, value in sorted(form["metadata"].items()) if not key.startswith("_nats.")}
    if form["ack_policy"] in {"explicit", "all"}:
        form["ack_wait"] = (form["backoff"] or [form["ack_wait"] or ACK_WAIT_NS])[0]
        form["max_ack_pending"] = form["max_ack_pending"] or 1_000
    form["max_deliver"] = form["max_deliver"] or -1
    form["max_waiting"] = form["max_waiting"] or 512
    return dict(sorted(form.items()))


def diff_consumers(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """
    Add the changes that bring existing durables to those of the topology, and those that cannot be made.

    Durables of removed streams are not deleted separately: they go with their stream.
    """
    yield from planned
    # What is forgotten is made again before its consumers.
    forgotten = {item.config.name for item in planned if isinstance(item, Delete) and item.is_dead}
    silent = {*context.observed.unanswered, *context.observed.silent_consumers} - forgotten
    for consumer in context.bundle.consumers:
        if consumer.config.stream not in silent:  # else the stream is blocked, which says it
            yield from _compare_consumer(consumer, context, is_silent=consumer.config.name in silent)
    desired = {consumer.config.name for consumer in context.bundle.consumers}
    desired_streams = context.desired_names
    for stream, durables in sorted(context.observed.consumers.items()):
        for observed in durables.values():
            config = observed.config
            if config.owner == context.topology.name and config.name not in desired and stream in desired_streams:
                yield DeleteConsumer(config=config, region=config.metadata.get(REGION_KEY))


def _compare_consumer(consumer: RenderedConsumer, context: DiffContext, *, is_silent: bool) -> Iterable[PlanItem]:
    observed = context.observed.consumers.get(consumer.config.stream, {}).get(consumer.config.durable)
    if is_silent:
        yield Blocked.because_unanswered(consumer)
    elif observed is None:
        yield CreateConsumer(config=consumer.config, region=consumer.region)
    else:
        yield from _update(consumer, observed.config, context)


def _update(consumer: RenderedConsumer, observed: ConsumerConfig, context: DiffContext) -> Iterable[PlanItem]:
    is_adopted = observed.owner != context.topology.name
    if is_adopted and not context.adopt & {observed.name, "all"}:
        owner = observed.owner
        yield Blocked.of(
            consumer,
            reason=f"it belongs to the topology `{owner}`" if owner else "it exists, and vstream did not create it",
            hint=f"rename one of the two, or take it over with `--adopt '{observed.name}'`",
        )
        return
    desired = _preserve_failover_start(consumer.config, observed)
    before, after = to_canonical_consumer(observed.fields), to_canonical_consumer(desired.fields)
    # What only the server knows is left as it is.
    different = [field for field in after if before.get(field) != after[field]]
    fixed = next((field for field in different if field in _FIXED), None)
    if fixed is not None:
        old, new = json.dumps(before.get(fixed), ensure_ascii=False), json.dumps(after[fixed], ensure_ascii=False)
        yield Blocked.of(
            consumer,
            reason=f"`{fixed}` is {old}, the topology says {new}: {_FIXED[fixed]}",
            hint="change the topology back, or give the consumer another name and move its clients over",
        )
    elif different:
        unknown = {key: value for key, value in observed.fields.items() if key not in after and key != "filter_subject"}
        yield UpdateConsumer(
            config=ConsumerConfig(
                stream=observed.stream, durable=observed.durable, fields={**unknown, **desired.fields}
            ),
            region=consumer.region,
            fields=tuple(_compare_field(field, before.get(field), after[field]) for field in different),
            adopts=is_adopted,
        )


def _compare_field(field: str, before: Json, after: Json) -> FieldChange:
    risk, why = _WHY.get(field, (Risk.DISRUPTIVE, "vstream does not know what this change does to clients"))
    return FieldChange(path=field, before=before, after=after, risk=risk, why=why)


def _preserve_failover_start(desired: ConsumerConfig, observed: ConsumerConfig) -> ConsumerConfig:
    """*desired*, beginning where *observed* began if that was given another's position: it is no drift."""
    if FAILOVER_KEY not in observed.metadata:
        return desired
    start = {key: observed.fields[key] for key in _START if key in observed.fields}
    metadata: dict[str, Json] = {**desired.metadata, FAILOVER_KEY: observed.metadata[FAILOVER_KEY]}
    return ConsumerConfig(
        stream=desired.stream, durable=desired.durable, fields={**desired.fields, **start, "metadata": metadata}
    )
