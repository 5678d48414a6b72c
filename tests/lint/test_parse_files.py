"""Files to what rules look at: kinds, includes, claims, tokens, topologies."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.support.lint_inputs import BLOG, CLAIMS, SERVER, STREAM, TOPOLOGY, make_context, token
from vstream.findings import Finding, Severity
from vstream.lint import detect
from vstream.lint.check_topology import check_topology
from vstream.lint.detect import FileKind
from vstream.lint.engine import lint
from vstream.lint.parse_files import ParsedFiles, Source, parse_sources
from vstream.lint.workspace import MappingForm, StreamRole

SCENARIO = "scenario: 1\nname: s\ntopology: {regions: {}, streams: {}}\nsteps:\n  - wait: 5s\n"


def parse_files(*names: str, env: Mapping[str, str] | None = None, **files: str) -> ParsedFiles:
    """What the files called *names* (`a_conf` is `a.conf`) say; the others can be included."""
    contents = {name.replace("__", "/").replace("_", "."): text.encode() for name, text in files.items()}

    def read(name: str) -> bytes:
        if name not in contents:
            raise FileNotFoundError(2, "No such file or directory")
        return contents[name]

    sources = [Source(name=name, content=contents[name]) for name in names or contents]
    return parse_sources(sources, read=read, env=env)


def list_places(findings: list[Finding]) -> list[tuple[str, str, int, int]]:
    return [
        (finding.code, finding.span.file, finding.span.line, finding.span.column)
        for finding in findings
        if finding.span
    ]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("mappings.cfg", BLOG, FileKind.CONF),
        ("-", BLOG, FileKind.CONF),
        ("setup.cfg", "[metadata]\nversion = 1\n", FileKind.OTHER),
        ("server.conf", SERVER, FileKind.CONF),
        ("account.jwt", token(CLAIMS), FileKind.TOKEN),
        ("-", f"-----BEGIN NATS ACCOUNT JWT-----\n{token(CLAIMS)}\n------END NATS ACCOUNT JWT------\n", FileKind.TOKEN),
        ("stream.json", STREAM, FileKind.JSON),
        ("-", STREAM, FileKind.JSON),
        ("topology.yaml", TOPOLOGY, FileKind.TOPOLOGY),
        ("-", TOPOLOGY, FileKind.TOPOLOGY),
        ("topology.yaml", '{"version":1,"name":"a","regions":{"w":{"servers":1}},"streams":{}}', FileKind.TOPOLOGY),
        ("split.yaml", SCENARIO, FileKind.SCENARIO),
        ("-", SCENARIO, FileKind.SCENARIO),
        ("compose.yaml", "services: {}\n", FileKind.OTHER),
    ],
)
def test_files_are_known_by_their_content(name: str, text: str, kind: FileKind) -> None:
    assert detect.detect(text, name) is kind


@pytest.mark.parametrize("name", ["a.cfg", "a"])
def test_a_byte_order_mark_does_not_hide_what_a_file_is(name: str) -> None:
    assert detect.detect("\ufeffmappings {a: b}\n", name) is FileKind.CONF


def test_a_file_that_was_found_needs_more_to_be_a_topology_than_one_that_was_named() -> None:
    assert detect.detect("streams: {}\n", "a.yaml") is FileKind.TOPOLOGY
    assert detect.detect("streams: {}\n", "a.yaml", is_named=False) is FileKind.OTHER


def test_other_programs_files_are_passed_over_unless_they_are_named() -> None:
    source = Source(name="package.json", content=b'{"name": "x"}')
    assert [finding.severity for finding in parse_sources([source], read=lambda _: b"").findings] == [Severity.NOTE]
    hidden = Source(name="package.json", content=b'{"name": "x"}', is_named=False)
    assert parse_sources([hidden], read=lambda _: b"").findings == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "nginx.conf",
            "worker_processes 4;\nhttp {\n  server {\n    listen 80;\n    location / { proxy_pass http://h; }\n  }\n}\n",
        ),
        ("nginx.conf", "events {}\nhttp { server { listen 80; } }\n"),
        (
            "postgresql.conf",
            "listen_addresses = '*'\nport = 5432\nmax_connections = 100\nshared_buffers = 128MB\nmax_wal_size = 1GB\n",
        ),
        ("redis.conf", "bind 127.0.0.1 -::1\nprotected-mode yes\nport 6379\n"),
        ("uwsgi.conf", "http = :8080\nmodule = app:app\nprocesses = 4\n"),
        ("config.json", '{"port": 3000, "host": "h", "cluster": {"workers": 4}}'),
        ("index.json", '{"mappings": {"properties": {"a": {"type": "keyword"}}}}'),
        ("index.json", '{"settings": {"shards": 1}, "mappings": {"_doc": {}}}'),
    ],
)
def test_options_that_other_programs_share_do_not_make_their_files_ours(name: str, text: str) -> None:
    passed = parse_sources([Source(name=name, content=text.encode(), is_named=False)], read=lambda _: b"")
    assert (passed.findings, passed.servers) == ([], [])
    assert parse_sources([Source(name=name, content=text.encode())], read=lambda _: b"").servers


def test_texts_of_an_application_are_not_the_options_of_a_server() -> None:
    texts = {name: {"title": name} for name in ("common", "nav", "charts", "jetstream", "kv", "docs", "help", "about")}
    source = Source(name="en.json", content=json.dumps(texts).encode())
    named = parse_sources([source], read=lambda _: b"")
    assert ([finding.code for finding in named.findings], named.servers) == (["VS007"], [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.conf", "port: 4222\nhttp: 8222\nmax_conections: 5\n"),
        ("a.conf", "acounts {}\nx: 1\ny: 2\n"),
        ("a.conf", "jetstream {}\nx: 1\ny: 2\n"),
        ("a.json", '{"listen": "h:4222", "jetstream": {"store_dir": "/d"}}'),
    ],
)
def test_files_of_servers_with_mistakes_are_found(name: str, text: str) -> None:
    assert parse_sources([Source(name=name, content=text.encode(), is_named=False)], read=lambda _: b"").servers


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\0b", "this is a binary file: it contains NUL bytes"),
        ("mappings {}".encode("utf-16"), "this is UTF-16 text"),
        (b"mappings {\n \xe9 }", "this is not UTF-8 text: byte 0xe9"),
        (b" " * (detect.MAX_BYTES + 1), "more than 32 MiB: too large for a configuration"),
    ],
)
def test_what_is_no_text_is_one_clear_error(content: bytes, message: str) -> None:
    (problem,) = parse_sources([Source(name="a.conf", content=content)], read=lambda _: b"").findings
    assert (problem.code, problem.message) == ("VS004", message)


def test_bytes_that_are_no_text_have_a_place() -> None:
    problems = parse_sources([Source(name="a.conf", content="é\nab".encode() + b"\xff")], read=lambda _: b"").findings
    assert list_places(problems) == [("VS004", "a.conf", 2, 3)]


def test_a_configuration_with_too_many_values_is_refused_before_it_takes_memory() -> None:
    parsed = parse_files(a_conf="port:1\n" * (detect.MAX_VALUES + 1))
    assert [finding.code for finding in parsed.findings] == ["VS003"]


def test_included_files_are_read_relative_to_the_file_that_includes_them() -> None:
    result = parse_files(
        "servers/a.conf",
        servers__a_conf='server_name: a\ninclude "../shared/b.conf"\n',
        shared__b_conf="include /c.conf\n",
        shared__c_conf="mappings { foo: bar }\n",
    )
    (server,) = result.servers
    assert result.findings == []
    assert server.included == ("shared/b.conf", "shared/c.conf")
    assert [block.file for block in server.mappings] == ["shared/c.conf"]


def test_a_file_that_nine_servers_include_has_one_block_of_mappings() -> None:
    servers = [
        Source(name=f"{number}.conf", content=f"server_name: s{number}\ninclude mappings.cfg\n".encode())
        for number in range(9)
    ]
    shared = Source(name="mappings.cfg", content=b"mappings { foo: bar }")
    workspace = parse_sources([*servers, shared], read=lambda _: shared.content).workspace()
    assert len(workspace.servers) == 10
    assert [block.file for block in workspace.blocks] == ["mappings.cfg"]


def test_a_block_belongs_to_the_account_that_includes_it() -> None:
    workspace = parse_files(
        s_conf="server_name: s\naccounts { A { include mappings.cfg } }\n", mappings_cfg="mappings { foo: bar }"
    ).workspace()
    assert [block.account for block in workspace.blocks] == ["A"]


def test_cycles_and_missing_files_are_errors_where_they_are_included() -> None:
    result = parse_files("a.conf", a_conf="include b.conf\ninclude none.conf\n", b_conf="port: 1\n include a.conf\n")
    assert list_places(result.findings) == [("VS011", "b.conf", 2, 10), ("VS011", "a.conf", 2, 9)]


def test_all_that_is_included_counts_towards_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "MAX_VALUES", 1000)
    lines = "a:1\n" * 500
    result = parse_files("a.conf", a_conf="include b.conf\ninclude b.conf\ninclude b.conf\n", b_conf=lines)
    assert {finding.code for finding in result.findings} == {"VS011"}


def test_variables_come_from_the_environment() -> None:
    text = "port: $PORT\nhost: $HOST\n"
    result = parse_files(a_conf=text, env={"PORT": "4222"})
    assert list_places(result.findings) == [("VS012", "a.conf", 2, 7)]
    assert result.servers[0].listeners[0].port == 4222


@pytest.mark.parametrize("name", ["claims.json", "-"])
def test_claims_of_an_account_have_mappings(name: str) -> None:
    result = parse_sources([Source(name=name, content=json.dumps(CLAIMS, indent=1).encode())], read=lambda _: b"")
    (account,) = result.claims
    block = account.block
    assert block is not None
    assert (block.form, block.account, block.file) == (MappingForm.CLAIMS, "APP", name)
    first, second = block.entries[0].destinations
    assert (first.model.subject, first.model.weight, first.model.cluster) == ("foo.west.>", 60, "west")
    assert (second.model.weight, second.weight) == (100, None)
    assert first.subject is not None
    assert first.subject.span.line == 9


def test_a_finding_in_a_token_is_shown_at_the_token() -> None:
    broken = {"nats": {"type": "account", "mappings": {"foo.>": [{"subject": "bar", "weight": 100}]}}}
    content = f"\n  {token(broken)}\n".encode()
    files = {"a.jwt": content}
    report = lint([Source(name="a.jwt", content=content)], make_context(files))
    (error,) = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    assert error.span is not None
    assert (error.span.file, error.span.line, error.span.column) == ("a.jwt", 2, 3)
    assert error.related[0].span.file == "a.jwt:claims"
    assert '"subject": "bar"' in report.texts["a.jwt:claims"].split("\n")[error.related[0].span.line - 1]


def test_tokens_in_the_configuration_of_a_server_are_read() -> None:
    (account,) = parse_files(a_conf=f"port: 1\nresolver_preload {{ A: {token(CLAIMS)} }}\n").claims
    assert account.block is not None
    assert account.block.entries[0].source == "foo.>"


@pytest.mark.parametrize("text", ["eyJh.!!!.x", "eyJh.e30.x", "eyJh.YWJj.x", "x.y.z"])
def test_what_is_no_account_token_is_not_one(text: str) -> None:
    result = parse_sources([Source(name="a.jwt", content=text.encode())], read=lambda _: b"")
    assert result.claims == []


@pytest.mark.parametrize(
    ("text", "role", "virtual", "region"),
    [
        (STREAM, StreamRole.READ, "foo", "west"),
        ('{"name": "foo-write-west", "subjects": ["a"]}', StreamRole.WRITE, "foo", "west"),
        ('{"name": "ORDERS", "subjects": ["a"]}', StreamRole.PLAIN, None, None),
        ('{"name": "X", "sources": [{"name": "Y"}]}', StreamRole.AGGREGATE, None, None),
        ('{"name": "X", "sources": [{"name": "Y-write-west"}]}', StreamRole.READ, None, None),
        ('{"name": "X-read-west", "sources": [{"name": "Y"}]}', StreamRole.READ, "X", "west"),
        (
            '{"name":"X","max_age":0,"metadata":{"vstream.role":"write","vstream.stream":"s","vstream.region":"r"}}',
            StreamRole.WRITE,
            "s",
            "r",
        ),
    ],
)
def test_the_role_of_a_stream_is_known_or_guessed(
    text: str, role: StreamRole, virtual: str | None, region: str | None
) -> None:
    (stream,) = parse_files(s_json=text).streams
    assert (stream.role, stream.virtual, stream.region) == (role, virtual, region)


def test_a_topology_tells_the_role_of_a_stream_without_metadata() -> None:
    text = TOPOLOGY.replace("streams:\n", "streams:\n  users: {consistency: homed, home: west, subjects: [users.>]}\n")
    topology = check_topology(text.encode(), "t.yaml").require()
    files = parse_files(
        s_json='{"name": "users", "subjects": ["users.>"]}', t_json='{"name": "u", "sources": [{"name": "users"}]}'
    )
    roles = [stream.role for stream in files.workspace(topology).streams]
    assert roles == [StreamRole.ORIGIN, StreamRole.AGGREGATE]
    assert [stream.role for stream in files.workspace().streams] == [StreamRole.PLAIN, StreamRole.AGGREGATE]


def test_several_streams_can_stand_in_one_file() -> None:
    names = [
        stream.config.name
        for stream in parse_files(s_json='[{"name":"A","subjects":[]},{"name":"B","sources":[]}]').streams
    ]
    assert names == ["A", "B"]


def test_what_a_topology_renders_to_is_checked_and_shown_in_the_topology() -> None:
    text = TOPOLOGY.replace("max_age: 1h}   # vstream: ignore[VS107] because", "max_age: 1h, duplicate_window: 1h}")
    report = lint([Source(name="t.yaml", content=text.encode())], make_context({}))
    assert {finding.span.file for finding in report.findings if finding.span} == {"t.yaml"}
    rendered = [
        finding for finding in report.findings if finding.related and finding.related[0].span.file.startswith("t.yaml/")
    ]
    assert rendered
    assert all(finding.related[0].span.file in report.texts for finding in rendered)


def test_a_server_version_that_is_given_wins() -> None:
    assert ParsedFiles().workspace().server_version == (2, 10)
    assert ParsedFiles().workspace(None, (2, 14)).server_version == (2, 14)
