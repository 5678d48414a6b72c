"""Values that look like topologies, for properties: right keys, wrong things below them, and the other way round."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

from vstream.topology.document import (
    ConnectDocument,
    JetStreamDocument,
    LevelDocument,
    LinkDocument,
    PortsDocument,
    RegionDocument,
    StreamDocument,
    StretchDocument,
    TopologyDocument,
)

MODELS = (
    TopologyDocument, RegionDocument, StreamDocument, LevelDocument, ConnectDocument, PortsDocument, JetStreamDocument, StretchDocument,
    LinkDocument,
)  # fmt: skip
KEYS = sorted({key for model in MODELS for key in model.model_fields})
TEXTS = [
    "", "all", "west", "east", "foo", "foo.>", "foo.*", ">", "unlimited", "1h", "0s", "5m", "1G", "10GB", "2.12", "2.9", "virtual", "new",
    "file", "blog", "w1.example.net", "[::1]", "::1", "[key]", "a b", "a\nb", "always", "\u2028", "$JS.API.>", "nats://a:4222", "x" * 200,
]  # fmt: skip

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 6), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(TEXTS), st.text(max_size=6),
)  # fmt: skip
keys = st.one_of(st.sampled_from(KEYS), st.sampled_from(TEXTS), st.text(max_size=4))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


def _broken(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 11).flatmap(lambda dice: anything if dice == 0 else right)


def _model(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: _broken(value) for key, value in fields.items()})


durations = st.sampled_from(["1h", "30d", "100ms", "1m30s", "unlimited", "99ms", "0s"])
sizes = st.sampled_from(["1GB", "512MiB", "unlimited", 5, 0, 2**40])
names = st.sampled_from(["west", "east", "north", "West", "all", "a-1"])
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "replicas": st.integers(0, 6), "storage": st.sampled_from(["file", "memory"]), "max_age": durations, "max_bytes": sizes,
    "max_msgs": st.sampled_from([1, 5, "unlimited", 0]), "max_msgs_per_subject": st.sampled_from([1, 5, "unlimited"]),
    "max_msg_size": sizes, "max_consumers": st.integers(1, 5), "discard": st.sampled_from(["old", "new"]),
    "compression": st.sampled_from(["none", "s2"]), "duplicate_window": durations, "allow_rollup": st.booleans(),
    "allow_msg_ttl": st.booleans(), "deny_delete": st.booleans(), "deny_purge": st.booleans(),
    "placement_tags": st.sampled_from(["ssd", ["ssd", "az:a"], []]), "description": st.sampled_from(["text", "x" * 5000]),
    "metadata": st.dictionaries(st.sampled_from(["a", "b", "vstream.x"]), st.just("v"), max_size=2),
    "config": st.dictionaries(st.sampled_from(["retention", "no_ack", "first_seq", "MAX_AGE"]), scalars, max_size=2),
}  # fmt: skip
settings = _model(**SETTINGS)
levels = _model(**SETTINGS, write=settings, read=settings)
streams = _model(
    **SETTINGS,
    write=settings,
    read=settings,
    consistency=st.sampled_from(["virtual", "ordered", "homed"]),
    regions=st.one_of(st.just("all"), st.lists(names, min_size=1, max_size=3)),
    canary=st.sampled_from(["foo.canary.*", "foo.canary", ">", "bar"]),
    extends=st.sampled_from(["small", ["small", "big"], []]),
    overrides=st.dictionaries(names, levels, max_size=2),
).flatmap(
    lambda rest: st.sampled_from(["foo.>", ["foo.a", "foo.*.b"], ["bar"], [], ["$JS.>"], ["a..b"], ["$KV.x.>"]]).map(
        lambda subjects: {"subjects": subjects, **rest}
    )
)
servers = st.one_of(
    st.integers(1, 5),
    st.sampled_from([["a", "b"], ["c"], ["[::1]"], ["::1"], ["a", "A"], [], 0, 100, "three", ["a:1"], [5]]),
)
regions = st.tuples(
    servers,
    _model(
        cluster=names,
        tags=st.sampled_from([["ssd"], ["ssd", ["az:a", "ssd"]], [], ["a b"]]),
        ports=_model(client=st.sampled_from([4222, 8222, 0, 70000]), monitor=st.just(8222)),
        jetstream=_model(
            max_file=sizes, store_dir=st.just("/data"), sync_interval=st.sampled_from(["always", "2m", "1d"])
        ),
    ),
).map(lambda pair: {"servers": pair[0], **pair[1]})
connections = _model(
    context=st.just("sc"), urls=st.sampled_from(["nats://a:4222", ["nats://a", "x"], "nats://u:p@a"]), user=st.just("u"),
    password_env=st.sampled_from(["PASSWORD", "my secret"]), creds=st.just("a.creds"), monitor=st.just("http://a:8222"),
    tls=_model(ca=st.just("ca.pem"), cert=st.just("c.pem")),
)  # fmt: skip
links = _model(
    rtt=st.sampled_from(["140ms", "0s", "2m", "unlimited"]), jitter=durations, rate=st.sampled_from(["200mbit", "unlimited", "1mb", 5]),
    loss=st.sampled_from(["1%", "0.5%", "0%", "100%", "1"]),
)  # fmt: skip
topologies = st.tuples(
    st.dictionaries(names, regions, min_size=1, max_size=3),
    _model(
        version=st.just(1),
        name=st.just("acme"),
        server_version=st.sampled_from(["2.10", "2.12", "2.14.6"]),
        naming=st.sampled_from(["isolated", "blog"]),
        stretch=_model(members=st.sampled_from([["west"], []]), cluster=st.just("s")),
        links=st.dictionaries(st.sampled_from(["west-east", "west/a-1", "default", "all-all", "x"]), links, max_size=3),
        jetstream=_model(max_file=sizes, max_memory=sizes),
        connect=st.dictionaries(names, connections, max_size=2),
        defaults=levels,
        presets=st.dictionaries(st.sampled_from(["small", "big"]), levels, max_size=2),
        streams=st.dictionaries(st.sampled_from(["foo", "bar", "FOO", "NEXT", "foo-read-west"]), streams, max_size=3),
    ),
).map(lambda pair: {"version": 1, "name": "acme", "server_version": "2.12", "regions": pair[0], **pair[1]})


_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")


def as_file(value: Any) -> bytes:
    """*value* as YAML that reads back equal: JSON in ASCII, but that YAML has no surrogate pairs."""
    return _PAIR.sub(_as_one_escape, json.dumps(value)).encode()


def _as_one_escape(pair: re.Match[str]) -> str:
    character = json.loads(f'"{pair[0]}"')
    return f"\\U{ord(character):08X}"
