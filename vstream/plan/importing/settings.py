"""Fields of the JetStream API → what the topology language says of them, where that is not its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vstream.plan import canonical, consumers
from vstream.plan.importing.recognise import RecognisedStream
from vstream.syntax.document import Json, object_or_empty
from vstream.topology.buckets import KEY_VALUE_PREFIX, OBJECTS_PREFIX
from vstream.topology.consumer_config import FAILOVER_KEY
from vstream.topology.model import Role
from vstream.topology.stream_config import parse_metadata
from vstream.topology.units import UNLIMITED, spell_nanoseconds, spell_size

Data = dict[str, Any]
_PASSED_ON = (
    "allow_atomic", "allow_batched", "allow_msg_counter", "allow_msg_schedules", "consumer_limits",
    "discard_new_per_subject", "no_ack", "persist_mode", "republish", "subject_delete_marker_ttl",
)  # fmt: skip
"""Fields that the language passes on under `config`. All others follow from the topology, or are left out."""
_NO_LABELS = ("vstream.", "_nats.")
"""Metadata of vstream and of servers."""
_CONSUMER_DEFAULT: Mapping[str, Json] = {"ack_policy": "explicit"}
"""What the language says of a consumer of which nothing is said, where servers say something else."""
_UNSAYABLE_OF_CONSUMERS = (
    "deliver_group", "deliver_subject", "flow_control", "idle_heartbeat", "opt_start_seq", "opt_start_time",
)  # fmt: skip
"""A consumer that pushes, or one that begins at a message, which is another one in each region."""
_SAME_IN_BUCKETS = ("consistency", "home", "virtual_name", "regions", "storage", "replicas", "compression", "placement_tags", "description", "metadata")  # fmt: skip
"""What is said of a bucket as of its stream."""
_TAKES_PUBLISHES = frozenset({Role.WRITE, Role.ORIGIN})


def _write_window(value: int) -> str:
    return spell_nanoseconds(value) if value else "0s"


def _count(value: int) -> int | str:
    return value if value >= 0 else UNLIMITED


def _keep(value: Any) -> Any:
    return value


_STREAM_SETTINGS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "num_replicas": ("replicas", _keep),
    "storage": ("storage", _keep),
    "max_age": ("max_age", spell_nanoseconds),
    "max_bytes": ("max_bytes", spell_size),
    "max_msgs": ("max_msgs", _count),
    "max_msgs_per_subject": ("max_msgs_per_subject", _count),
    "max_msg_size": ("max_msg_size", spell_size),
    "max_consumers": ("max_consumers", _count),
    "discard": ("discard", _keep),
    "compression": ("compression", _keep),
    "duplicate_window": ("duplicate_window", _write_window),
    "allow_rollup_hdrs": ("allow_rollup", _keep),
    "allow_msg_ttl": ("allow_msg_ttl", _keep),
    "deny_delete": ("deny_delete", _keep),
    "deny_purge": ("deny_purge", _keep),
    "description": ("description", _keep),
}
"""Fields with a key in the language, and how their values are written."""


def find_differing_settings(fields: Mapping[str, Json], unset: Mapping[str, Json], role: Role) -> Data:
    """
    The settings of a physical stream that has these *fields*, and would have those of *unset* without settings.

    Keys of the language, and `placement_tags`, `metadata` and `config`.
    """
    form, default = _to_canonical(fields, role), _to_canonical(unset, role)
    differing = [field for field in _STREAM_SETTINGS if form[field] != default[field]]
    stated: Data = {word: spelled(form[field]) for field in differing for word, spelled in [_STREAM_SETTINGS[field]]}
    tags, default_tags = _list_tags(form), _list_tags(default)
    if tags != default_tags:
        stated["placement_tags"] = tags
    marks, default_marks = parse_labels(form), parse_labels(default)
    if marks != default_marks:
        stated["metadata"] = marks
    config = {field: form[field] for field in _PASSED_ON if form[field] != default[field]}
    if config:
        stated["config"] = config
    return stated


def express_max_age(fields: Mapping[str, Json]) -> Data:
    """The `max_age` of a stream with these *fields*, even if it is the default."""
    return {"max_age": spell_nanoseconds(int(str(fields.get("max_age") or 0)))}


def parse_labels(fields: Mapping[str, Json]) -> dict[str, str]:
    """The user's own part of the metadata of a stream or a consumer with these *fields*."""
    return {key: value for key, value in parse_metadata(fields).items() if not key.startswith(_NO_LABELS)}


