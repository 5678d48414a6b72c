"""Views of server configurations, and what is wrong with mappings in the server's own words."""

from __future__ import annotations

import pytest

from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.workspace import MappingsBlock, ServerConf


def server(text: str) -> ServerConf:
    parsed = parse_sources([Source(name="a.conf", content=text.encode())], read=lambda _: b"")
    assert parsed.findings == []
    return parsed.servers[0]


def block(text: str) -> MappingsBlock:
    return server(f"mappings {{\n{text}\n}}\n").mappings[0]


@pytest.mark.parametrize(
    ("text", "server_message"),
    [
        ("a: 0000-01-01T00:00:00Z", "Expected an entry for the mapping destination"),
        ("a: 5", "Expected an entry for the mapping destination"),
        ("a: [b]", "Expected an entry for the mapping destination"),
        ("a: [[{dest: b}]]", "Expected an entry for the mapping destination"),
        ("a: {}", 'Missing weight for mapping destination ""'),
        ("a: {dest: b}", 'Missing weight for mapping destination "b"'),
        ("a: {dest: b, weight: 100, wieght: 5}", 'Unknown field "wieght" for mapping destination'),
        ("a: {dest: 5, weight: 100}", "interface conversion: interface {} is int64, not string"),
        ("a: {dest: b, weight: 100, cluster: [w]}", "interface conversion: interface {} is []interface {}, not string"),
        ("a: {dest: b, weight: 5.5}", "Unknown entry type for weight of 5.5"),
        ('a: {dest: b, weight: "5x"}', 'Invalid weight "5x" for mapping destination'),
        ("a: {dest: b, weight: true}", "Unknown entry type for weight of true"),
    ],
)
def test_what_the_server_cannot_read_has_its_own_wording(text: str, server_message: str) -> None:
    (entry,) = block(text).entries
    assert [fault.server_message for fault in entry.list_faults()] == [server_message]


@pytest.mark.parametrize("value", ["5", "[a]", "word"])
def test_mappings_that_are_no_map_are_a_fault_of_the_block(value: str) -> None:
    (mappings,) = server(f"mappings: {value}\n").mappings
    assert mappings.fault is not None
    assert mappings.entries == ()


def test_entries_keep_their_order_and_duplicates() -> None:
    mappings = block("b: x\na: y\nb: z")
    assert [(entry.source, entry.key_span.line) for entry in mappings.entries] == [("b", 2), ("a", 3), ("b", 4)]
    assert [mapping.destinations[0].subject for mapping in mappings.table.mappings] == ["z", "y"]


def test_destinations_have_the_places_of_keys_and_values() -> None:
    (destination,) = block("a: [{destination: b, weight: 50%, cluster: west}]").entries[0].destinations
    assert destination.subject is not None
    assert destination.weight is not None
    assert destination.cluster is not None
    assert destination.subject.key_span is not None
    assert [value.span.column for value in (destination.subject, destination.weight, destination.cluster)] == [
        19,
        30,
        44,
    ]
    assert destination.subject.key_span.column == 6
    assert (destination.model.subject, destination.model.weight, destination.model.cluster) == ("b", 50, "west")


def test_errors_of_the_table_find_their_destination() -> None:
    mappings = block('a: x\n"c.*": ["{{wildcard(9)}}"]\nb.*: [{dest: "x.{{wildcard(3)}}", weight: 100}]')
    assert [mappings.locate_error(error).line for error in mappings.table.errors] == [4]


SERVER = """\
Server_Name: west-1
listen: "0.0.0.0:4222"
http: 8222
jetstream: {store_dir: "/data", max_file_store: 10GB, max_mem: 1GB}
cluster {name: west, port: 6222, host: 10.0.0.1}
gateway {name: west, listen: ":7222", gateways: [{name: east, url: "nats://e"}, {name: west, urls: [a, b]}]}
leafnodes {remotes: [{url: "nats://hub", account: A}]}
system_account: SYS
accounts {
  SYS {users: [{nkey: UABC}]}
  A {
    default_permissions {publish: "d.>"}
    users: [
      {user: x, password: p, permissions: {publish: {allow: ["a.>", b], deny: c}, subscribe: [s]}}
      {user: y}
    ]
    mappings {foo: bar}
  }
}
"""


def test_the_views_of_a_server_find_what_was_written() -> None:
    config = server(SERVER)
    assert not config.is_fragment
    assert config.server_name is not None
    assert (config.server_name.text, config.server_name.span.line) == ("west-1", 1)
    assert config.cluster_name is not None
    assert config.cluster_name.text == "west"
    assert config.gateway is not None
    assert [remote.name and remote.name.text for remote in config.gateway.remotes] == ["east", "west"]
    assert [[url.text for url in remote.urls] for remote in config.gateway.remotes] == [["nats://e"], ["a", "b"]]
    assert config.jetstream is not None
    assert config.jetstream.max_file is not None
    assert (config.jetstream.is_enabled, config.jetstream.max_file.value) == (True, 10 * 1024**3)
    assert config.system_account is not None
    assert config.system_account.text == "SYS"
    assert [remote.account and remote.account.text for remote in config.leaf_remotes] == ["A"]
    assert [(mapping.account, mapping.entries[0].source) for mapping in config.mappings] == [("A", "foo")]


def test_listeners_are_all_ports_that_are_opened() -> None:
    listeners = {
        listener.block: (listener.host, listener.port, listener.is_everywhere) for listener in server(SERVER).listeners
    }
    assert listeners == {
        "client": ("0.0.0.0", 4222, True),
        "http": ("0.0.0.0", 8222, True),
        "cluster": ("10.0.0.1", 6222, False),
        "gateway": ("", 7222, True),
    }


def test_users_have_their_own_permissions_or_the_default_ones() -> None:
    users = {user.name: user for user in server(SERVER).users}
    assert sorted(users) == ["UABC", "x", "y"]
    assert users["x"].password is not None
    publish = users["x"].publish
    assert publish is not None
    assert publish.allow is not None
    assert ([subject.text for subject in publish.allow], [subject.text for subject in publish.deny]) == (
        ["a.>", "b"],
        ["c"],
    )
    default = users["y"].publish
    assert default is not None
    assert [subject.text for subject in default.allow or ()] == ["d.>"]
    assert users["UABC"].publish is None


@pytest.mark.parametrize(
    ("text", "is_enabled"),
    [
        ("jetstream: enabled", True),
        ("jetstream: disabled", False),
        ("jetstream: false", False),
        ("jetstream {}", True),
        ("jetstream {enabled: false}", False),
    ],
)
def test_jetstream_has_many_switches(text: str, is_enabled: bool) -> None:
    jetstream = server(f"port: 1\n{text}\n").jetstream
    assert jetstream is not None
    assert jetstream.is_enabled is is_enabled


def test_a_file_of_mappings_alone_is_a_fragment() -> None:
    config = server("mappings { foo: bar }\n")
    assert config.is_fragment
    assert config.listeners == ()


def test_blocks_that_are_replaced_do_not_count_and_two_words_are_two_blocks() -> None:
    conf = server("maps {a: b}\nmappings {c: d}\nmappings {e: f}\naccounts {A {mappings {g: h}, maps {i: j}}}")
    assert [[entry.source for entry in mapping.entries] for mapping in conf.mappings] == [["a"], ["e"], ["g"], ["i"]]


def test_weights_may_have_any_number_of_zeros_in_front() -> None:
    (entry,) = block("a: {destination: b, weight: '+000000000000000000000050%'}").entries
    assert (entry.list_faults(), entry.model.destinations[0].weight) == ((), 50)
