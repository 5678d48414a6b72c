"""Key-value buckets and object stores among virtual streams: what the language says of them under `kv` and `objects`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vstream.plan.canonical import canonical
from vstream.topology.buckets import KEY_VALUE_PREFIX, OBJECTS_PREFIX
from vstream.topology.model import Role
from vstream.topology.units import format_duration, format_size

if TYPE_CHECKING:
    from vstream.plan.importing.recognise import RecognisedStream

Data = dict[str, Any]
_SAME = ("consistency", "home", "virtual_name", "regions", "storage", "replicas", "compression", "placement_tags", "description", "metadata")  # fmt: skip
"""What is said of a bucket as of its stream."""
_TAKES_PUBLISHES = frozenset({Role.WRITE, Role.ORIGIN})


def bucket_place(one: RecognisedStream) -> tuple[str, str] | None:
    """Where the language says the bucket that *one* may be: `kv` or `objects`, and its name. None if it is a stream."""
    # Streams that are read by mappings are no buckets for clients (VS144).
    if not one.consistency.has_origin and not one.is_order_named:
        return None
    for part, prefix in (("kv", KEY_VALUE_PREFIX), ("objects", OBJECTS_PREFIX)):
        name = one.name.removeprefix(prefix)
        if name not in {"", one.name}:
            return part, name
    return None


def bucket_settings(one: RecognisedStream, stream: Data) -> Data:
    """What a bucket says, if it is one, that is the virtual stream *one*, of which *stream* says it as a stream."""
    has: Data = canonical(next(part.stream.config.fields for part in one.parts if part.role in _TAKES_PUBLISHES))
    levels = {**stream.get("read", {}), **stream.get("write", {}), **stream}
    words = {word: levels[word] for word in _SAME if word in levels}
    if one.is_order_named and len(one.regions) > 1:
        words["writers"] = "one-per-key"  # without it there is none (VS143); whether it is true, somebody has to look
    if has["max_age"]:
        words["ttl"] = format_duration(has["max_age"])
    if has["max_bytes"] >= 0:
        words["max_bytes"] = format_size(has["max_bytes"])
    if not one.name.startswith(KEY_VALUE_PREFIX):
        return words
    if has["max_msgs_per_subject"] > 1:
        words["history"] = has["max_msgs_per_subject"]
    if has["max_msg_size"] >= 0:
        words["max_value_size"] = format_size(has["max_msg_size"])
    if has["subject_delete_marker_ttl"]:
        words["marker_ttl"] = format_duration(has["subject_delete_marker_ttl"])
    elif has["allow_msg_ttl"]:
        words["allow_msg_ttl"] = True
    return words
