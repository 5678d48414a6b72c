"""What is written in a topology: every error of shape in its place, every setting from the level that decides it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support import shapes
from tests.support.topologies import HEAD, REGIONS, concise
from vstream.lint.check_topology import check_topology
from vstream.topology.model import Link, Topology

START = HEAD + REGIONS
NAMES = "letters, digits, `-` and `_` only, beginning with a letter or digit"
NO_SIZE = "write it like `512MiB`, `10GB` or `unlimited`"


def problems(text: str) -> str:
    return concise(check_topology(text.encode(), "t.yaml").findings)


def topology(text: str) -> Topology:
    return check_topology((START + text).encode(), "t.yaml").require()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("regions: {}\n",
         ("1:1: error VS005: `name` is missing\n    hint: name the topology: streams are marked with it as their owner\n"
         "1:1: error VS005: `server_version` is missing\n"
         '    hint: state the oldest nats-server that must be able to run this, such as `server_version: "2.12"`\n'
         "1:1: error VS005: `version` is missing\n    hint: write `version: 1`, the version of the topology language\n"
         "1:10: error VS005: `regions` is empty\n    hint: name at least one region, such as `west: {servers: 3}`\n")),
        ("- a\n", "1:1: error VS005: `the document` must be a map of keys and values\n"),
        ("~\n", "1:1: error VS005: the file has no content\n    hint: `vstream init` writes a commented starter\n"),
    ],
)  # fmt: skip
def test_a_document_that_is_none(text: str, expected: str) -> None:
    assert problems(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("strems: {}", "5:1: error VS006: unknown key `strems`\n    hint: did you mean `streams`?\n"),
        ("zzz: {}", ("5:1: error VS006: unknown key `zzz`\n    hint: known here: `account`, `connect`, `defaults`, `hubs`, `jetstream`, `kv`, `links`, "
         "`moves_from`, `moves_to`, `name`, `naming`, `nats_checks`, `objects`, `presets`, `regions`, `roots`, `routing`, `security`, "
         "`server_options`, `server_version`, `streams`, `stretch`, `survive`, `version`\n")),
        ("profile: accounts", "5:1: error VS006: unknown key `profile`\n    hint: did you mean `routing`?\n"),
        ("streams: {foo: {subjects: x, model: ordered}}", ("5:30: error VS006: unknown key `model`\n"
            "    hint: did you mean `consistency`?\n")),
        ("defaults: {zzz: 1}", ("5:12: error VS006: unknown key `zzz`\n"
         "    hint: a setting of the JetStream API without its own key here goes under `config`\n")),
        ("streams: {foo: {subjects: x, retention: workqueue}}", ("5:30: error VS006: unknown key `retention`\n"
         "    hint: a virtual stream can only have limits: acknowledgements in one region say nothing about another; remove it; for a work queue, "
         "let all regions share a consumer of a `stretch` or `homed` stream, or use a plain stream outside of the topology\n")),
        ("streams: {foo: {subjects: x, consumers: {c: {deliver_subject: y}}}}", ("5:46: error VS006: unknown key `deliver_subject`\n"
         "    hint: each region would push its own copy of every message to it; remove it\n")),
        ("security: operator", ("5:11: error VS005: `security` must be a map of keys and values\n"
         "    hint: known there: `certificates`, `limits`, `mode`, `transport`, `users`\n")),
        ("defaults: {write: {max_ag: 1h}}", "5:20: error VS006: unknown key `max_ag`\n    hint: did you mean `max_age`?\n"),
        ("presets: {p: {read: {replica: 1}}}", "5:22: error VS006: unknown key `replica`\n    hint: did you mean `replicas`?\n"),
        ("connect: {west: {tls: {caa: x}}}", "5:24: error VS006: unknown key `caa`\n    hint: did you mean `ca`?\n"),
        ("connect: {west: {password: x}}", "5:18: error VS006: unknown key `password`\n    hint: did you mean `password_env`?\n"),
        ("streams: {foo: {subjects: x, overrides: {west: {replica: 1}}}}",
         "5:49: error VS006: unknown key `replica`\n    hint: did you mean `replicas`?\n"),
        ("streams:", "5:9: error VS005: `streams` has nothing below it\n    hint: indent its keys below it, or remove it\n"),
        ("streams: {foo: }", "5:16: error VS005: `streams.foo` has nothing below it\n    hint: indent its keys below it, or remove it\n"),
        ("streams: {foo: {}}", ("5:11: error VS005: `streams.foo.subjects` is missing\n"
         "    hint: list the subjects that clients publish on, such as `subjects: [foo.>]`\n")),
        ("streams: [foo]", "5:10: error VS005: `streams` must be a map of keys and values\n"),
        ("defaults: {write: 1h}", "5:19: error VS005: `defaults.write` must be a map of keys and values\n"),
        ("naming: block", "5:9: error VS005: `naming` must be `isolated`, `blog`, not `block`\n    hint: did you mean `blog`?\n"),
        ("streams: {foo: {subjects: x, consistency: order}}",
         ("5:43: error VS005: `streams.foo.consistency` must be `virtual`, `ordered`, `stretch`, `homed`, not `order`\n"
         "    hint: did you mean `ordered`?\n")),
        ("streams: {foo: {subjects: {a: 1}}}", "5:27: error VS005: `streams.foo.subjects`: expected a text or a list of texts\n"),
        ("streams: {foo: {subjects: [a, 5]}}", "5:31: error VS005: `streams.foo.subjects.1`: `5` is not text: put it in quotes\n"),
        ("streams: {foo.bar: {subjects: a}}", "5:11: error VS005: `foo.bar` is not a valid name\n    hint: letters, digits, `-` and `_` only\n"),
        ("presets: {'a b': {}}", f"5:11: error VS005: `a b` is not a valid name\n    hint: {NAMES}\n"),
        ("presets: {'[key]': 5}", ("5:20: error VS005: `presets.[key]` must be a map of keys and values\n"
         f"5:11: error VS005: `[key]` is not a valid name\n    hint: {NAMES}\n")),
        (f"streams: {{{'x' * 129}: {{subjects: a}}}}", (f"5:11: error VS005: `{'x' * 59}…` is longer than 128 characters\n"
         "    hint: choose a shorter name\n")),
        ("defaults: {description: 5}", "5:25: error VS005: `defaults.description` must be text\n    hint: put it in quotes\n"),
        ("defaults: {description: [a]}", "5:25: error VS005: `defaults.description` must be text\n"),
        ("defaults: {metadata: {a: 1}}", "5:26: error VS005: `defaults.metadata.a` must be text\n    hint: put it in quotes\n"),
        ("defaults: {allow_rollup: yes}", "5:26: error VS005: `defaults.allow_rollup` must be `true` or `false`\n"),
        ("defaults: {replicas: 6}", "5:22: error VS005: `defaults.replicas` must be a whole number from 1 to 5\n"),
        ("defaults: {replicas: '3'}", "5:22: error VS005: `defaults.replicas` must be a whole number from 1 to 5\n    hint: remove the quotes\n"),
        ("defaults: {max_age: 5}", "5:21: error VS005: `defaults.max_age`: a duration needs a unit: `5s`, `5m`, `5h` or `5d`?\n"),
        ("defaults: {max_age: [1h]}", "5:21: error VS005: `defaults.max_age`: a duration is a text such as `90s`, `1h30m` or `30d`\n"),
        ("defaults: {max_age: 1 hour}",
         "5:21: error VS005: `defaults.max_age`: `1 hour` is not a valid duration: write it like `90s`, `1h30m`, `30d` or `unlimited`\n"),
        ("defaults: {max_age: 0s}",
         "5:21: error VS005: `defaults.max_age`: to a server, 0 means no limit: write `unlimited` if you mean it\n"),
        ("defaults: {max_age: 99ms}", "5:21: error VS005: `defaults.max_age`: servers accept no max_age below 100ms\n"),
        ("defaults: {duplicate_window: unlimited}",
         "5:30: error VS005: `defaults.duplicate_window`: a window must have an end: write it like `2m`, or `0s` for none\n"),
        ("defaults: {max_bytes: 1G}",
         "5:23: error VS005: `defaults.max_bytes`: `1G` can mean two sizes: write `1GiB` (powers of 1024) or `1GB` (of 1000)\n"),
        ("defaults: {max_bytes: 0}",
         "5:23: error VS005: `defaults.max_bytes`: to a server, 0 bytes means no limit: write `unlimited` if you mean it\n"),
        ("defaults: {max_bytes: true}",
         "5:23: error VS005: `defaults.max_bytes`: a size is a number of bytes or a text such as `512MiB`\n"),
        ("defaults: {max_bytes: -1}", f"5:23: error VS005: `defaults.max_bytes`: `-1` is not a valid size: {NO_SIZE}\n"),
        ("defaults: {max_msg_size: 2GiB}",
         "5:26: error VS005: `defaults.max_msg_size`: at most 2GiB less one byte: a server counts the bytes of a message in 32 bits\n"),
        ("defaults: {max_msgs: 0}", "5:22: error VS005: `defaults.max_msgs`: a count is a whole number above 0, or `unlimited`\n"),
        ("defaults: {max_msgs: 9223372036854775808}",
         "5:22: error VS005: `defaults.max_msgs`: a count is a whole number above 0, or `unlimited`\n"),
        ("defaults: {storage: disk}", "5:21: error VS005: `defaults.storage` must be `file`, `memory`, not `disk`\n"),
        ("jetstream: {sync_interval: 1d}",
         "5:28: error VS005: `1d` is not a valid interval\n    hint: write `always`, or a time such as `10s` or `2m`\n"),
        ("jetstream: {store_dir: ''}", "5:24: error VS005: `jetstream.store_dir` is empty\n    hint: remove it, or write something\n"),
        ("connect: {west: {user: ops, password_env: s3cr3t!}}",
         "5:43: error VS005: `connect.west.password_env` must be the name of an environment variable\n    hint: the secret itself never stands here\n"),
        ("links: {default: {rtt: 140}}", "5:24: error VS005: `links.default.rtt`: a duration needs a unit: `140s`, `140m`, `140h` or `140d`?\n"),
        ("links: {default: {rtt: 2m}}",
         "5:24: error VS005: `links.default.rtt`: no link is longer than 1m: to cut one, use `vstream chaos`\n"),
        ("links: {default: {jitter: unlimited}}",
         "5:27: error VS005: `links.default.jitter`: an unlimited time would cut the link: write a time such as `140ms`\n"),
        ("links: {default: {rate: 200}}", "5:25: error VS005: `links.default.rate`: a rate needs a unit: write it like `200mbit`\n"),
        ('defaults: {metadata: {"a\\e[31m\\n::error::b": v}}',
         "5:46: error VS005: `defaults.metadata.a\\x1b[31m\\n::error::b.[key]`: a key of metadata has no line breaks and no other control characters\n"),
        ("links: {default: {loss: 1}}", "5:25: error VS005: `links.default.loss`: a loss is a percentage such as `1%`\n"),
        ("links: {default: {loss: 100%}}",
         "5:25: error VS005: `links.default.loss`: `100%` is not a percentage below 100: write it like `1%` or `0.5%`\n"),
        ("links: {default: {delay: 5ms}}",
         "5:19: error VS006: unknown key `delay`\n    hint: known here: `jitter`, `loss`, `rate`, `rtt`\n"),
        ("streams: {foo: {subjects: a, regions: west}}",
         "5:39: error VS005: `streams.foo.regions`: regions are `all` or a list of region names\n"),
        ("streams: {foo: {subjects: a, regions: []}}",
         "5:39: error VS005: `streams.foo.regions`: name at least one region, or write `all`\n"),
        ("streams: {foo: {subjects: a, regions: [west, east, west]}}",
         "5:52: error VS005: `streams.foo.regions.2`: the region `west` is listed twice\n"),
    ],
)  # fmt: skip
def test_an_error_of_shape_says_what_where_and_the_way_out(line: str, expected: str) -> None:
    assert sorted(problems(f"{START}{line}\n").splitlines()) == sorted(expected.splitlines())


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("{}", "4:11: error VS005: `regions.west.servers` is missing\n    hint: give a number (`servers: 3`) or host names\n"),
        ("{servers: 0}", "4:27: error VS005: `regions.west.servers`: a region has 1 to 99 servers\n"),
        ("{servers: three}", "4:27: error VS005: `regions.west.servers`: servers are a number (`3`) or a list of host names\n"),
        ("{servers: [a, 'b:4222']}", ("4:31: error VS005: `regions.west.servers.1`: `b:4222` is not a host name; "
         "ports are given once per region, under `ports`\n")),
        ("{servers: [a, '::1']}", ("4:31: error VS005: `regions.west.servers.1`: "
         'write an IPv6 address in brackets and quotes: `"[::1]"`\n')),
        ("{servers: ['[::g]']}", ("4:28: error VS005: `regions.west.servers.0`: `[::g]` is not a host name; "
         "ports are given once per region, under `ports`\n")),
        ("{servers: [a, b, A]}", "4:34: error VS005: `regions.west.servers.2`: the host `a` is listed twice\n"),
        ("{servers: 1, tags: ssd}",
         "4:36: error VS005: `regions.west.tags`: one entry for each server: a tag (`az:a`) or a list of tags\n"),
        ("{servers: 1, tags: [a b]}",
         "4:37: error VS005: `regions.west.tags.0`: `a b` is not a valid tag: write a text without spaces and commas, such as `az:a`\n"),
        ("{servers: 1, ports: {client: 0}}", "4:46: error VS005: `regions.west.ports.client` must be a whole number from 1 to 65535\n"),
    ],
)  # fmt: skip
def test_an_error_in_a_region_says_what_where_and_the_way_out(region: str, expected: str) -> None:
    assert problems(f"{HEAD}regions: {{west: {region}}}\n") == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('version: "1"\nname: a\nserver_version: "2.12"\n', "1:10: error VS005: `version` must be the number 1\n    hint: remove the quotes\n"),
        ('version: 2\nname: a\nserver_version: "2.12"\n', "1:10: error VS005: `version` must be `1`, not `2`\n    hint: only a newer vstream reads this file\n"),
        ("version: 1\nname: a\nserver_version: 2.10\n",
         '3:17: error VS005: `server_version`: a server version is written `"2.10"`: in quotes, since YAML reads 2.10 as 2.1\n'),
        ('version: 1\nname: a\nserver_version: "3.0"\n',
         '3:17: error VS005: `server_version`: a server version is written `"2.12"`: 2.10 is the oldest that can run virtual streams\n'),
        ('version: 1\nname: a\nserver_version: "2.9"\n',
         "3:17: error VS005: `server_version`: cluster-scoped mappings and source transforms need nats-server 2.10 or newer\n"),
        ('version: 1\nname: -a\nserver_version: "2.12"\n', f"2:7: error VS005: `-a` is not a valid name\n    hint: {NAMES}\n"),
    ],
)  # fmt: skip
def test_an_error_in_the_head_says_what_where_and_the_way_out(head: str, expected: str) -> None:
    assert problems(head + REGIONS) == expected


def test_all_errors_of_a_file_come_at_once_in_its_order_keys_written_twice_included() -> None:
    assert problems(f"{START}name: other\nnamin: blog\nstreams:\n  foo: {{subjects: [1]}}\n") == (
        "5:1: error VS002: `name` is written twice, first on line 2\n    hint: remove one of the two\n"
        "6:1: error VS006: unknown key `namin`\n    hint: did you mean `naming`?\n"
        "8:20: error VS005: `streams.foo.subjects.0`: `1` is not text: put it in quotes\n"
    )


def test_a_file_that_is_something_else_lists_a_bounded_number_of_errors() -> None:
    loading = check_topology(
        HEAD.encode() + b"".join(b"key%d: 1\n" % number for number in range(5_000)), "t.yaml"
    ).findings
    assert len(loading) == 201
    assert loading[-1].message == "4,801 more errors are not listed"


LEVELS = """\
defaults: {max_msgs: 1, write: {max_age: 1h, max_msgs: 2}}
presets:
  one: {max_msgs: 3, read: {max_msgs: 4}}
  two: {max_msgs: 5}