def _to_canonical(fields: Mapping[str, Json], role: Role) -> dict[str, Json]:
    # Whether a stream takes from others decides what no window means.
    takes: Mapping[str, Json] = {"sources": [{"name": "x"}]} if role in {Role.READ, Role.ORDER} else {"subjects": ["x"]}
    bare = {field: value for field, value in fields.items() if field not in {"sources", "mirror", "subjects"}}
    return canonical.to_canonical_stream({**bare, **takes})


def _list_tags(fields: Mapping[str, Json]) -> list[str]:
    tags = object_or_empty(fields["placement"]).get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


_CONSUMER_SETTINGS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "ack_policy": ("ack_policy", _keep),
    "ack_wait": ("ack_wait", spell_nanoseconds),
    "deliver_policy": ("deliver_policy", _keep),
    "description": ("description", _keep),
    "filter_subjects": ("filter_subjects", _keep),
    "headers_only": ("headers_only", _keep),
    "max_ack_pending": ("max_ack_pending", _count),
    "max_deliver": ("max_deliver", _count),
    "max_waiting": ("max_waiting", _keep),
    "mem_storage": ("memory", _keep),
    "num_replicas": ("replicas", _keep),
}


def express_consumer(fields: Mapping[str, Json]) -> Data | None:
    """The settings of a durable with these *fields*, None if the language cannot express them."""
    form, default = consumers.to_canonical_consumer(fields), consumers.to_canonical_consumer(_CONSUMER_DEFAULT)
    if FAILOVER_KEY in parse_metadata(fields):
        # It was given another's position, which is no drift: where it began before that nobody knows.
        form |= {field: default[field] for field in ("deliver_policy", "opt_start_seq", "opt_start_time")}
    if any(form[field] != default[field] for field in _UNSAYABLE_OF_CONSUMERS):
        return None
    dull = {"ack_wait", "max_ack_pending"} if form["ack_policy"] == "none" else set()
    differing = [field for field in _CONSUMER_SETTINGS if form[field] != default[field] and field not in dull]
    stated: Data = {word: spelled(form[field]) for field in differing for word, spelled in [_CONSUMER_SETTINGS[field]]}
    backoff = form["backoff"]
    if isinstance(backoff, list) and backoff:
        stated.pop("ack_wait", None)
        stated["backoff"] = [spell_nanoseconds(int(duration)) for duration in backoff if isinstance(duration, int)]
    if marks := parse_labels(form):
        stated["metadata"] = marks
    covered = {*_CONSUMER_SETTINGS, *_UNSAYABLE_OF_CONSUMERS, "backoff", "metadata"}
    config = {field: value for field, value in form.items() if field not in covered and value != default.get(field)}
    if config:
        stated["config"] = config
    return stated


def find_bucket_path(stream: RecognisedStream) -> tuple[str, str] | None:
    """Where a topology writes *stream* as a bucket: `kv` or `objects`, and the name there. None if it is no bucket."""
    # Streams that are read by mappings are no buckets for clients (VS144).
    if not stream.consistency.has_origin and not stream.is_virtual_name_of_order:
        return None
    for section, prefix in (("kv", KEY_VALUE_PREFIX), ("objects", OBJECTS_PREFIX)):
        name = stream.name.removeprefix(prefix)
        if name not in {"", stream.name}:
            return section, name
    return None


def express_bucket(virtual: RecognisedStream, stream: Data) -> Data:
    """What a bucket says, if it is one, that is the virtual stream *virtual*, which is written as *stream* so far."""
    has: Data = canonical.to_canonical_stream(
        next(part.stream.config.fields for part in virtual.parts if part.role in _TAKES_PUBLISHES)
    )
    levels = {**stream.get("read", {}), **stream.get("write", {}), **stream}
    words = {word: levels[word] for word in _SAME_IN_BUCKETS if word in levels}
    if virtual.is_virtual_name_of_order and len(virtual.regions) > 1:
        words["writers"] = "one-per-key"  # without it there is none (VS143); whether it is true, somebody has to look
    if has["max_age"]:
        words["ttl"] = spell_nanoseconds(has["max_age"])
    if has["max_bytes"] >= 0:
        words["max_bytes"] = spell_size(has["max_bytes"])
    if not virtual.name.startswith(KEY_VALUE_PREFIX):
        return words
    if has["max_msgs_per_subject"] > 1:
        words["history"] = has["max_msgs_per_subject"]
    if has["max_msg_size"] >= 0:
        words["max_value_size"] = spell_size(has["max_msg_size"])
    if has["subject_delete_marker_ttl"]:
        words["marker_ttl"] = spell_nanoseconds(has["subject_delete_marker_ttl"])
    elif has["allow_msg_ttl"]:
        words["allow_msg_ttl"] = True
    return words
