"""`vstream map` on topologies: the rules are those of what servers load, whatever that is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.lint_inputs import token

TOPOLOGY = """\
version: 1
name: acme
server_version: "2.12"
roots: [v.>]
regions: {west: {servers: 3}, east: {servers: 3}}
streams: {one: {subjects: [v.one.>], write: {max_age: 1h}}}
"""


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("routing: accounts", "_vs.at.west.v.one.x"),
        ("routing: accounts\nsecurity: {mode: operator}", "_vs.at.west.v.one.x"),
        ("routing: domains", "_vs.w.v.one.x"),
    ],
)
def test_a_publish_is_mapped_as_the_profile_says(tmp_path: Path, over: str, expected: str) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(f"{TOPOLOGY}{over}\n")
    ran = vstream("map", "v.one.x", file, "--region", "west")
    assert (ran.code, expected in ran.out) == (0, True), ran.out + ran.err


def test_a_region_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(TOPOLOGY)
    ran = vstream("map", "v.one.x", file, "--region", "wset")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: no cluster is called `wset`; there are west, east\n"


ACCOUNTS = """\
accounts {
  shop {
    mappings {"in.*": [{destination: "orders.{{wildcard(1)}}", weight: 50}, {destination: "r.{{random(3)}}", weight: 50}]}
    imports: [{service: {account: office, subject: "desk.*"}, to: "orders.*"}]
    exports: [{stream: "orders.>"}, {stream: "r.*"}]
  }
  office {
    mappings {"desk.*": [{destination: "a", weight: 25}, {destination: "b", weight: 75}]}
    exports: [{service: "desk.*", accounts: [shop]}]
  }
  news {imports: [{stream: {account: shop, subject: "orders.>"}, prefix: "seen"}
                  {service: {account: office, subject: "desk.*"}}]}
}
"""


def test_what_other_accounts_see_is_named_with_the_imports_that_bring_it(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(ACCOUNTS)
    ran = vstream("map", "orders.x", file, "--account", "shop")
    assert ran.code == 0, ran.err
    section = ran.out[ran.out.index("other accounts") : ran.out.index("next start")].replace(f"{file}:", "")
    assert " ".join(section.split()) == (
        "other accounts 25 % seen in account `office` as a, by the service import at 4:52"
        " 75 % seen in account `office` as b, by the service import at 4:52"
        " seen in account `news` as seen.orders.x, by its stream import at 11:53"
    )


def test_an_import_that_is_not_exported_to_the_account_takes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(ACCOUNTS)
    ran = vstream("map", "desk.x", file, "--account", "news", "--format", "json")
    assert (ran.code, json.loads(ran.out)["elsewhere"][0]["arrivals"]) == (0, []), ran.err


def test_shares_are_of_all_publishes_and_what_a_drawn_number_decides_is_left_open(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(ACCOUNTS)
    (everywhere,) = json.loads(vstream("map", "in.x", file, "--account", "shop", "--format", "json").out)["elsewhere"]
    assert [(a["account"], a["subject"], a["percent"]) for a in everywhere["arrivals"]] == [
        ("office", "a", 12.5),
        ("office", "b", 37.5),
        ("news", "seen.orders.x", 50),
    ]
    file.write_text(ACCOUNTS.replace('subject: "orders.>"', 'subject: "r.*"'))
    (everywhere,) = json.loads(vstream("map", "in.x", file, "--account", "shop", "--format", "json").out)["elsewhere"]
    assert everywhere["arrivals"] is None


def test_all_lists_rules_imports_and_exports_with_shares(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(ACCOUNTS.replace('subject: "orders.>"', 'subject: "r.*"'))
    routes = vstream("map", "--all", file, "--account", "shop", "--format", "json").json()["routes"]
    fields = ("kind", "source", "destination", "percent", "cluster", "account")
    assert [tuple(route[field] for field in fields) for route in routes] == [
        ("mapping", "in.*", "orders.{{wildcard(1)}}", 50, None, None),
        ("mapping", "in.*", "r.{{random(3)}}", 50, None, None),
        ("service import", "orders.*", "desk.*", 100, None, "office"),
        ("stream export", "r.*", "seen.r.*", 100, None, "news"),
        ("stream export", "orders.>", "orders.>", 100, None, None),
    ]
    shown = vstream("map", "--all", file, "--account", "shop").out
    assert all(word in shown for word in ("50 %", "every", "office", "not imported"))


@pytest.mark.parametrize(
    ("routing", "expected"),
    [("accounts", {"W_west/one"}), ("domains", {"west/one-write"}), ("mapped", {"one-write-west"})],
)
def test_all_names_the_streams_of_a_topology(tmp_path: Path, routing: str, expected: set[str]) -> None:
    file = tmp_path / "acme.yaml"
    roots = "roots: [v.>]\n" if routing == "mapped" else ""
    file.write_text(f"{TOPOLOGY}routing: {routing}\n".replace(roots, ""))
    ran = vstream("map", "--all", file, "--region", "west", "--format", "json")
    assert ran.code == 0, ran.err
    routes = ran.json()["routes"]
    mappings = [route for route in routes if route["kind"] == "mapping"]
    assert {route["cluster"] for route in mappings} == {"west"}
    assert {stream for route in mappings for stream in route["streams"]} == expected


def test_all_says_what_the_server_refuses(tmp_path: Path) -> None:
    file = tmp_path / "m.cfg"
    file.write_text('mappings { "foo.>": "bar", a: [{destination: b, weight: 30}, {destination: a, weight: 30}] }')
    ran = vstream("map", "--all", file)
    assert (ran.code, "refused" in ran.out, "40 % lost" in ran.out) == (1, True, True)


def test_a_subject_alone_is_mapped_by_the_topology_here(tmp_path: Path) -> None:
    ran = vstream("map", "v.one.x", cwd=tmp_path)
    assert (ran.code, "topology.yaml" in ran.err) == (3, True)
    (tmp_path / "acme.yaml").write_text(TOPOLOGY)
    ran = vstream("map", "v.one.x", cwd=tmp_path, variables={"VSTREAM_TOPOLOGY": "acme.yaml"})
    assert (ran.code, "_vs.at.west.v.one.x" in ran.out) == (0, True), ran.out + ran.err
    (tmp_path / "more.yaml").write_text("regions: {north: {servers: 3}}\n")
    ran = vstream("map", "v.one.x", "acme.yaml", "--overlay", "more.yaml", cwd=tmp_path)
    assert (ran.code, "_vs.at.north.v.one.x" in ran.out) == (0, True), ran.out + ran.err


HUB = """\
server_name: hub
cluster {name: core}
leafnodes {listen: "127.0.0.1:7422", authorization: {users: [{user: edge, password: pw, account: A}]}}
accounts {A {mappings: {"in.*": [{destination: "a.{{wildcard(1)}}", weight: 25}, {destination: "b.{{wildcard(1)}}", weight: 75}]}}}
"""
EDGE = """\
server_name: edge
leafnodes {remotes: [{url: "nats://edge:pw@127.0.0.1:7422", deny_exports: "private.>", deny_imports: "b.>"}]}
"""


@pytest.fixture
def leaves(tmp_path: Path) -> Path:
    (tmp_path / "hub.conf").write_text(HUB)
    (tmp_path / "edge.conf").write_text(EDGE)
    return tmp_path


def test_a_publish_crosses_leaf_nodes_and_is_mapped_on_the_other_side(leaves: Path) -> None:
    ran = vstream("map", "in.x", "edge.conf", "hub.conf", "--region", "edge", cwd=leaves)
    assert ran.code == 0, ran.err
    assert "  25 % seen on `hub`, account `A` as a.x, by the connection at edge.conf:2:22" in ran.out.splitlines()
    assert "  75 % seen on `hub`, account `A` as b.x, by the connection at edge.conf:2:22" in ran.out.splitlines()


def test_rules_of_two_servers_for_the_global_account_are_told_apart_by_the_server(tmp_path: Path) -> None:
    (tmp_path / "hub.conf").write_text(
        'server_name: hub\nleafnodes {listen: "127.0.0.1:7422"}\nmappings: {"orders.*": "hub.{{wildcard(1)}}"}\n'
    )
    (tmp_path / "edge.conf").write_text(
        'server_name: edge\nleafnodes {remotes: [{url: "nats://127.0.0.1:7422"}]}\n'
        'mappings: {"in.*": "orders.{{wildcard(1)}}"}\n'
    )
    for account in ((), ("--account", "$G")):
        asked = vstream("map", "in.a", "edge.conf", "hub.conf", *account, cwd=tmp_path)
        assert (asked.code, "choose a server with --region: edge, hub" in asked.err) == (3, True), asked.err
        ran = vstream("map", "in.a", "edge.conf", "hub.conf", "--region", "edge", *account, cwd=tmp_path)
        assert "  seen on `hub`, account `$G` as hub.a, by the connection at edge.conf:2:22" in ran.out, ran.err


def test_rules_that_only_a_leaf_node_has_are_of_no_cluster(leaves: Path) -> None:
    (leaves / "edge.conf").write_text(EDGE + 'accounts {B {mappings: {"out.*": "c.{{wildcard(1)}}"}}}\n')
    for account, subject, heading in (
        ("A", "in.x", "a publish to `in.x` in cluster `core`, account `A`"),
        ("B", "out.x", "a publish to `out.x`, account `B`"),
    ):
        ran = vstream("map", subject, "edge.conf", "hub.conf", "--account", account, cwd=leaves)
        assert ran.out.splitlines()[0] == heading, ran.err


def test_a_denied_subject_does_not_cross_and_the_denial_is_named(leaves: Path) -> None:
    ran = vstream("map", "private.x", "edge.conf", "hub.conf", "--region", "edge", "--format", "json", cwd=leaves)
    (crossing,) = json.loads(ran.out)["leaf_nodes"]
    assert (crossing["server"], crossing["refused"]) == ("hub", "`private.>` is denied")
    inward = vstream("map", "in.x", "edge.conf", "hub.conf", "--region", "core", "--account", "A", cwd=leaves)
    lines = inward.out.splitlines()
    assert "  25 % seen on `edge`, account `$G` as a.x, by the connection at edge.conf:2:22" in lines
    assert any(
        line.startswith("  b.x does not reach `edge`, account `$G`: `b.>` is denied at edge.conf:2:") for line in lines
    )


def test_jetstream_does_not_cross_by_its_own_subjects(leaves: Path) -> None:
    ran = vstream("map", "$KV.bucket.key", "edge.conf", "hub.conf", "--region", "edge", cwd=leaves)
    assert "$KV.bucket.key does not reach `hub`, account `A`: `$KV.>` is denied" in ran.out


def test_a_connection_whose_account_only_credentials_say_is_not_followed(leaves: Path) -> None:
    (leaves / "edge.conf").write_text(
        EDGE.replace("edge:pw@", "").replace("deny_exports", "credentials: x.creds, deny_exports")
    )
    ran = vstream("map", "in.x", "edge.conf", "hub.conf", "--region", "core", "--account", "A", cwd=leaves)
    assert ran.code == 0, ran.err
    assert "leaf nodes" not in ran.out


OPERATOR = "operator: OAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QZVT\n"


@pytest.mark.parametrize("rules", ["", 'mappings { "a.>": "b.>" }\n'])
@pytest.mark.parametrize("question", [("a.x",), ("a.x", "--account", "APP"), ("--all",)])
def test_what_an_operator_has_signed_is_not_known_without_its_tokens(
    tmp_path: Path, rules: str, question: tuple[str, ...]
) -> None:
    server = tmp_path / "server.conf"
    server.write_text(OPERATOR + "resolver: { type: full, dir: /r }\n" + rules)
    ran = vstream("map", *question[:1], server, *question[1:])
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == (
        "error: what servers do with it is not known: an operator has signed the accounts\n"
        "hint: name the JWTs of the accounts too, or their claims as JSON\n"
    )
    account = tmp_path / "app.jwt"
    account.write_text(token({"sub": "ABC", "name": "APP", "nats": {"type": "account"}}))
    assert vstream("map", *question[:1], server, account, *question[1:]).code == 0


def test_a_token_of_no_account_answers_nothing(tmp_path: Path) -> None:
    user = tmp_path / "user.jwt"
    user.write_text(token({"sub": "UBC", "name": "u", "nats": {"type": "user"}}))
    assert vstream("map", "a.x", user).code == 3
    assert "note VS007: only tokens of accounts are checked" in vstream("lint", user).out
