"""A topology from what runs: it says the same as the one that made it, and what it cannot say is listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import imports
from tests.support.paths import ROOT
from tests.support.topologies import HEAD, REGIONS
from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.lint.check_topology import check_topology
from vstream.plan.importing.discovered import Discovered, DiscoveredServer
from vstream.plan.importing.topology import ImportedTopology, import_topology
from vstream.plan.importing.yaml_text import flow_value, format_yaml
from vstream.plan.model import Plan, Update
from vstream.syntax import yaml
from vstream.topology.model import Routing, Topology
from vstream.topology.naming import pause_subject

TOPOLOGIES = (
    *(ROOT / "examples").glob("*.yaml"),
    *(ROOT / "tests" / "golden" / f"{name}.yaml" for name in ("awkward", "blog", "subjects")),
)
MADE = """\
version: 1
name: acme
server_version: "2.12"
naming: NAMING
regions: {west: {servers: 1}, central: {servers: 3, cluster: middle}, east: {servers: 1}}
stretch: {members: [west, central, east]}
defaults: {write: {max_age: 1h}}
streams:
  sensors:
    subjects: [sensors.>, "beats.*.x"]
    metadata: {team: iron}
    read: {max_msgs_per_subject: 5, config: {republish: {src: ">", dest: "out.>"}}}
    overrides: {east: {write: {max_age: 2h}, read: {max_bytes: 1GiB, metadata: {floor: "1"}}}, west: {replicas: 1}}
    consumers: {reader: {ack_wait: 1m, filter_subjects: sensors.a}, once: {regions: [west], ack_policy: none}}
  ledger: {subjects: [ledger.>], consistency: ordered, order: {duplicate_window: 2m}}
  stock: {subjects: [stock.>], consistency: stretch, write: {max_age: unlimited, storage: memory}}
  prices: {subjects: [prices.>], consistency: homed, home: east, regions: [west, east], write: {max_age: 1w}}
  moved: {subjects: [moved.>], takes_over: plain, write: {max_age: 1h}}
  hits: {subjects: [hits.>], counters: true, max_age: unlimited, max_msgs_per_subject: 1}
kv:
  users: {consistency: stretch, history: 5, ttl: 2h, max_bytes: 1GiB, metadata: {team: iron}}
  flags: {consistency: homed, home: west, marker_ttl: 1m}
objects:
  files: {consistency: stretch, compression: s2}
"""


def discover_made(naming: str = "isolated") -> Discovered:
    """What runs of a topology with everything in it."""
    text = MADE.replace("NAMING", naming)
    if naming == "blog":
        text = text.replace(', "beats.*.x"', "")
    topology = check_topology(text.encode(), "made.yaml").require()
    plain = imports.make_observed({"name": "plain", "subjects": ["moved.>"]}, "west")
    observed = imports.running(topology)
    return replace(observed, streams={**observed.streams, "plain": plain})


def without_marks(found: Discovered) -> Discovered:
    """The same streams, made by hand: no metadata of anybody's."""
    streams = {
        name: imports.make_observed({**stream.config.fields, "metadata": {}}, stream.cluster)
        for name, stream in found.streams.items()
    }
    return replace(found, streams=streams, consumers={})


def again(found: Discovered, name: str | None = None) -> tuple[ImportedTopology, Topology]:
    """The import of *found*, which must be valid, and its topology."""
    written = import_topology(found, name=name, file="found.yaml")
    assert [finding for finding in written.findings if finding.is_error] == []
    return written, check_topology(written.text.encode(), "found.yaml").require()


def require_plan(written: ImportedTopology) -> Plan:
    assert written.plan is not None
    return written.plan


@pytest.mark.parametrize("lab", [None, "here"])
@pytest.mark.parametrize("file", TOPOLOGIES, ids=lambda file: file.stem)
def test_a_topology_comes_back_from_what_it_made(file: Path, lab: str | None) -> None:
    topology = check_topology(file.read_bytes(), str(file)).require()
    written, read = again(imports.running(topology, lab=lab))
    assert require_plan(written).is_empty, require_plan(written)
    assert (read.name, read.naming) == (topology.name, topology.naming)
    assert {stream.name: stream.regions for stream in read.streams} == {
        stream.name: stream.regions for stream in topology.streams
    }
    assert not written.adopts
    assert ("connect:" in written.text) is (lab is None)


