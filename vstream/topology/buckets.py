"""
Key-value buckets and object stores: the virtual streams that they are, with the settings that clients would create them with.

A bucket is written below `kv` or `objects` and checked as the stream that it becomes. What is found wrong with the
stream is shown where the bucket says it (`locate_in_document`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vstream.syntax.yaml import Path
from vstream.topology.document import (
    BucketDocument,
    KeyValueDocument,
    SettingsDocument,
    StreamDocument,
    TopologyDocument,
)

KEY_VALUE_PREFIX = "KV_"
OBJECTS_PREFIX = "OBJ_"
_PREFIXES = {"kv": KEY_VALUE_PREFIX, "objects": OBJECTS_PREFIX}
_SHARED_SETTINGS = ("storage", "replicas", "compression", "placement_tags", "description", "metadata")
"""Settings that a bucket has as a stream has them, `defaults` included."""
_BUCKET_WORDS = {
    "max_age": "ttl",
    "max_msgs_per_subject": "history",
    "max_msg_size": "max_value_size",
    "subject_delete_marker_ttl": "marker_ttl",
}
"""The name in a bucket of a setting of its stream."""
_SIDES = frozenset({"write", "read", "order"})


def key_value_stream(bucket: str) -> str:
    """The name of the stream that clients find the key-value *bucket* in."""
    return f"{KEY_VALUE_PREFIX}{bucket}"


def objects_stream(bucket: str) -> str:
    """The name of the stream that clients find the object store *bucket* in."""
    return f"{OBJECTS_PREFIX}{bucket}"


def is_bucket(document: TopologyDocument, stream: str) -> bool:
    """Whether the document declares *stream* as a bucket."""
    return any(stream == f"{prefix}{name}" for part, prefix in _PREFIXES.items() for name in getattr(document, part))


def is_object_store(document: TopologyDocument, stream: str) -> bool:
    """Whether the document declares *stream* as an object store, which clients read by consumers of their own."""
    return any(stream == objects_stream(name) for name in document.objects)


def expand_buckets(document: TopologyDocument) -> TopologyDocument:
    """*document* with a stream for each bucket, after its own streams. An existing stream of that name stays."""
    buckets = {
        **{key_value_stream(name): _make_key_value(name, bucket) for name, bucket in document.kv.items()},
        **{objects_stream(name): _make_object_store(name, bucket) for name, bucket in document.objects.items()},
    }
    missing = {name: stream for name, stream in buckets.items() if name not in document.streams}
    return document.model_copy(update={"streams": {**document.streams, **missing}}) if missing else document


def locate_in_document(document: TopologyDocument) -> Callable[[Path], Path]:
    """Where the file says what is at a path of `expand_buckets`' result: a bucket's settings are below `kv` or `objects`."""
    sections = {}
    for part, prefix in _PREFIXES.items():
        for name in getattr(document, part):
            if f"{prefix}{name}" not in document.streams:
                sections[f"{prefix}{name}"] = (part, name)

    def move_path(path: Path) -> Path:
        if path[:1] != ("streams",) or len(path) == 1 or path[1] not in sections:
            return path
        part, name = sections[str(path[1])]
        words = [word for word in path[2:] if word not in {*_SIDES, "config"}]
        if not words:
            return part, name
        word = _BUCKET_WORDS.get(str(words[0]), str(words[0]))
        fields = type(getattr(document, part)[name]).model_fields
        return (part, name, word, *words[1:]) if word in fields else (part, name)

    return move_path


def _make_key_value(name: str, bucket: KeyValueDocument) -> StreamDocument:
    """As nats.py and nats.js create it; markers are left by the stream that takes the writes."""
    ttl: dict[str, Any] = {} if bucket.allow_msg_ttl is None else {"allow_msg_ttl": bucket.allow_msg_ttl}
    writing: dict[str, Any] = {}
    if bucket.marker_ttl is not None:
        ttl = {"allow_msg_ttl": True}
        writing = {"config": {"subject_delete_marker_ttl": bucket.marker_ttl}}
    return _make_stream(
        bucket,
        [f"$KV.{name}.>"],
        {"max_msgs_per_subject": bucket.history, "max_msg_size": bucket.max_value_size, "deny_delete": True, **ttl},
        writing,
    )


def _make_object_store(name: str, bucket: BucketDocument) -> StreamDocument:
    return _make_stream(
        bucket,
        [f"$O.{name}.C.>", f"$O.{name}.M.>"],
        {"max_msgs_per_subject": -1, "max_msg_size": -1, "deny_delete": False},
        {},
    )


def _make_stream(
    bucket: BucketDocument, subjects: list[str], everywhere: dict[str, Any], writing: dict[str, Any]
) -> StreamDocument:
    """
    The stream of *bucket*.

    Sets everything that makes a bucket, so that no `defaults` decides it. Only the stream that takes the writes has a
    limit and refuses: a copy that did would stop, or drop keys silently.
    """
    return StreamDocument.model_construct(
        subjects=tuple(subjects),
        consistency=bucket.consistency,
        home=bucket.home,
        virtual_name=bucket.virtual_name,
        regions=bucket.regions,
        max_age=bucket.ttl,
        max_msgs=-1,
        max_bytes=-1,
        discard="old",
        allow_rollup=True,
        deny_purge=False,
        **everywhere,
        **{word: value for word in _SHARED_SETTINGS if (value := getattr(bucket, word)) is not None},
        write=SettingsDocument.model_construct(max_bytes=bucket.max_bytes, discard="new", **writing),
    )