"""


@pytest.mark.parametrize(
    ("stream", "write", "read"),
    [
        ("{}", 2, 1),
        ("{extends: one}", 3, 4),
        ("{extends: [one, two]}", 5, 5),
        ("{extends: [two, one]}", 3, 4),
        ("{extends: one, max_msgs: 6}", 6, 6),
        ("{extends: one, max_msgs: 6, read: {max_msgs: 7}}", 6, 7),
        ("{max_msgs: 6, overrides: {west: {max_msgs: 8}}}", 8, 8),
        ("{max_msgs: 6, overrides: {west: {max_msgs: 8, write: {max_msgs: 9}}}}", 9, 8),
        ("{max_msgs: 6, overrides: {west: {max_msgs: null}}}", 6, 6),
        ("{max_msgs: unlimited}", -1, -1),
    ],
)
def test_the_nearer_level_decides_and_write_and_read_over_common_at_one_level(
    stream: str, write: int, read: int
) -> None:
    text = stream.replace("{", "{subjects: foo, ", 1).replace(", }", "}")
    (foo,) = topology(f"{LEVELS}streams: {{foo: {text}}}\n").streams
    assert (foo.write_settings["west"]["max_msgs"], foo.read_settings["west"]["max_msgs"]) == (
        write,
        read,
    )


def test_an_override_changes_no_other_region() -> None:
    (foo,) = topology(f"{LEVELS}streams: {{foo: {{subjects: foo, overrides: {{west: {{max_msgs: 8}}}}}}}}\n").streams
    assert foo.write_settings["east"]["max_msgs"] == 2


def test_metadata_and_config_are_put_together_from_all_levels() -> None:
    (foo,) = topology(
        "defaults: {metadata: {a: '1', b: '1'}, config: {no_ack: false}, write: {max_age: 1h}}\n"
        "streams: {foo: {subjects: foo, metadata: {b: '2'}, read: {metadata: {c: '3'}, config: {first_seq: 5}}}}\n"
    ).streams
    assert foo.write_settings["west"]["metadata"] == {"a": "1", "b": "2"}
    assert foo.read_settings["west"]["metadata"] == {"a": "1", "b": "2", "c": "3"}
    assert (foo.read_settings["west"]["no_ack"], foo.read_settings["west"]["first_seq"]) == (False, 5)
    assert "first_seq" not in foo.write_settings["west"]


def fields(text: str, *, role: str = "write", region: str = "west") -> Any:
    (foo,) = topology(f"streams: {{foo: {{subjects: foo, {text}}}}}\n").streams
    return getattr(foo, f"{role}_settings")[region]


def test_what_is_not_said_has_a_default_that_is_written_out() -> None:
    assert fields("max_age: 1h") == {
        "retention": "limits", "storage": "file", "num_replicas": 3, "max_age": 3600 * 10**9, "max_bytes": -1, "max_msgs": -1,
        "max_msgs_per_subject": -1, "max_msg_size": -1, "max_consumers": -1, "discard": "old", "compression": "none",
        "allow_direct": True, "allow_rollup_hdrs": False, "deny_delete": False, "deny_purge": False,
        "duplicate_window": 120 * 10**9, "placement": {"cluster": "west"}, "metadata": {},
    }  # fmt: skip


def test_the_default_window_is_never_longer_than_max_age() -> None:
    assert fields("max_age: 1m")["duplicate_window"] == 60 * 10**9
    assert fields("max_age: unlimited")["duplicate_window"] == 120 * 10**9


@pytest.mark.parametrize(("version", "window"), [("2.10", 10**8), ("2.13", 10**8), ("2.14", 0), ("2.15", 0)])
def test_read_streams_do_not_deduplicate_as_far_as_the_server_lets_them(version: str, window: int) -> None:
    text = START.replace("2.12", version) + "streams: {foo: {subjects: foo, max_age: 1h}}\n"
    (foo,) = check_topology(text.encode(), "t.yaml").require().streams
    assert foo.read_settings["west"]["duplicate_window"] == window


def test_three_replicas_by_default_only_where_every_region_of_the_stream_has_three_servers() -> None:
    text = (
        f"{HEAD}regions: {{west: {{servers: 3}}, east: {{servers: 2}}}}\ndefaults: {{max_age: 1h}}\n"
        "streams: {all: {subjects: all}, west: {subjects: west, regions: [west]}}\n"
    )
    everywhere, west = check_topology(text.encode(), "t.yaml").require().streams
    assert everywhere.write_settings["west"]["num_replicas"] == 1
    assert west.write_settings["west"]["num_replicas"] == 3


@pytest.mark.parametrize("members", ["all", "[west, central, east]"])
@pytest.mark.parametrize(("lost", "replicas"), [(["west"], 2), (["west", "east"], 1), ([], 3)])
def test_members_of_the_stretch_cluster_go_with_their_regions_and_each_that_is_left_has_a_copy(
    members: str, lost: list[str], replicas: int
) -> None:
    regions = "".join(
        f"  {name}: {{servers: 1{', lost: {}' if name in lost else ''}}}\n" for name in ("west", "central", "east")
    )
    text = f"{HEAD}regions:\n{regions}stretch: {{members: {members}}}\n"
    text += "streams: {foo: {subjects: foo, consistency: stretch, max_age: 1h}}\n"
    smaller = check_topology(text.encode(), "t.yaml").require()
    assert smaller.stretch is not None
    assert {*smaller.stretch.members}.isdisjoint(lost)
    assert smaller.streams[0].origin_settings["stretch"]["num_replicas"] == replicas
    assert smaller.server_names_in("west") == ("west-1", "stretch-west")


def test_the_regions_of_a_stream_are_in_the_order_of_the_topology() -> None:
    (foo,) = topology("streams: {foo: {subjects: foo, max_age: 1h, regions: [east, west]}}\n").streams
    assert foo.regions == ("west", "east")


def test_placement_names_the_cluster_and_the_tags() -> None:
    text = f"{HEAD}regions: {{west: {{servers: 1, cluster: c1, tags: [[ssd, az:a]]}}}}\n"
    text += "streams: {foo: {subjects: foo, max_age: 1h, placement_tags: ssd}}\n"
    (foo,) = check_topology(text.encode(), "t.yaml").require().streams
    assert foo.write_settings["west"]["placement"] == {"cluster": "c1", "tags": ["ssd"]}


@given(shapes.topologies)
def test_whatever_looks_like_a_topology_is_one_or_has_an_error(value: Any) -> None:
    loaded = check_topology(shapes.as_file(value), "t.yaml")
    assert loaded.topology is not None or any(finding.is_error for finding in loaded.findings)
    assert [finding.sort_key() for finding in loaded.findings] == sorted(
        finding.sort_key() for finding in loaded.findings
    )
    assert all(finding.span is not None and finding.message.isprintable() for finding in loaded.findings)


@given(shapes.anything)
def test_no_value_makes_loading_raise(value: Any) -> None:
    loaded = check_topology(shapes.as_file(value), "t.yaml")
    assert loaded.topology is not None or any(finding.is_error for finding in loaded.findings)


def load_messages(text: str) -> list[str]:
    loading = check_topology(text.encode(), "t.yaml").findings
    return [f"{finding.span.line if finding.span else 0} {finding.code} {finding.message}" for finding in loading]


TWO_REGIONS = (
    'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}, east: {servers: 1, tags: 3}}\n'
)


def test_wrong_values_do_not_hide_what_the_rules_find() -> None:
    text = TWO_REGIONS + (
        "streams:\n"
        "  foo: {subjects: [foo.>], regions: [wset], write: {max_age: 1 hour}}\n"
        "  bar: {subjects: [foo.x], writ: {max_age: 1h}}\n"
        "  baz: {write: {max_age: 1h}, extends: none}\n"
        "  NEXT: {subjects: [next], write: {max_age: 1h}}\n"
    )
    lines = load_messages(text)
    assert [line.split(" ")[:2] for line in lines] == [
        ["4", "VS005"],  # the tags
        ["6", "VS101"],
        ["6", "VS005"],
        ["7", "VS103"],
        ["7", "VS006"],
        ["8", "VS005"],  # no subjects; its unknown preset may be a consequence
        ["9", "VS108"],
    ]


def test_consequences_of_a_wrong_value_are_not_reported() -> None:
    assert load_messages(
        TWO_REGIONS.replace("tags: 3", "") + "streams: {foo: {subjects: [foo.>], write: {max_age: soon}}}\n"
    ) == [
        "5 VS005 `streams.foo.write.max_age`: `soon` is not a valid duration: write it like `90s`, `1h30m`, `30d` or `unlimited`"
    ]
    lines = load_messages(
        TWO_REGIONS.replace("{servers: 1, tags: 3}", "{servers: none}")
        + "streams: {foo: {subjects: [f], regions: [east]}}\n"
    )
    assert [line.split(" ")[1] for line in lines] == ["VS005"]


@pytest.mark.parametrize(
    ("levels", "extends", "found"),
    [
        ("defaults: {write: {maxage: 24h}}", "[]", "VS006"),
        ("defaults: {writes: {max_age: 24h}}", "[]", "VS006"),
        ("presets: {log: {write: {max_age: soon}}}", "[log]", "VS005"),
        ("presets: {log: {write: {max_age: 24h}}}", "[logs]", "VS114"),
    ],
)
def test_a_stream_is_not_said_to_lack_what_stands_in_a_wrong_default_or_preset(
    levels: str, extends: str, found: str
) -> None:
    text = (
        f"{HEAD}regions: {{west: {{servers: 1}}}}\n{levels}\nstreams: {{foo: {{subjects: [f], extends: {extends}}}}}\n"
    )
    assert [line.split(" ")[1] for line in load_messages(text)] == [found]


def test_a_link_has_what_it_says_and_the_rest_from_the_default() -> None:
    text = f"""{HEAD}regions: {{west: {{servers: 1}}, central: {{servers: 1}}, east: {{servers: 1}}}}
links:
  default: {{rtt: 60ms, loss: 1%}}
  east-west: {{rtt: 140ms, rate: 200mbit}}
"""
    assert check_topology(text.encode(), "t.yaml").require().links == (
        Link(between=("west", "central"), rtt=60_000_000, loss=0.01),
        Link(between=("west", "east"), rtt=140_000_000, rate=200_000_000, loss=0.01),
        Link(between=("central", "east"), rtt=60_000_000, loss=0.01),
    )
    alone = f"{HEAD}regions: {{west: {{servers: 1}}, us-east: {{servers: 1}}}}\nlinks: {{us-east-west: {{}}}}\n"
    assert check_topology(alone.encode(), "t.yaml").require().links == ()


@pytest.mark.parametrize("model", ["consistency: ordered", "consistency: homed, home: west", "consistency: stretch"])
def test_a_stream_of_unknown_regions_alone_is_told_of_whatever_its_model(model: str) -> None:
    lines = load_messages(
        TWO_REGIONS.replace(", tags: 3", "")
        + "stretch: {members: [west, east, nowhere]}\n"
        + f"streams: {{foo: {{subjects: [foo.>], regions: [nowhere], {model}}}}}\n"
    )
    assert any("nowhere" in line for line in lines)