@pytest.mark.parametrize("naming", ["isolated", "blog"])
def test_every_model_and_setting_comes_back_in_both_namings(naming: str) -> None:
    written, read = again(discover_made(naming))
    assert require_plan(written).is_empty, require_plan(written)
    assert written.undescribed == ()
    assert "\nkv:\n  flags: {consistency: homed, home: west, marker_ttl: 1m}\n  users:" in written.text
    assert "\nobjects:\n  files: " in written.text
    expected = check_topology(MADE.replace("NAMING", naming).encode(), "made.yaml").require()
    assert {stream.name: stream.consistency for stream in read.streams} == {
        stream.name: stream.consistency for stream in expected.streams
    }
    assert {stream.name: stream.takes_over for stream in read.streams if stream.takes_over} == {"moved": "plain"}
    assert {region.cluster for region in read.regions} == {"west", "middle", "east"}


@pytest.mark.parametrize("naming", ["isolated", "blog"])
def test_streams_made_by_hand_in_the_same_way_are_recognised_and_only_have_to_be_adopted(naming: str) -> None:
    written, read = again(without_marks(discover_made(naming)), "acme")
    assert written.adopts
    assert {stream.name: stream.consistency.value for stream in read.streams} == {
        "sensors": "virtual",
        "ledger": "ordered",
        "stock": "stretch",
        "prices": "homed",
        "moved": "virtual",
        "hits": "virtual",
        "KV_users": "stretch",
        "KV_flags": "homed",
        "OBJ_files": "stretch",
    }
    updates = [change for change in require_plan(written).changes if isinstance(change, Update)]
    assert {field.path.partition(".")[0] for update in updates for field in update.fields} == {"metadata"}
    assert (require_plan(written).blocked, require_plan(written).rule_changes) == ((), ())
    assert all(isinstance(change, Update) or "reader" in change.config.name or "once" in change.config.name
               for change in require_plan(written).changes)  # fmt: skip


def test_the_published_layout_is_the_blogs_naming_and_its_change_is_said() -> None:
    topology = check_topology((ROOT / "tests" / "golden" / "blog.yaml").read_bytes(), "blog.yaml").require()
    observed = without_marks(imports.running(topology))
    streams = dict(observed.streams)
    for name in ("foo-read-west", "foo-read-east"):
        fields = dict(streams[name].config.fields)
        fields["sources"] = [
            {"name": f"foo-write-{region}", "filter_subject": f"foo.{region}.>"} for region in ("west", "east")
        ]
        fields["subject_transform"] = {"src": "foo.*.>", "dest": "foo.>"}
        del fields["allow_direct"]
        streams[name] = imports.make_observed(fields)
    rules = {server: {**rules, "$JS.ACK.foo.>": ("west 100% $JS.ACK.foo-read-west.>",)} for server, rules in observed.rules.items()}  # fmt: skip
    written, read = again(replace(observed, streams=streams, rules=rules))
    assert (read.name, written.naming) == ("imported", "blog")
    changed = {
        change.config.name: {field.path for field in change.fields}
        for change in require_plan(written).changes
        if isinstance(change, Update) and change.config.name == "foo-read-west"
    }
    assert {"sources.foo-write-east", "sources.foo-write-west"} <= changed["foo-read-west"]
    # A rule that leads to its streams, and is not its own: a plan takes it away.
    assert [rule.source for rule in require_plan(written).rule_changes] == ["$JS.ACK.foo.>"]


def test_what_is_not_part_of_a_virtual_stream_is_listed_and_stays() -> None:
    observed = discover_made()
    plain: dict[str, Any] = {"name": "orders", "subjects": ["orders.>"]}
    alone: dict[str, Any] = {"name": "x-write-west", "subjects": ["x.west.>"]}
    bucket: dict[str, Any] = {"name": "KV_b", "subjects": ["$KV.b.>"]}
    strangers = {config["name"]: imports.make_observed(config, "west") for config in (plain, alone, bucket)}
    rules = {server: {**rules, "legacy.>": ("* 100% new.>",)} for server, rules in observed.rules.items()}
    pushing = {"durable_name": "push", "deliver_subject": "to.me", "ack_policy": "explicit"}
    single = {"durable_name": "mine", "ack_policy": "explicit"}
    consumers = {
        **observed.consumers,
        "sensors-read-west": {
            **observed.consumers["sensors-read-west"],
            "push": imports.consumer("sensors-read-west", pushing),
            "mine": imports.consumer("sensors-read-west", single),
        },
    }
    observed = replace(observed, streams={**observed.streams, **strangers}, rules=rules, consumers=consumers)
    written, _ = again(observed)
    assert {(leftover.kind, leftover.name) for leftover in written.undescribed} == {
        ("stream", "orders"),
        ("stream", "x-write-west"),
        ("stream", "KV_b"),
        ("mapping", "legacy.>"),
        ("consumer", "sensors > push"),
        ("consumer", "sensors > mine"),
    }
    by_name = {leftover.name: leftover for leftover in written.undescribed}
    assert "takes_over: orders" in str(by_name["orders"].hint)
    assert by_name["KV_b"].hint is None
    assert require_plan(written).is_empty
    assert all(f"# - {leftover.kind} {leftover.name}: " in written.text for leftover in written.undescribed)


