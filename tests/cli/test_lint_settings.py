"""What `vstream lint` reports, where it looks, and what it never shows."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.command import Ran, vstream
from tests.support.lint_inputs import PIECES, token
from tests.support.paths import ROOT

DEAD = 'mappings {\n  "$JS.ACK.foo.>": "$JS.ACK.bar.>"\n}\n'
OPEN = "listen: 0.0.0.0:4222\n"
SECRET = "hunter2-of-the-build"


def codes(*arguments: str | Path) -> list[str]:
    ran = vstream("lint", "--format", "json", *arguments)
    return [finding["code"] for finding in ran.json()["findings"]]


def test_policy_is_off_unless_asked_for(here: Path) -> None:
    (here / "a.conf").write_text(OPEN)
    assert codes("a.conf") == []
    assert codes("a.conf", "--extend-select", "policy") == ["VS418"]
    assert codes("a.conf", "--select", "VS418") == ["VS418"]
    assert codes("a.conf", "--select", "VS4") == []
    assert codes("a.conf", "--select", "ALL") == ["VS418"]


def test_groups_and_codes_are_selected_and_ignored(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    assert "VS335" in codes("m.cfg", "--select", "routing")
    assert codes("m.cfg", "--select", "streams,servers") == []
    assert codes("m.cfg", "--ignore", "VS335") == []
    assert codes("m.cfg", "--ignore", "VS33") == []


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        ("", "", ["VS303"]),
        ("", "--extend-select policy", ["VS303", "VS418"]),
        ("", "--extend-select policy --ignore VS41", ["VS303"]),
        ("", "--extend-select policy --ignore VS3", ["VS418"]),
        ("", "--select ALL --ignore ALL", []),
        ("", "--select VS303 --ignore VS3", ["VS303"]),
        ("", "--select VS3 --ignore VS303", []),
        ("", "--select mapping --ignore VS303", []),
        ("", "--select VS303 --ignore mapping", ["VS303"]),
        ("", "--select vs303,policy", ["VS303", "VS418"]),
        ("select = []", "", []),
        ("select = []", "--extend-select VS303", ["VS303"]),
        ('select = ["policy"]', "", ["VS418"]),
        ('select = ["policy"]', "--select VS303", ["VS303"]),
        ('extend-select = ["policy"]', "--select VS303", ["VS303"]),
        ('ignore = ["VS303"]', "", []),
        ('ignore = ["VS303"]', "--select VS303", ["VS303"]),
        ('ignore = ["VS303"]', "--extend-select VS303", ["VS303"]),
        ('ignore = ["VS303"]', "--extend-select policy", ["VS418"]),
        ('ignore = ["mapping"]', "--extend-select VS303", ["VS303"]),
        ('ignore = ["VS303"]\nextend-select = ["policy"]', "--ignore VS418", []),
        ('per-file-ignores = {"*.conf" = ["VS3", "VS41"]}', "--extend-select policy", []),
        ('per-file-ignores = {"b.conf" = ["ALL"]}', "", ["VS303"]),
        ('exclude = ["*.conf"]', "", ["VS303"]),
        ('exclude = ["*.conf"]', "--force-exclude", []),
    ],
)
def test_what_names_a_rule_most_closely_counts(here: Path, settings: str, arguments: str, expected: list[str]) -> None:
    (here / ".vstream.toml").write_text(f"[lint]\n{settings}\n")
    (here / "a.conf").write_text(OPEN + 'mappings { "o": p, "o": q }\n')
    assert sorted(codes("a.conf", *arguments.split())) == expected


def test_the_settings_above_what_is_named_count(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (here / name).mkdir()
        (here / name / "a.conf").write_text('mappings { "o": p, "o": q }\n')
    (here / "one" / ".vstream.toml").write_text('[lint]\nignore = ["VS303"]\n')
    assert codes("one") == []
    assert codes("one/a.conf") == []
    assert codes("two") == ["VS303"]
    assert codes("one", "two") == ["VS303", "VS303"]
    monkeypatch.chdir(here / "one")
    assert codes("../two") == ["VS303"]


@pytest.mark.parametrize(
    ("selector", "message"),
    [("mappings", "did you mean `mapping`?"), ("VS999", "there is no rule or group `VS999`"), ("VS351", "VS350")],
)
def test_what_selects_nothing_is_an_error(here: Path, selector: str, message: str) -> None:
    ran = vstream("lint", "--select", selector)
    assert ran.code == 3
    assert message in ran.err


@pytest.mark.parametrize(
    ("least", "code"), [("error", 0), ("warning", 1), ("note", 1)], ids=["error", "warning", "note"]
)
def test_the_weight_that_fails_can_be_chosen(here: Path, least: str, code: int) -> None:
    (here / "m.cfg").write_text(DEAD)
    assert vstream("lint", "m.cfg", "--fail-on", least).code == code
    (here / "n.json").write_text("{}")
    assert vstream("lint", "n.json", "--fail-on", least).code == (1 if least == "note" else 0)


@pytest.mark.parametrize(
    ("file", "header"),
    [("pyproject.toml", "[tool.vstream.lint]"), (".vstream.toml", "[lint]")],
    ids=["pyproject", "own"],
)
def test_settings_of_the_repository_count_in_its_directories(
    here: Path, monkeypatch: pytest.MonkeyPatch, file: str, header: str
) -> None:
    settings = 'extend-select = ["policy"]\nexclude = ["vendor"]\nfail-on = "error"\n'
    inner = header.rstrip("]") + ".per-file-ignores]\n" + '"old/*" = ["VS335"]\n'
    (here / file).write_text(f'{header}\n{settings}{inner}{header.rstrip("]")}.severity]\nVS418 = "error"\n')
    for directory in ("old", "vendor", "new"):
        (here / directory).mkdir()
        (here / directory / "m.cfg").write_text(DEAD)
    (here / "new/a.conf").write_text(OPEN)
    ran = vstream("lint", "--format", "json", ".")
    findings = [(finding["code"], finding["file"], finding["severity"]) for finding in ran.json()["findings"]]
    assert findings == [("VS418", "new/a.conf", "error"), ("VS335", "new/m.cfg", "warning")]
    assert ran.code == 1
    monkeypatch.chdir(here / "new")
    assert codes("m.cfg") == ["VS335"]
    assert vstream("lint", "m.cfg").code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('selct = ["VS3"]', "did you mean `select`?"),
        ('select = "VS3"', "`select` must be a list of strings"),
        ('fail-on = "never"', "`fail-on` must be one of error, warning, note"),
        ('ignore = ["VS3', ".vstream.toml:2:15: not TOML"),
    ],
)
def test_a_mistake_in_the_settings_is_said(here: Path, text: str, message: str) -> None:
    (here / ".vstream.toml").write_text(f"[lint]\n{text}\n")
    ran = vstream("lint", ".")
    assert ran.code == 3
    assert message in ran.err


def test_a_file_can_ignore_a_rule_as_a_whole(here: Path) -> None:
    (here / "m.cfg").write_text(f"# vstream: ignore-file[VS335] an old client\n{DEAD}")
    assert codes("m.cfg") == []
    (here / "m.cfg").write_text("# vstream: ignore-file[VS335] an old client\nmappings {}\n")
    assert codes("m.cfg") == ["VS009"]


def test_a_suppression_of_a_policy_that_is_off_is_no_mistake(here: Path) -> None:
    (here / "a.conf").write_text("listen: 0.0.0.0:4222 # vstream: ignore[VS418] a container\n")
    assert codes("a.conf") == []


def test_a_retired_code_says_what_replaced_it(here: Path) -> None:
    (here / "m.cfg").write_text("# vstream: ignore[VS351] leaf nodes are trusted\nmappings {}\n")
    ran = vstream("lint", "m.cfg", "--format", "concise")
    assert "VS351 is retired: VS350 covers it" in ran.out
    explained = vstream("lint", "--explain", "vs351")
    assert (explained.code, explained.out) == (0, "VS351 is retired: VS350 covers it\n")


def test_no_variable_of_the_environment_is_looked_at_or_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEC", SECRET)
    (here / "a.conf").write_text(
        'listen: 127.0.0.1:4222\nmappings { "foo.>": $SEC }\ncluster { name: west, pool_size: $SEC }\n'
    )
    ran = vstream("lint", "a.conf", "--format", "json")
    findings = ran.json()["findings"]
    assert [(finding["code"], finding["severity"], finding["line"]) for finding in findings] == [("VS012", "note", 2)]
    assert ran.code == 0
    for options in (("--select", "VS421"), ("--ignore", "VS012")):
        assert vstream("lint", "a.conf", "--format", "json", *options).json()["findings"] == []
    asked = vstream("lint", "a.conf", "--env", "SEC", "--format", "json")
    assert "VS307" in asked.out
    assert "$SEC" in asked.out
    assert SECRET not in asked.out + asked.err


def test_a_value_that_cannot_be_read_is_not_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEC", f"{{ {SECRET} ]")
    (here / "a.conf").write_text("listen: 127.0.0.1:4222\nserver_name: $SEC\n")
    ran = vstream("lint", "a.conf", "--env", "SEC")
    assert "VS012" in ran.out
    assert SECRET not in ran.out + ran.err


def test_variables_can_come_from_a_file(here: Path) -> None:
    (here / "test.env").write_text("# of the tests\nexport PORT=4222\nHOST='127.0.0.1'\n")
    (here / "a.conf").write_text("port: $PORT\nhost: $HOST\nhttp: $HTTP\n")
    ran = vstream("lint", "a.conf", "--env-file", "test.env", "--format", "concise")
    assert [line.split(": ")[0:2] for line in ran.out.splitlines()] == [["a.conf:3:7", "error VS012"]]


@pytest.mark.parametrize("line", ["PORT 4222", "PORT: 4222", SECRET, "=4222", "A B=4222"])
def test_a_line_of_a_file_of_variables_that_sets_none_is_refused_and_not_shown(here: Path, line: str) -> None:
    (here / "test.env").write_text(f"# of the tests\n\nHOST=a\n{line}\n")
    (here / "a.conf").write_text("port: $PORT\n")
    ran = vstream("lint", "a.conf", "--env-file", "test.env")
    assert (ran.code, ran.out) == (3, "")
    assert "test.env: line 4 is not NAME=VALUE" in ran.err
    assert line not in ran.err


def test_a_variable_whose_value_reads_as_a_number_gets_quotes_that_stay(here: Path) -> None:
    (here / "a.conf").write_text("authorization { user: a, password: $PASS }\n")
    for value, codes in (("10k", ["VS424"]), ("'10k'", ["VS424"]), ("""'"10k"'""", [])):
        (here / "test.env").write_text(f"PASS={value}\n")
        ran = vstream("lint", "a.conf", "--env-file", "test.env", "--format", "json")
        violations = [finding for finding in ran.json()["findings"] if finding["severity"] == "error"]
        assert [violation["code"] for violation in violations] == codes, value
        assert [violation["hint"] for violation in violations] == [
            """write '"…"' into `PASS`, with both quotes"""
        ] * len(codes)


def test_variables_that_the_nats_chart_sets_are_known_in_what_it_has_made(here: Path) -> None:
    (here / "test.env").write_text("ZONE=a\n")
    text = '{"pid_file": "/var/run/nats/%s.pid", "server_name": $SERVER_NAME, "server_tags": [$POD_NAME, $ZONE]}'
    for name, codes in (("nats", []), ("mine", ["VS012", "VS012"])):
        (here / "a.conf").write_text(text % name)
        ran = vstream("lint", "a.conf", "--env-file", "test.env", "--format", "json")
        assert [finding["code"] for finding in ran.json()["findings"]] == codes, name
    (here / "a.conf").write_text(text % "nats")
    (note,) = vstream("lint", "a.conf", "--format", "json").json()["findings"]
    assert "`ZONE` comes from the environment" in note["message"]


def outside(here: Path) -> Path:
    directory = here.parent / f"{here.name}-outside"
    directory.mkdir()
    (directory / "passwd").write_text(f"root {SECRET} ]]\n")
    (directory / "more.cfg").write_text("mappings { a: b }\n")
    return directory


@pytest.mark.parametrize("output", ["full", "concise", "json", "github", "sarif", "junit", "gitlab"])
def test_secrets_in_files_of_the_repository_are_not_shown(here: Path, output: str) -> None:
    seed = "SUAO6GKUMIED7LMY3W3J253TDBOCUAUY5FNMARC2J6AJOCFEQEUMLYSH5Q"
    (here / "user.nk").write_text(f"{seed}\n")
    (here / "passphrase").write_text(f"{SECRET}\n")
    (here / "credentials").write_text(f"https://bob:{SECRET}@github.example\n")
    (here / "variables").write_text(f"P = {SECRET}.b\n")
    (here / "users.cfg").write_text(
        f'authorization {{ users: [ {{user: a, password: "{SECRET}", bogus: 1}}, {{nkey: {seed}}} ] }}\n'
        f'leafnodes {{ remotes [ {{url: 5, urls: ["nats://u:{SECRET}@h.example"], seed: {seed}, creds: 5}} ] }}\n'
    )
    for name in ("user.nk", "passphrase", "credentials", "users.cfg"):
        (here / f"{name}.conf").write_text(f'listen: 127.0.0.1:4222\ninclude "{name}"\n')
    (here / "v.conf").write_text('include "variables"\nlisten: 127.0.0.1:4222\nmappings { "foo.>": $P }\n')
    (here / "s.yaml").write_text("scenario: 1\nname: s\ntopology: passphrase\nsteps:\n  - wait: 5s\n")
    ran = vstream("lint", ".", "--format", output)
    assert ran.code == 1
    for code in ("VS010", "VS421", "VS424", "VS307", "VS005"):
        assert code in ran.out
    for secret in (seed, SECRET):
        assert secret not in ran.out + ran.err


def test_files_outside_of_the_repository_are_not_read(here: Path) -> None:
    elsewhere = outside(here)
    (here / "a.conf").write_text(f'listen: 127.0.0.1:4222\ninclude "../{elsewhere.name}/passwd"\n')
    (here / "link.cfg").symlink_to(elsewhere / "passwd")
    (here / "b.conf").write_text('listen: 127.0.0.1:4223\ninclude "link.cfg"\n')
    scenario = f"scenario: 1\nname: s\ntopology: {elsewhere}/passwd\nsteps:\n  - wait: 5s\n"
    (here / "s.yaml").write_text(scenario)
    ran = vstream("lint", ".")
    assert ran.out.count("it is outside of the repository") == 3
    assert SECRET not in ran.out + ran.err
    (here / "a.conf").write_text(f'listen: 127.0.0.1:4222\ninclude "../{elsewhere.name}/more.cfg"\n')
    assert "VS011" in codes("a.conf")
    assert codes("a.conf", "--allow-outside") == []


def test_without_a_repository_the_directory_of_the_files_is_the_limit(here: Path) -> None:
    (here / ".git").rmdir()
    (here / "inner").mkdir()
    (here / "inner/a.conf").write_text("listen: 127.0.0.1:4222\ninclude ../b.cfg\n")
    (here / "b.cfg").write_text("mappings { a: b }\n")
    assert codes("inner/a.conf") == ["VS011"]
    assert codes("inner/a.conf", "b.cfg") == []


def test_what_vstream_rendered_is_not_linted_again(here: Path) -> None:
    assert vstream("init", "topology.yaml").code == 0
    alone = vstream("lint", ".", "--format", "json")
    assert vstream("render", "topology.yaml", "-o", "build").code == 0
    assert vstream("lint", ".", "--format", "json").out == alone.out
    assert "in 1 file" not in vstream("lint", "build").err


def test_nothing_to_check_is_a_valid_document_in_every_format(here: Path) -> None:
    def empty(name: str) -> Ran:
        ran = vstream("lint", "--format", name)
        assert ran.code == 3
        assert "there is nothing to check" in ran.err
        return ran

    assert empty("json").json()["findings"] == []
    assert empty("sarif").json()["runs"][0]["results"] == []
    assert ET.fromstring(empty("junit").out).tag == "testsuites"
    assert empty("github").out == empty("concise").out == empty("full").out == ""


def test_one_mistake_in_several_files_is_shown_once(here: Path) -> None:
    for name in ("a", "b", "c"):
        (here / f"{name}.cfg").write_text(DEAD)
    ran = vstream("lint", ".")
    assert ran.out.count("warning VS335") == 1
    assert "the same at b.cfg:2:3, c.cfg:2:3" in ran.out
    assert codes(".") == ["VS335"] * 3


RENDERED = (
    'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 3}, east: {servers: 3}}\n'
    "streams: {foo: {subjects: [foo.>], write: {max_age: 30s}}}\n"
)
"""A warning about what it renders to."""
ALIKE = {
    **{path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.yaml"))},
    "rendered": RENDERED,
    "unknown-key": RENDERED.replace("max_age", "maxage"),
    "wrong-value": RENDERED.replace("30s", "soon"),
    "unknown-region": RENDERED.replace("[foo.>]", "[foo.>], regions: [wset]"),
    "not-yaml": RENDERED + "  ]\n",
    "twice": RENDERED + "name: acme\n",
    "silenced": RENDERED.replace("streams:", "# vstream: ignore[VS226]\nstreams:"),
    "scenario": "scenario: 1\nname: s\ntopology: none.yaml\nsteps:\n  - wait: 5s\n",
    "latin-1": "regions: {}\nstreams: {}\n# \xe9\n",
}


@pytest.mark.parametrize("name", ALIKE)
def test_validate_is_lint_of_one_topology(here: Path, name: str) -> None:
    (here / "t.yaml").write_text(ALIKE[name], encoding="latin-1" if name == "latin-1" else "utf-8")
    validated, linted = (vstream(command, "t.yaml", "--format", "json") for command in ("validate", "lint"))
    assert validated.out == linted.out
    assert validated.code == linted.code
    assert bool(validated.code) == (not name.endswith(".yaml"))


EXAMPLES = int(os.environ.get("VSTREAM_ORACLE_EXAMPLES", "6")) // (100 if os.environ.get("VSTREAM_NIGHT") else 1)
TORN = (
    *PIECES,
    "{",
    "servers: 3",
    "regions",
    "streams:",
    "max_age: 0s",
    "subjects: [a.>]",
    "version: 2",
    "\n  ",
    "-1",
    "null",
)


def tear(text: str, source: random.Random) -> str:
    """*text* with up to three pieces removed, repeated or replaced."""
    for _ in range(source.randint(0, 3)):
        start = source.randrange(max(1, len(text)))
        end = min(len(text), start + source.randint(0, 25))
        text = text[:start] + source.choice([source.choice(TORN), text[start:end] * 2, ""]) + text[end:]
    return text


def test_validate_is_lint_of_any_topology(here: Path) -> None:
    source = random.Random(11)
    seen: Counter[str] = Counter()
    for _ in range(EXAMPLES):
        text = tear(ALIKE[source.choice(sorted(ALIKE))], source)
        (here / "t.yaml").write_text(text, errors="surrogatepass")
        validated, linted = (vstream(command, "t.yaml", "--format", "json") for command in ("validate", "lint"))
        codes = [finding["code"] for finding in linted.json()["findings"]]
        # Of a file in which nothing speaks for a topology, lint says so; who validates it says that it is one.
        assert codes == ["VS007"] or (validated.out, validated.code) == (linted.out, linted.code), text
        seen.update(codes)
    assert len(seen) > min(EXAMPLES, 20) // 4


def test_validate_takes_the_settings_of_lint(here: Path) -> None:
    (here / "t.yaml").write_text(RENDERED)
    (here / ".vstream.toml").write_text('[lint]\nfail-on = "error"\nextend-select = ["policy"]\nbaseline = "b.json"\n')
    assert vstream("lint", "t.yaml", "--write-baseline").code == 0
    assert vstream("validate", "t.yaml").out == ""
    (here / "b.json").unlink()
    (here / ".vstream.toml").write_text('[lint]\nfail-on = "error"\n[lint.severity]\nVS226 = "note"\n')
    ran = vstream("validate", "t.yaml", "--format", "concise")
    assert (ran.code, "note VS226" in ran.out) == (0, True)


def test_names_cannot_begin_a_line_of_junit(here: Path) -> None:
    claims = {"nats": {"type": "account", "mappings": {"a.\n::error::pwn": [{"subject": "", "weight": 100}]}}}
    (here / "a.jwt").write_text(token(claims))
    ran = vstream("lint", "a.jwt", "--format", "junit")
    assert not any(line.startswith("::") for line in ran.out.splitlines())


def test_an_unknown_key_of_a_topology_has_no_followers(here: Path) -> None:
    (here / "topology.yaml").write_text(
        'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 3}}\n'
        "streams: {foo: {subjects: [foo.>], write: {maxage: 24h}}}\n"
    )
    assert codes("topology.yaml") == ["VS006"]


def test_the_information_of_a_consumer_is_no_server_configuration(here: Path) -> None:
    info = {
        "stream_name": "s",
        "name": "c",
        "config": {"durable_name": "c", "ack_policy": "explicit"},
        "cluster": {"leader": "x"},
    }
    (here / "info.json").write_text(json.dumps(info))
    assert vstream("lint", "info.json").err == "nothing found in 1 file\n"


def test_a_stream_for_the_nats_command_needs_no_name(here: Path) -> None:
    (here / "orders.json").write_text(
        '{"subjects": ["o.>"], "retention": "limits", "storage": "tape", "num_replicas": 3}'
    )
    assert codes("orders.json") == ["VS234"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port: 4222 // the usual one\n", []),
        ("http: 8222\nhttp_port: 8222\nmonitor_port: 8222\nlisten: 127.0.0.1:4222\n", []),
        ('mapings: {"o.>": "a.>"}\n', ["VS421"]),
        ("foo {{{ ]\n", ["VS010"]),
        ("something = else\n", ["VS007"]),
    ],
)
def test_a_small_configuration_has_exactly_these_findings(here: Path, text: str, expected: list[str]) -> None:
    (here / "a.conf").write_text(text)
    assert codes("a.conf") == expected


def test_a_cluster_without_a_name_hides_no_typo(here: Path) -> None:
    rules = "\n".join(
        f'"{name}.>": [{{destination: "_v.{name}.west.>", weight: 100%, cluster: west}},'
        f' {{destination: "_v.{name}.east.>", weight: 100%, cluster: {"eats" if name == "c" else "east"}}}]'
        for name in "abcd"
    )
    (here / "a.conf").write_text(f"listen: 127.0.0.1:4222\ncluster {{ port: 6222 }}\nmappings {{\n{rules}\n}}\n")
    assert {"VS315", "VS404"} <= set(codes("a.conf"))


def test_a_finding_about_many_clusters_names_a_few(here: Path) -> None:
    clusters = [f"c{number:02}" for number in range(59)]
    rules = []
    for name in "abcd":
        named = clusters[:1] if name == "a" else clusters
        destinations = [
            f'{{destination: "_v.{name}.{cluster}.>", weight: 100%, cluster: {cluster}}}' for cluster in named
        ]
        rules.append(f'"{name}.>": [{", ".join(destinations)}]')
    (here / "a.conf").write_text("mappings {\n" + "\n".join(rules) + "\n}\n")
    ran = vstream("lint", "a.conf", "--format", "concise")
    assert "VS316" in ran.out
    assert "and 48 more" in ran.out
    assert max(map(len, ran.out.splitlines())) < 400


def test_map_shows_bytes_that_are_no_text_as_text(here: Path) -> None:
    (here / "m.cfg").write_text('mappings { "s.*": "s.{{splitFromLeft(1,2)}}" }\n', encoding="utf-8")
    ran = vstream("map", "s.aäü", "m.cfg", "--format", "json")
    assert ran.code == 0
    assert "\\\\x" in ran.out
    assert "\\ud" not in ran.out
    assert "\\ud" not in vstream("map", "s.aäü", "m.cfg").out


def test_a_directory_where_nothing_can_be_checked_is_said(here: Path) -> None:
    (here / "broken.conf").write_text("foo {{{ ]\n")
    ran = vstream("lint", ".")
    assert (ran.code, "there is nothing to check" in ran.err) == (3, True)
    assert vstream("lint", "broken.conf").code == 1
