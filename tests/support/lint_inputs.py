"""Files that `vstream lint` may meet: nonsense, near misses, and real ones with a piece torn out."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from hypothesis import strategies as st

from tests.support.paths import ROOT
from vstream.cli.views import finding_formats, finding_text
from vstream.cli.views import map as map_view
from vstream.lint.checked_files import LintContext
from vstream.lint.corrections import apply_fixes, diff_texts
from vstream.lint.engine import LintReport, lint
from vstream.lint.manual import PAGES
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.simulate import simulate

BLOG = (ROOT / "tests/fixtures/blog-mappings.cfg").read_text()
TOPOLOGY = """\
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 3}, east: {servers: 1}}
presets: {kv: {write: {max_age: 1h}}}
streams:
  foo: {subjects: [foo.>, "bar.*.x"], write: {max_age: 1h}}   # vstream: ignore[VS107] because
  kv: {extends: kv, subjects: [kv.>], regions: [west]}
"""
CLAIMS = {
    "sub": "ABC",
    "name": "APP",
    "nats": {
        "type": "account",
        "mappings": {"foo.>": [{"subject": "foo.west.>", "weight": 60, "cluster": "west"}, {"subject": "x.>"}]},
    },
}


def token(claims: object) -> str:
    """An unsigned JWT."""
    parts = [json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}), json.dumps(claims)]
    encoded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, "c2lnbmF0dXJl"))


SERVER = (
    """\
server_name: west-1
listen: 0.0.0.0:4222
jetstream { store_dir: "./data", max_file_store: 1G }
cluster { name: west, listen: 127.0.0.1:6222, routes: [nats://127.0.0.1:6222] }
gateway { name: west, listen: 127.0.0.1:7222, gateways: [{name: west, urls: [nats://a:1]}, {name: east, url: b}] }
accounts {
  A {
    users: [{user: a, password: $PASSWORD, permissions: {publish: {allow: ["foo.>"]}, subscribe: x}}]
    mappings { "foo.*": [{destination: "bar.{{wildcard(1)}}", weight: 50%, cluster: west}] } # vstream: ignore[VS306] x
    include "mappings.cfg"
  }
  $SYS { users: [{nkey: U}] }
}
leafnodes { remotes: [{url: "nats://x", account: A}] }
resolver_preload { A: """
    + token(CLAIMS)
    + " }\n"
)

STREAM = json.dumps(
    {
        "config": {
            "name": "foo-read-west",
            "sources": [{"name": "foo-write-west", "subject_transforms": [{"src": "a.>", "dest": ">"}]}],
            "num_replicas": 3,
            "placement": {"cluster": "west"},
            "metadata": {"vstream.ignore": "VS220 reason"},
            "max_age": 3600000000000,
        }
    },
    indent=2,
)

SEEDS: Mapping[str, str] = {
    "mappings.cfg": BLOG,
    "server.conf": SERVER,
    "stream.json": STREAM,
    "claims.json": json.dumps(CLAIMS),
    "account.jwt": token(CLAIMS),
    "topology.yaml": TOPOLOGY,
}
PIECES = (
    *"{}[]()\"'`$#/\\:=;,.%*>@-\n\r\t ",
    *("mappings", "accounts", "cluster", "weight", "destination", "include", "// vstream: ignore[VS301]", "$JS.API."),
    *("{{wildcard(1)}}", "100%", "true", "1k", "foo.>", "$PATH", "null", "-1", "1e999", "9" * 30, "\\x00", "\ufeff"),
    *("server_name", "gateway", "jetstream", "listen", "name", "subjects", "sources", "mirror", "regions", "streams"),
    *("\u2028", "é", "𝄞", "\\ud800", "&a", "*a", "<<: *a", "---\n", '"nats"', '"mappings"', "0x", "~", "|\n  x", "!!x"),
    *("[[", "]]", "{{", "}}", "}\n{", "max_age", "users", "permissions", "leafnodes", "remotes", "resolver_preload"),
)
NAMES = st.sampled_from([*SEEDS, "-", "noise", "a.conf", "b.json", "c.yaml", "d.cfg", "e.jwt"])


@st.composite
def mutated_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A real file with some of its text removed, repeated or replaced."""
    name = draw(st.sampled_from(sorted(SEEDS)))
    text = SEEDS[name]
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        middle = draw(st.one_of(st.sampled_from(PIECES), st.just(text[start:end] * 2), st.just("")))
        text = text[:start] + middle + text[end:]
    return name, text.encode(errors="surrogatepass")


FILES = st.one_of(
    mutated_files(),
    st.tuples(NAMES, st.lists(st.sampled_from(PIECES), max_size=40).map("".join).map(str.encode)),
    st.tuples(NAMES, st.binary(max_size=60)),
    st.tuples(NAMES, st.text(max_size=60).map(lambda text: text.encode(errors="surrogatepass"))),
)
INPUTS = st.lists(FILES, min_size=1, max_size=3).map(dict)


def make_context(files: Mapping[str, bytes]) -> LintContext:
    def read(name: str) -> bytes:
        if name in files:
            return files[name]
        raise FileNotFoundError(2, "No such file or directory", name)

    return LintContext(read=read, env={"PASSWORD": "secret", "PATH": "/bin"})


def check_files(files: Mapping[str, bytes]) -> LintReport:
    """Lint *files*, write the findings in every way, and see that they make sense."""
    around = make_context(files)
    sources = [Source(name=name, content=content) for name, content in files.items()]
    report = lint(sources, around)
    shown = "\n".join(line.plain for line in finding_text.render_full(report.findings, report.texts))
    assert shown.isprintable() or "\n" in shown
    assert len(list(finding_text.render_concise(report.findings))) == len(report.findings)
    json.loads(json.dumps(finding_text.as_dicts(report.findings)))
    json.loads(finding_formats.to_sarif(report.findings, PAGES))
    ET.fromstring(finding_formats.to_junit(report.findings, report.files))
    for line in finding_formats.to_github(report.findings):
        assert line.isprintable(), line
    for finding in report.findings:
        assert finding.code in PAGES, finding
        assert finding.span is None or (finding.span.line >= 1 and finding.span.column >= 1), finding
        assert finding.span is None or (finding.span.line, finding.span.column) <= (
            finding.span.end_line,
            finding.span.end_column,
        ), finding
        assert finding.span is None or finding.span.file in files or finding.span.file.startswith("templates/"), finding
    after = apply_fixes(report.findings, report.texts, set(files))
    list(diff_texts(report.texts, after))
    workspace = parse_sources(sources, read=around.read, env=around.env).workspace()
    for block in workspace.blocks:
        answer = simulate(block, "foo.a.b", "west", ("east",))
        json.dumps(map_view.as_dict(answer))
        list(map_view.render_resolution(answer))
    return report