def test_a_durable_that_is_the_same_everywhere_is_part_of_the_topology() -> None:
    observed = discover_made()
    fields = {"durable_name": "hand", "ack_policy": "explicit", "max_deliver": 4}
    consumers = {
        stream: {**consumer, "hand": imports.consumer(stream, fields)}
        for stream, consumer in observed.consumers.items()
        if stream.startswith("sensors-read-")
    }
    written, read = again(replace(observed, consumers=consumers))
    (sensors,) = [stream for stream in read.streams if stream.name == "sensors"]
    assert {consumer.name for consumer in sensors.consumers} == {"hand", "reader", "once"}
    assert written.adopts


def test_without_rules_it_is_left_to_a_human_what_clients_publish_on() -> None:
    topology = check_topology((ROOT / "examples" / "three-regions.yaml").read_bytes(), "three.yaml").require()
    observed = imports.running(topology, has_monitors=False)
    connected = [
        DiscoveredServer(name=f"{endpoint.cluster}-1", cluster=endpoint.cluster, version=(2, 15))
        for endpoint in observed.endpoints
    ]
    written = import_topology(replace(observed, servers=tuple(connected)), name=None, file="found.yaml")
    assert written.plan is None
    assert "subjects: []   # FILL IN" in written.text
    assert {(finding.code, finding.is_error) for finding in written.findings} == {("VS102", True)}
    assert [(leftover.kind, leftover.name) for leftover in written.undescribed] == [("subjects", "foo")]


def test_several_topologies_are_told_apart_by_name() -> None:
    observed = discover_made()
    single_region = check_topology((ROOT / "examples" / "single-region.yaml").read_bytes(), "one.yaml").require()
    both = replace(observed, streams={**observed.streams, **imports.running(single_region).streams})
    with pytest.raises(UnknownNameError, match=r"`acme` .*`single-region`"):
        import_topology(both, name=None, file="found.yaml")
    written, read = again(both, "acme")
    assert "orders" not in {stream.name for stream in read.streams}
    assert [(leftover.kind, leftover.name) for leftover in written.undescribed] == [("topology", "single-region")]
    assert require_plan(written).is_empty


@pytest.mark.parametrize("routing", [routing.value for routing in Routing if routing is not Routing.MAPPED])
def test_another_routing_is_refused(routing: str) -> None:
    text = f"{HEAD}routing: {routing}\nroots: [v.>]\n{REGIONS}streams: {{foo: {{subjects: v.foo, write: {{max_age: 1h}}}}}}\n"
    topology = check_topology(text.encode(), "x.yaml").require()
    observed = imports.running(topology)
    with pytest.raises(RefusedError, match=f"routing: {routing}"):
        import_topology(observed, name=None, file="found.yaml")
    with pytest.raises(RefusedError, match=f"`routing: .*{routing}`"):
        import_topology(replace(observed, streams={}), name=None, file="found.yaml")


@pytest.mark.parametrize("naming", ["isolated", "blog"])
def test_what_paused_streams_listen_on_is_never_what_clients_publish_on(naming: str) -> None:
    """Mapping rules, or the write streams of other regions, say it; of an origin, nothing does."""
    made = discover_made(naming)

    def pause(*names: str) -> Discovered:
        configs = {name: made.streams[name].config for name in names}
        paused = {
            name: replace(made.streams[name], config=config.with_fields(subjects=[pause_subject(name)]))
            for name, config in configs.items()
        }
        return replace(made, streams={**made.streams, **paused})

    written, read = again(pause("sensors-write-west", "hits-write-west"))
    assert read.naming.value == naming
    assert require_plan(written).list_paused() == ("hits-write-west", "sensors-write-west")
    for origin in ("prices", "stock", "KV_flags"):
        with pytest.raises(RefusedError, match=f"`{origin}` is paused"):
            import_topology(pause(origin), name=None, file="found.yaml")


def test_servers_of_different_versions_make_a_topology_for_the_oldest() -> None:
    observed = discover_made()
    older = tuple(replace(server, version=(2, 12 if server.name == "west-1" else 15)) for server in observed.servers)
    _, read = again(replace(observed, servers=older))
    assert read.server_version == (2, 12)


