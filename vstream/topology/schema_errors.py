"""Wording for mistakes in the shape of a topology: keys that it does not have, and those that it cannot set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic_core import ErrorDetails

from vstream.formatting import quote_value, suggest_name
from vstream.syntax.schema import Language, explain_map, explain_name, format_path, known_keys
from vstream.syntax.yaml import Path
from vstream.topology.document import TopologyDocument

NOT_IN_STREAMS: Final = {
    "name": "it is derived from the virtual stream and the region",
    "subjects": "they follow from the virtual stream's `subjects` and `naming`",
    "sources": "what is sourced follows from `consistency`",
    "mirror": "what is mirrored follows from `consistency`",
    "subject_transform": "together with a source filter it doubles the data after a restart",
    "placement": "each physical stream lives in its region; see `placement_tags`",
    "retention": "a virtual stream can only have limits: acknowledgements in one region say nothing about another",
    "allow_direct": "Direct Get is the only read that works in an isolated region",
    "mirror_direct": "it concerns mirrors only",
    "sealed": "a sealed stream stores nothing",
}
"""Keys that decide whether a virtual stream works, and why."""
NOT_IN_CONSUMERS: Final = {
    "name": "it is the key under `consumers`",
    "durable_name": "it is the key under `consumers`",
    "deliver_subject": "each region would push its own copy of every message to it",
    "deliver_group": "it concerns consumers that push",
    "flow_control": "it concerns consumers that push",
    "idle_heartbeat": "it concerns consumers that push",
    "opt_start_seq": "the same message has another sequence in each region; see `vstream consumer failover`",
    "direct": "it is for servers themselves",
    "sourcing": "it is for servers themselves",
}
"""Keys that cannot mean the same in every region, and why."""
_ADVICE: Final = {
    "retention": "remove it; for a work queue, let all regions share a consumer of a `stretch` or `homed` stream, "
    "or use a plain stream outside of the topology"
}
_DEEP_ENOUGH = 3
"""`regions.west` cannot be removed: everything that names the region would look wrong. `regions.west.tags` can."""


_MAX_LISTED_KEYS = 8
"""Keys to list where none was written."""
_REMOVABLE_PARENTS = {("streams",), ("kv",), ("objects",), ("defaults",)}
"""Keys of one entry that can be removed: nothing else refers to them."""
_KEYS_MEANT: Final = {
    "model": "consistency",
    "consistency_model": "consistency",
    "profile": "routing",
    "layout": "routing",
}
"""Other names that people use for keys, whose spelling is not close."""


def advice_for(key: str) -> str:
    """What to do instead of setting *key*."""
    return _ADVICE.get(key, "remove it")


def _is_needed(path: Path) -> bool:
    return path in _REMOVABLE_PARENTS or (len(path) < _DEEP_ENOUGH and path[:1] not in _REMOVABLE_PARENTS)


def _explain_pattern(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    pattern = str(details["ctx"]["pattern"])
    if "always" in pattern:
        return (
            f"{quote_value(details['input'])} is not a valid interval",
            "write `always`, or a time such as `10s` or `2m`",
        )
    if pattern.startswith("^[A-Za-z_]["):
        # Perhaps the secret itself: it is not shown.
        return (
            f"`{format_path(path)}` must be the name of an environment variable",
            "the secret itself never stands here",
        )
    return explain_name(path, details)


def _explain_whole_number(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    most = {"replicas": "5", "history": "64"}.get(str(path[-1]), "65535")
    hint = "remove the quotes" if isinstance(details["input"], str) and details["input"].isdecimal() else None
    return f"`{format_path(path)}` must be a whole number from 1 to {most}", hint


def _explain_map(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    message, hint = explain_map(path, details)
    keys = known_keys(TopologyDocument, path)
    if hint is None and len(keys) <= _MAX_LISTED_KEYS:
        hint = f"known there: {', '.join(f'`{key}`' for key in keys)}"
    return message, hint


def _explain_unknown_key(key: str, names: list[str]) -> str | None:
    is_stream = {"max_age", "config"} <= set(names)
    cannot: Mapping[str, str] = {}
    if is_stream:
        cannot = NOT_IN_STREAMS
    elif {"ack_wait", "config"} <= set(names):
        cannot = NOT_IN_CONSUMERS
    if key in cannot:
        return f"{cannot[key]}; {advice_for(key)}"
    if _KEYS_MEANT.get(key) in names:
        return f"did you mean `{_KEYS_MEANT[key]}`?"
    return suggest_name(key, names) or (
        "a setting of the JetStream API without its own key here goes under `config`" if is_stream else None
    )


LANGUAGE: Final = Language(
    noun="topology",
    model=TopologyDocument,
    starter="`vstream init` writes a commented starter",
    is_needed=_is_needed,
    mark="regions",
    other_kinds={
        "scenario": (
            "this is a scenario, not a topology",
            "`vstream scenario run` runs it; its `topology` names the file that is wanted here",
        )
    },
    missing={
        "version": "write `version: 1`, the version of the topology language",
        "name": "name the topology: streams are marked with it as their owner",
        "server_version": 'state the oldest nats-server that must be able to run this, such as `server_version: "2.12"`',
        "subjects": "list the subjects that clients publish on, such as `subjects: [foo.>]`",
        "servers": "give a number (`servers: 3`) or host names",
        "regions": "name at least one region, such as `west: {servers: 3}`",
    },
    wordings={
        "model_type": _explain_map,
        "string_pattern_mismatch": _explain_pattern,
        "int_type": _explain_whole_number,
        "greater_than_equal": _explain_whole_number,
        "less_than_equal": _explain_whole_number,
    },
    unknown_key=_explain_unknown_key,
)
