"""
Mistakes that somebody makes, from the server's source and documentation: each is found at its place, and its hint helps.

Most are lines of planted.txt and planted_beside.txt. The mistake, between ‹ and ›, is replaced by its cure, the text after
`→`, which is what the hint says.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.lint_inputs import make_context
from vstream.findings import Finding, Severity
from vstream.lint.engine import lint
from vstream.lint.parse_files import Source

STORE = "jetstream { store_dir: /d, max_mem: 1G, max_file: 1G }\n"
SERVER = "server_name: s1\nlisten: 127.0.0.1:4222\n"
SYSTEM = "ABR32PKMKZAQC3V72FHUJ4VDVUMZFB3GAUQD4DKCPQXJPHFPRAR7MB4X"
HOOK = f"auth_hook {{ issuer: {SYSTEM}, auth_users: [a] }}"
HOOKED = f"authorization {{ {HOOK}, default_permissions {{ publish: x }} }}\n"


def make_operator(**claims: str) -> str:
    """The token of an operator, which nobody has signed."""
    text = json.dumps({"nats": {"type": "operator", **claims}})
    return f"eyJhbGciOiJlZDI1NTE5LW5rZXkifQ.{base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}.AA"


NAMES = {
    "NKEY": "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4",
    "OTHER_NKEY": "UBRH6F6YSPSWS6SLUIQIXSALAKJOP5MNQEQOWNJ4DNKUFHNZY2YZNZHA",
    "OPERATOR": "OAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QZVT",
    "ACCOUNT": "AAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QPZV",
    "SYSTEM": SYSTEM,
    "SEED": "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y",
    "TOKEN": make_operator(system_account=SYSTEM),
    "UNNAMED": make_operator(),
    "RULES": '"a.>": [{destination: "_vs.a.west.>", weight: 100%, cluster: west}, '
    '{destination: "_vs.a.east.>", weight: 100%, cluster: east}]',
    "STORE": STORE.strip(),
    "DIGEST": "a" * 64,
    "TOO_LONG": "x" * 4097,
    "TOO_LARGE": "x" * 131072,
}
"""What `<NAME>` stands for in the text files."""


@dataclass(frozen=True)
class Case:
    code: str
    text: str
    cure: str
    hint: str
    file: str = "a.conf"

    @property
    def mistake(self) -> str:
        return self.text.replace("‹", "").replace("›", "")

    @property
    def corrected_text(self) -> str:
        before, rest = self.text.split("‹")
        return before + self.cure + rest.split("›")[1]

    @property
    def place(self) -> tuple[int, int]:
        before = self.text.partition("‹")[0]
        return before.count("\n") + 1, len(before) - before.rfind("\n")


def stream(fields: str) -> str:
    return f'{{"name": "orders", "subjects": ["o.>"], {fields}}}'


def render_limited(limit: str) -> str:
    return f"accounts {{ A {{ jetstream {{ {limit} }} }} }}\n"


def render_routed(name: str, port: int, peer: int) -> str:
    return (
        f"server_name: {name}\nlisten: 127.0.0.1:{port}\n"
        f"cluster {{ name: A, listen: 127.0.0.1:{port + 2000}, routes: ['nats://127.0.0.1:{peer + 2000}'] }}\n"
    )


FRAMES = {
    "server": ("a.conf", f"{SERVER}…\n"),
    "first": ("a.conf", render_routed("a", 4222, 4223) + "…\n"),
    "second": ("b.conf", render_routed("b", 4223, 4222) + "…\n"),
    "leaf": ("l.conf", "server_name: l\nlisten: 127.0.0.1:4300\n…\n"),
    "stream": ("orders.json", stream("…")),
    "consumer": ("c.json", '{"durable_name": "d", "ack_policy": "explicit", …}'),
}
"""By the second word of a line: its file, and what stands around the text."""


def read_lines(name: str) -> list[tuple[str, str, str, str]]:
    """The first word of each line, the name of its file, what stands in that, and the hint."""
    content = Path(__file__).with_name(name).read_text(encoding="utf-8")
    for key, value in NAMES.items():
        content = content.replace(f"<{key}>", value)
    lines = []
    for line in content.splitlines():
        if line and not line.startswith("#"):
            word, place, rest = line.replace("⏎", "\n").split(maxsplit=2)
            text, _, hint = rest.partition(" ⇒ ")
            file, frame = FRAMES.get(place, (place, "…\n" if place.endswith(".conf") else "…"))
            lines.append((word, file, frame.replace("…", text), hint))
    return lines


def make_case(code: str, file: str, planted: str, hint: str) -> Case:
    before, mistake, cure, after = re.split("[‹→›]", planted)
    return Case(code, f"{before}‹{mistake}›{after}", cure, hint or f"did you mean `{cure}`?", file)


CASES = [make_case(*line) for line in read_lines("planted.txt")]
_LINES = iter(read_lines("planted_beside.txt"))
PAIRS = [(make_case(*line), text) for line, (_, _, text, _) in zip(_LINES, _LINES, strict=True)]


def check(case: Case, text: str) -> tuple[Finding, ...]:
    name = case.file
    return lint([Source(name=name, content=text.encode())], make_context({name: text.encode()})).findings


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.code}" for number, case in enumerate(CASES)])
def test_a_mistake_is_found_at_its_place_and_its_hint_makes_it_go_away(case: Case) -> None:
    hints = {
        (finding.code, finding.span.line, finding.span.column): finding.hint or ""
        for finding in check(case, case.mistake)
        if finding.span
    }
    assert (case.code, *case.place) in hints
    assert case.hint in hints[case.code, *case.place]
    assert case.code not in {finding.code for finding in check(case, case.corrected_text)}


@pytest.mark.parametrize(
    "text",
    [
        "accounts { A { imports: [{service: {account: B, subject: a}, to: 'b.*'}] }, B { exports: [{service: a}] } }\n",
        "accounts { A { imports: [{stream: {account: B, subject: 'a.>'}, to: 'b.>'}] }, B { exports: [{stream: 'a.>'}] } }\n",
        "jetstream: enabled\naccounts { $SYS { users: [{user: admin, password: p}] } }\n",
        "jetstream: enabled\naccounts { A { users: [{user: a, password: p}] } }\nauthorization { users: [{user: b, password: p}] }\n",
        HOOKED + "accounts { A { users: [{user: a, password: p}] } }\n",
    ],
)
def test_what_servers_take_and_do_is_not_reported(text: str) -> None:
    report = lint([Source(name="a.conf", content=(SERVER + text).encode())], make_context({"a.conf": text.encode()}))
    assert [finding.code for finding in report.findings if finding.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("conf", "streams"),
    [
        # Another account has no limits, and another server has room.
        (STORE + "accounts { A { jetstream { max_streams: 1, max_file: 1M } }, B { jetstream: enabled } }\n", ""),
        (STORE + "leafnodes { remotes: [{ url: 'nats://h' }] }\n" + render_limited("max_streams: 1, max_file: 1M"), ""),
        (STORE + render_limited("max_streams: 2, max_file: 12M, max_bytes_required: true"), ""),
        (STORE, "other/"),
    ],
)
def test_streams_that_fit_their_servers_are_not_reported(conf: str, streams: str) -> None:
    size = 600000000 if streams else 6000000
    files = {
        "a.conf": (SERVER + conf).encode(),
        "o.json": stream(f'"max_bytes": {size}').encode(),
        f"{streams}p.json": f'{{"name": "p", "subjects": ["p"], "max_bytes": {size}}}'.encode(),
        "c.json": b'{"stream_name": "o", "config": {"durable_name": "d", "ack_policy": "explicit"}}',
        "other/c.json": b'{"stream_name": "o", "config": {"durable_name": "d", "ack_policy": "all"}}',
    }
    report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
    assert {finding.code for finding in report.findings} <= {"VS211"}


@pytest.mark.parametrize(
    "text",
    [
        "server_name: s\nlisten: 127.0.0.1:-1\nmax_payload: 1\n",
        SERVER
        + "accounts { A { users: [{user: a, password: p, permissions {publish: {allow: [a], deny: ['>']}}}] } }\n",
        "authorization { users: [{user: a, password: p, permissions {publish: '$SYS.>', publish: '>'}}] }\n",
    ],
)
def test_what_may_be_meant_is_a_note_and_fails_nobody(text: str) -> None:
    report = lint([Source(name="a.conf", content=text.encode())], make_context({"a.conf": text.encode()}))
    assert {finding.severity for finding in report.findings} == {Severity.NOTE}


def gateway_to(name: str, port: int, peer: str) -> str:
    return f"gateway {{ name: {name}, listen: 127.0.0.1:{port}, gateways: [{{name: {peer}, url: 'nats://h:7222'}}] }}\n"


def users(name: str, rights: str) -> str:
    return f"accounts {{ A {{ users: [{{user: {name}, password: $P, permissions {{{rights}}}}}] }} }}\n"


def render_linked(cluster: str, port: int, own: str) -> bytes:
    remotes = ", ".join(f'{{name: {name}, url: "nats://127.0.0.1:1"}}' for name in ("west", "east", "cent"))
    destinations = ", ".join(
        f'{{destination: "_vs.o.{name}.>", weight: 100%, cluster: {name}}}' for name in ("west", "east", own)
    )
    return (
        f"server_name: {cluster}\nlisten: 127.0.0.1:{port}\n"
        f"gateway {{name: {cluster}, listen: 127.0.0.1:{port + 3000}, gateways: [{remotes}]}}\n"
        f'mappings {{ "o.>": [{destinations}] }}\n'
    ).encode()


@pytest.mark.parametrize(
    ("case", "beside"), PAIRS, ids=[f"{number}-{case.code}" for number, (case, _) in enumerate(PAIRS)]
)
def test_a_mistake_beside_another_file_is_found_and_its_hint_makes_it_go_away(case: Case, beside: str) -> None:
    def find(text: str) -> dict[tuple[str, str, int, int], str]:
        files = {case.file: text.encode(), "a.conf": beside.encode()}
        report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
        placed = [finding for finding in report.findings if finding.span]
        return {
            (finding.code, finding.span.file, finding.span.line, finding.span.column): finding.hint or ""
            for finding in placed
            if finding.span
        }

    mistakes = find(case.mistake)
    assert case.hint in mistakes[case.code, case.file, *case.place]
    assert case.code not in {key[0] for key in find(case.corrected_text)}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("authorization { user: u, password: $P }\n", "authorization { user: u, password: secret }\n"),
        ("authorization { token: $P }\n", "authorization { token: $Q }\n"),
        (
            f"authorization {{ user: u, password: '$2a$11${'a' * 53}' }}\n",
            f"authorization {{ user: u, password: '$2a$11${'b' * 53}' }}\n",
        ),
        ("accounts { $SYS { users: [{user: admin, password: $P}] } }\n", ""),
        ("authorization { users: [{user: u, password: $P}] }\nno_auth_user: u\n", ""),
        ("authorization { user: u, password: $P }\n", "include users.conf\n"),
        (
            "authorization { user: u, password: $P }\n",
            "tls { cert_file: /c, key_file: /k, ca_file: /a, verify: true }\n",
        ),
    ],
)
def test_logins_that_may_be_the_same_are_not_reported(first: str, second: str) -> None:
    files = {
        "a.conf": (render_routed("a", 4222, 4223) + first).encode(),
        "b.conf": (render_routed("b", 4223, 4222) + second).encode(),
        "users.conf": b"max_payload: 1MB\n",
    }
    sources = [Source(name=name, content=files[name]) for name in ("a.conf", "b.conf")]
    assert "VS432" not in {finding.code for finding in lint(sources, make_context(files)).findings}


def write_stream(region: str) -> str:
    return (
        f'{{"name": "o-write-{region}", "subjects": ["_vs.o.{region}.>"], "num_replicas": 3, "max_age": 86400000000000, '
        f'"placement": {{"cluster": "{region}"}}}}'
    )


def read_stream(region: str, of_east: str = '"src": "_vs.o.east.>", "dest": "o.>"', more: str = "") -> str:
    return (
        f'{{"name": "o-read-{region}", "num_replicas": 3, "duplicate_window": 0, "allow_direct": true, {more}'
        f'"placement": {{"cluster": "{region}"}}, "sources": ['
        '{"name": "o-write-west", "subject_transforms": [{"src": "_vs.o.west.>", "dest": "o.>"}]}, '
        f'MARK{{"name": "o-write-east", "subject_transforms": [{{{of_east}}}]}}]}}'
    )


WRITES = f"{write_stream('west')}, {write_stream('east')}"
READ_EAST = read_stream("east").replace("MARK", "")
MAPPED = SERVER + 'mappings { "o.>": [{destination: "_vs.o.west.>", weight: 100%, cluster: west}, '


@pytest.mark.parametrize(
    ("code", "streams", "cure", "hint"),
    [
        ("VS211", read_stream("west", '"src": ‹"_vs.o.west.>"›, "dest": "o.>"'), '"_vs.o.east.>"', "`_vs.o.east.>`"),
        (
            "VS213",
            read_stream("west", '"src": "_vs.o.east.>", "dest": "oo.>"').replace("MARK", "‹›"),
            '{"name": "o-write-east", "subject_transforms": [{"src": "_vs.o.east.>", "dest": "o.>"}]}]}]',
            "the same filter and transforms",
        ),
        (
            "VS207",
            read_stream("west", more='‹"subjects"›: ["o.>"], '),
            '"metadata": {}, "republish": null, "x',
            "remove",
        ),
    ],
)
def test_a_read_stream_that_differs_from_the_others_is_found(code: str, streams: str, cure: str, hint: str) -> None:
    text = f"[{WRITES}, {streams.replace('MARK', '')}, {READ_EAST}]"
    before, rest = text.partition("‹")[0], text.partition("›")[2]
    mistake = text.replace("‹", "").replace("›", "")
    report = lint([Source(name="s.json", content=mistake.encode())], make_context({}))
    hints = {(finding.code, finding.span.column): finding.hint or "" for finding in report.findings if finding.span}
    assert hint in hints[code, len(before) + 1]
    corrected = (
        before + cure + rest
        if code == "VS211"
        else f"[{WRITES}, {READ_EAST.replace('o-read-east', 'o-read-west')}, {READ_EAST}]"
    )
    report = lint([Source(name="s.json", content=corrected.encode())], make_context({}))
    assert code not in {finding.code for finding in report.findings}


@pytest.mark.parametrize("destination", ["_vs.o.eats.>", "_vs.o.west.x.>"])
def test_a_region_that_is_mapped_past_its_write_stream_is_found(destination: str) -> None:
    rules = MAPPED + f'{{destination: "{destination}", weight: 100%, cluster: east}}] }}\n'

    def find(text: str) -> list[tuple[int, int, str]]:
        files = {"a.conf": text.encode(), "s.json": f"[{WRITES}]".encode()}
        report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
        return [
            (finding.span.line, finding.span.column, finding.hint or "")
            for finding in report.findings
            if finding.code == "VS317" and finding.span
        ]

    column = rules.splitlines()[2].index(f'"{destination}"') + 1
    assert find(rules) == [(3, column, "write the subject that it stores: `_vs.o.east.>`")]
    assert find(rules.replace(destination, "_vs.o.east.>")) == []


def test_servers_before_2_11_refuse_an_empty_source_of_a_transform() -> None:
    text = b'{"name": "a", "sources": [{"name": "b", "subject_transforms": [{"src": "", "dest": "c.>"}]}]}'
    for version, count in (((2, 10), 1), ((2, 11), 0)):
        report = lint([Source(name="a.json", content=text)], make_context({}), server_version=version)
        findings = [finding for finding in report.findings if "an empty `src`" in finding.message]
        assert len(findings) == count


@pytest.mark.parametrize(
    ("all_have", "one_has", "word"),
    [
        ("accounts { A {}, B {} }\n", "accounts { A {} }\n", "account `B`"),
        (users("v", "") + "authorization { user: u, password: $P }\n", users("v", ""), "user `u`"),
    ],
)
def test_a_server_without_an_account_or_user_of_all_others_is_found(all_have: str, one_has: str, word: str) -> None:
    names = {"a": 4222, "b": 4223, "c": 4224}
    routes = ", ".join(f"'nats://127.0.0.1:{port + 2000}'" for port in names.values())
    files = {}
    for name, port in names.items():
        accounts = all_have if name != "c" else one_has
        cluster = f"cluster {{ name: C, listen: 127.0.0.1:{port + 2000}, routes: [{routes}] }}\n"
        files[f"{name}.conf"] = f"server_name: {name}\nlisten: 127.0.0.1:{port}\n{cluster}{accounts}".encode()
    report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
    findings = [finding for finding in report.findings if finding.code == "VS432" and finding.span]
    assert [(finding.span.file, finding.span.line, finding.span.column) for finding in findings if finding.span] == [
        ("c.conf", 1, 14)
    ]
    assert word in findings[0].message


@pytest.mark.parametrize("of_b", ["nats://127.0.0.1:6222", "nats://elsewhere:6222"])
def test_servers_of_one_cluster_whose_routes_meet_or_lead_elsewhere_are_not_reported(of_b: str) -> None:
    texts = {
        "a.conf": render_routed("a", 4222, 4222) + gateway_to("A", 7222, "hub"),
        "b.conf": render_routed("b", 4223, 4223).replace("nats://127.0.0.1:6223", of_b) + gateway_to("A", 7223, "hub"),
    }
    files = {name: text.encode() for name, text in texts.items()}
    report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
    assert "VS432" not in {finding.code for finding in report.findings}


@pytest.mark.parametrize("source", ["p.a", "p.b"])
def test_streams_that_republish_to_each_other_are_a_ring_only_if_what_comes_goes_on(source: str) -> None:
    first = '{"name": "o", "subjects": ["o.>"], "republish": {"src": "o.>", "dest": "p.a"}}'
    second = f'{{"name": "p", "subjects": ["p.*"], "republish": {{"src": "{source}", "dest": "o.a"}}}}'
    report = lint([Source(name="s.json", content=f"[{first}, {second}]".encode())], make_context({}))
    assert ("VS210" in {finding.code for finding in report.findings}) is (source == "p.a")


@pytest.mark.parametrize(
    "rules",
    [
        "'o.>': 'o.>'",
        "'o.a': 'p'",
        "'o.>': [{destination: 'p.>', weight: 90%}]",
        "'o.>': [{destination: 'p.>', weight: 100%, cluster: w}]",
        "'o.>': 'p.>', 'q': 'o.a'",
    ],
)
def test_an_import_that_rules_leave_something_is_not_reported(rules: str) -> None:
    text = f"{SERVER}accounts {{ A {{ exports: [{{service: 'o.*'}}] }}, B {{ users: [{{user: b, password: $P}}], "
    text += f"mappings {{ {rules} }}, imports: [{{service: {{account: A, subject: 'o.*'}}}}] }} }}\n"
    report = lint([Source(name="a.conf", content=text.encode())], make_context({}))
    assert "VS430" not in {finding.code for finding in report.findings}


@pytest.mark.parametrize("placement", ["", ', "placement": {"cluster": "A"}'])
def test_replicas_beside_one_file_of_servers_that_find_each_other_by_a_service_are_not_counted(placement: str) -> None:
    files = {
        "nats.conf": b"server_name: $NAME\nlisten: 0.0.0.0:4222\ncluster { name: A, listen: 0.0.0.0:6222, routes: ['nats://nats:6222'] }\n",
        "o.json": stream(f'"num_replicas": 3{placement}').encode(),
    }
    report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
    assert "VS223" not in {finding.code for finding in report.findings}


def test_a_stream_is_not_meant_to_source_itself() -> None:
    text = b'{"name": "SOURCE_TARGET", "sources": [{"name": "SOURCE_ORIGIN"}, {"name": "TARGET_SOURCE"}]}'
    assert lint([Source(name="s.json", content=text)], make_context({})).findings == ()


def test_two_leaf_nodes_of_one_hub_with_one_domain_are_found() -> None:
    files = {"hub.conf": SERVER.encode() + b"leafnodes { listen: 127.0.0.1:7422 }\n" + STORE.encode()}
    for name, port in (("l1", 4300), ("l2", 4301)):
        store = "jetstream { store_dir: /d, domain: edge }\n"
        files[f"{name}.conf"] = (
            f"server_name: {name}\nlisten: 127.0.0.1:{port}\n{store.replace('/d', f'/{name}')}"
            "leafnodes { remotes: [{ url: 'nats://127.0.0.1:7422' }] }\n"
        ).encode()

    def find() -> list[tuple[str, int, int]]:
        report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
        places = [finding.span for finding in report.findings if finding.span and finding.code == "VS432"]
        return [(span.file, span.line, span.column) for span in places]

    assert find() == [("l2.conf", 3, 37)]
    files["l2.conf"] = files["l2.conf"].replace(b"edge", b"edge2")
    assert find() == []


def test_a_server_that_leaves_out_its_own_cluster_is_found_beside_the_others() -> None:
    files = {
        f"{name}.conf": render_linked(name, 4222 + number, "cent")
        for number, name in enumerate(("west", "east", "cent"))
    }
    files["cent.conf"] = files["cent.conf"].replace(
        b', {destination: "_vs.o.cent.>", weight: 100%, cluster: cent}', b""
    )
    report = lint([Source(name=name, content=content) for name, content in files.items()], make_context(files))
    places = [
        (finding.code, finding.span.file, finding.span.line, finding.span.column)
        for finding in report.findings
        if finding.span
    ]
    assert places == [("VS316", "cent.conf", 4, 12)]
    assert "`cent`" in report.findings[0].message