def test_a_source_of_a_stream_that_is_gone_is_said() -> None:
    observed = discover_made()
    streams = {name: stream for name, stream in observed.streams.items() if name != "sensors-write-east"}
    written, _ = again(replace(observed, streams=streams))
    fields = [leftover for leftover in written.undescribed if leftover.kind == "field"]
    assert {leftover.name for leftover in fields} == {"sensors-read-west", "sensors-read-central", "sensors-read-east"}
    assert all("`sensors-write-east`, which does not exist" in leftover.text for leftover in fields)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"servers": (DiscoveredServer(name="w", cluster="west", version=(2, 9)),)}, "server_version"),
        ({"clusters": ("far.away",)}, "far.away"),
    ],
)
def test_what_the_language_has_no_word_for_is_one_clear_error(change: dict[str, Any], said: str) -> None:
    with pytest.raises(VstreamError, match=f"a topology cannot describe what runs: .*{said}"):
        import_topology(replace(discover_made(), **change), name=None, file="found.yaml")


def test_a_stream_whose_name_the_language_has_not_is_left_over() -> None:
    observed = discover_made()
    streams = {
        name.replace("stock", "st+ck"): imports.make_observed(
            {
                **stream.config.fields,
                "name": name.replace("stock", "st+ck"),
                "metadata": {},
                "mirror": {"name": "st+ck"},
            }
            if "stock-read" in name
            else {**stream.config.fields, "name": name.replace("stock", "st+ck"), "metadata": {}}
        )
        if "stock" in name
        else stream
        for name, stream in observed.streams.items()
    }
    written, _ = again(replace(observed, streams=streams))
    assert {leftover.name for leftover in written.undescribed} == {
        "st+ck", "st+ck-read-west", "st+ck-read-central", "st+ck-read-east",
    }  # fmt: skip


def test_durables_on_streams_that_nobody_reads_from_are_left_over() -> None:
    observed = discover_made()
    fields = {"durable_name": "tap", "ack_policy": "explicit"}
    consumers = {**observed.consumers, "sensors-write-west": {"tap": imports.consumer("sensors-write-west", fields)}}
    written, _ = again(replace(observed, consumers=consumers))
    assert [(leftover.kind, leftover.name) for leftover in written.undescribed] == [
        ("consumer", "sensors-write-west > tap")
    ]


def test_where_nothing_runs_there_are_regions_only() -> None:
    observed = discover_made()
    written, read = again(replace(observed, streams={}, rules={}, consumers={}))
    assert (read.streams, [region.name for region in read.regions]) == ((), ["west", "middle", "east"])
    assert read.stretch is not None
    assert list(read.stretch.members) == ["west", "middle", "east"]
    assert written.name == "imported"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_reads_back(value: Any) -> None:
    assert yaml.parse(f"x: {flow_value(value)}\n".encode(), "x.yaml").data == {"x": value}


@given(st.dictionaries(st.text("abc", min_size=1), VALUES, max_size=3), st.text(max_size=30))
def test_comments_stay_comments(streams: dict[str, Any], comment: str) -> None:
    written = format_yaml(
        {"streams": streams}, [comment], {f"streams.{stream}": comment for stream in streams}, [comment]
    )
    assert yaml.parse(written.encode(errors="replace"), "x.yaml").data == {"streams": streams}


@pytest.mark.parametrize("is_marked", [True, False])
def test_an_order_that_carries_the_name_is_told_from_an_origin(is_marked: bool) -> None:
    text = (ROOT / "tests" / "golden" / "named.yaml").read_text(encoding="utf-8")
    full = text.replace("users: {", "users: {history: 5, ttl: 2h, max_bytes: 1GiB, marker_ttl: 1m, ")
    topology = check_topology(full.encode(), "named.yaml").require()
    observed = imports.running(topology)
    written, read = again(observed if is_marked else without_marks(observed), "acme")
    assert written.undescribed == ()
    assert {
        stream.name: (stream.consistency, stream.is_virtual_name_of_order, stream.regions) for stream in read.streams
    } == {
        stream.name: (stream.consistency, stream.is_virtual_name_of_order, stream.regions)
        for stream in topology.streams
    }
    # Buckets are said as such; that somebody has to look where their keys are written, too.
    data = yaml.parse(written.text.encode(), "found.yaml").data
    bucket = {"consistency": "ordered", "virtual_name": "order", "writers": "one-per-key"}
    assert isinstance(data, dict)
    assert data["kv"] == {"users": {**bucket, "history": 5, "ttl": "2h", "max_bytes": "1GiB", "marker_ttl": "1m"}}
    assert data["objects"] == {"files": bucket}
    assert written.text.count("writers: one-per-key   # LOOK") == 2
    assert (require_plan(written).blocked, require_plan(written).rule_changes) == ((), ())
    assert {
        field.path.partition(".")[0]
        for change in require_plan(written).changes
        if isinstance(change, Update)
        for field in change.fields
    } == (set() if is_marked else {"metadata"})
    # The order says its subjects, too, where nobody says what servers have loaded.
    _, unheard = again(replace(observed, rules={}), "acme")
    assert {stream.name: stream.subjects for stream in unheard.streams} == {
        stream.name: stream.subjects for stream in topology.streams
    }
