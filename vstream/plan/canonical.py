"""
The canonical form of a stream configuration: what two configurations have in common when they mean the same.

Mirrors what servers fill in (server/stream.go, checkStreamCfg), so that a default,
the servers' own metadata or the order of a set never looks like drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vstream.syntax.document import Json
from vstream.topology.defaults import choose_published_window
from vstream.topology.stream_config import MOVED_KEY, SCALED_KEY

DEFAULTS: Mapping[str, Json] = {
    "allow_atomic": False,
    "allow_batched": False,
    "allow_direct": False,
    "allow_msg_counter": False,
    "allow_msg_schedules": False,
    "allow_msg_ttl": False,
    "allow_rollup_hdrs": False,
    "compression": "none",
    "consumer_limits": None,
    "deny_delete": False,
    "deny_purge": False,
    "description": "",
    "discard": "old",
    "discard_new_per_subject": False,
    "first_seq": 0,
    "max_age": 0,
    "max_bytes": -1,
    "max_consumers": -1,
    "max_msg_size": -1,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "metadata": {},
    "mirror": None,
    "mirror_direct": False,
    "no_ack": False,
    "num_replicas": 1,
    "persist_mode": "default",
    "placement": None,
    "republish": None,
    "retention": "limits",
    "sealed": False,
    "sources": [],
    "storage": "file",
    "subject_delete_marker_ttl": 0,
    "subject_transform": None,
    "subjects": [],
    "template_owner": "",
}
"""Every field that servers up to 2.15 know, with the value that leaving it out means."""

_IDENTITY_FIELDS = ("name", "subjects", "sources", "mirror", "metadata")
"""Fields that say what a stream is called and takes: they differ from stream to stream."""
_NOTED = ("_nats.", MOVED_KEY, SCALED_KEY)
"""What metadata begins with that no topology says: that of servers themselves, and when a stream moved or was scaled up."""
_MAX_KNOWN = 32
_UNLIMITED_IF_ZERO = frozenset(name for name, default in DEFAULTS.items() if default == -1)


def is_known(field: str) -> bool:
    """Whether vstream knows what leaving *field* out means."""
    return field in DEFAULTS or field in {"name", "duplicate_window"}


def to_canonical_stream(fields: Mapping[str, Json]) -> dict[str, Json]:
    """*fields* with defaults filled in and sets in order. Fields that vstream does not know are kept as they are."""
    form: dict[str, Any] = {**DEFAULTS, **{key: value for key, value in fields.items() if value is not None}}
    for limit in _UNLIMITED_IF_ZERO:
        # 0 and -1 both mean that there is no limit.
        if form[limit] == 0:
            form[limit] = -1
    form["persist_mode"] = form["persist_mode"] or "default"
    form["num_replicas"] = form["num_replicas"] or 1
    form["metadata"] = {key: value for key, value in sorted(form["metadata"].items()) if not key.startswith(_NOTED)}
    # Schedules and markers need roll-ups and purges, and markers are removed by their TTL: servers allow these then.
    if form["allow_msg_schedules"] or form["subject_delete_marker_ttl"]:
        form["allow_rollup_hdrs"], form["deny_purge"] = True, False
    if form["subject_delete_marker_ttl"]:
        form["allow_msg_ttl"] = True
    form["consumer_limits"] = _without_zeros(form["consumer_limits"])
    if isinstance(form["republish"], dict):
        form["republish"] = {**form["republish"], "src": form["republish"].get("src") or ">"}
    sources = (_canonical_source(source) for source in form["sources"])
    form["sources"] = sorted(sources, key=lambda source: (str(source.get("name", "")), repr(source)))
    form["mirror"] = _canonical_source(form["mirror"]) if form["mirror"] else None
    form["placement"] = _placement(form["placement"])
    form["subjects"] = sorted(form["subjects"])
    if not (form["subjects"] or form["sources"] or form["mirror"]):
        form["subjects"] = [form.get("name", "")]
    if not form.get("duplicate_window"):
        # Streams with sources or a mirror keep the 0: for them it turns deduplication off (2.14).
        plain = not form["sources"] and not form["mirror"]
        form["duplicate_window"] = choose_published_window(form["max_age"]) if plain else 0
    return form


class EqualityCache:
    """
    Tells at little cost that a stream is as desired, which nearly all are at most times.

    Of thousands of streams, most differ from each other in the same few fields. What all others mean is worked out once.
    """

    def __init__(self) -> None:
        self._alike: list[tuple[list[bool], dict[str, Json], dict[str, Json]]] = []
        """Of two configurations that mean the same: which fields of their own they have, and their other fields."""

    def is_known_equal(self, desired: Mapping[str, Json], observed: Mapping[str, Json]) -> bool:
        """Whether *observed* means what *desired* does. If not, it still may: see `canonical`."""
        (own_fields, common), (own_observed, common_observed) = _split(desired), _split(observed)
        metadata = own_observed[-1]
        if isinstance(metadata, dict):
            own_observed[-1] = {key: value for key, value in metadata.items() if not key.startswith(_NOTED)}
        if own_fields != own_observed:
            return False
        pair = [*map(bool, own_fields)], common, common_observed
        if pair not in self._alike:
            if to_canonical_stream(desired) != to_canonical_stream(observed):
                return False
            self._alike = [pair, *self._alike[: _MAX_KNOWN - 1]]
        return True


def _split(fields: Mapping[str, Json]) -> tuple[list[Json], dict[str, Json]]:
    """The values of a stream's own *fields*, and all other fields."""
    common = dict(fields)
    return [common.pop(field, None) for field in _IDENTITY_FIELDS], common


def _without_zeros(limits: Json) -> Json:
    if not isinstance(limits, dict):
        return limits or None
    return {key: value for key, value in limits.items() if value} or None


def _canonical_source(source: Mapping[str, Any]) -> dict[str, Any]:
    stated = {key: value for key, value in source.items() if value}
    if isinstance(stated.get("external"), dict):
        # Servers write an empty `deliver` where there is none.
        stated["external"] = {key: value for key, value in sorted(stated["external"].items()) if value}
    if "subject_transforms" in stated:
        stated["subject_transforms"] = [dict(sorted(transform.items())) for transform in stated["subject_transforms"]]
    return dict(sorted(stated.items()))


def _placement(placement: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not placement:
        return None
    stated = {key: value for key, value in placement.items() if value not in (None, "", [])}
    if "tags" in stated:
        stated["tags"] = sorted(stated["tags"])
    return dict(sorted(stated.items())) or None
