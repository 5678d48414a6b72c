"""Fields of the JetStream API that a topology cannot set, and why."""

from __future__ import annotations

from typing import Final

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
_INSTEAD: Final = {
    "retention": "remove it; for a work queue, let all regions share a consumer of a `stretch` or `homed` stream, "
    "or use a plain stream outside of the topology"
}


def advice_for(key: str) -> str:
    """What to do instead of setting *key*."""
    return _INSTEAD.get(key, "remove it")
