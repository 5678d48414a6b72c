"""
The reader of the NATS configuration language against `nats-server -t`.

What options mean is not the subject: all keys are unknown to the server, and it reports
each of them that no variable reference uses. That is how we see which keys it read, and
on which lines. Values show in the digest that it prints of a valid configuration; a file
becomes valid with a last array that refers to every key and whose end is missing, which
the server takes for nothing at all.

VSTREAM_ORACLE_EXAMPLES is the number of files that are compared; 300 if not set.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vstream.lab import binaries
from vstream.syntax.natsconf.digest import digest
from vstream.syntax.natsconf.nodes import ConfDocument
from vstream.syntax.natsconf.parser import parse

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import SearchStrategy

NATS_SERVER: Final = str(binaries.find_or_fetch("2.15.1"))
"""The version that the model follows."""
EXAMPLES: Final = int(os.environ.get("VSTREAM_ORACLE_EXAMPLES", "100"))
ORACLE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=list(HealthCheck),
)

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(180 + EXAMPLES // 5),
]

ENVIRONMENT: Final = {
    "E_NUMBER": "12k",
    "E_LIST": "[1, $E_NUMBER ]",
    "E_MAP": "{x: $E_TEXT, y: [{}]}",
    "E_TEXT": "hello",
    "E_LOOP": "$E_POOL",
    "E_POOL": "$E_LOOP",
    "E_EMPTY": "",
    "E_WORDS": "a b",
    "E_DROPPED": "1kbb",
    "E_LINES": "3\nzz: 4",
    "E_QUIET": '["',
}
INCLUDED: Final = {
    "good.cfg": "g1: 1\ng2 { h: $g1 }\n",
    "outer.cfg": "include good.cfg\ng1: 2\ng3: $g1",
    "open.cfg": "g4: [1",
    "blind.cfg": "g5: $k1",
    "empty.cfg": "",
}
# What the parser of the server says, as opposed to those who check what the options mean.
REFUSALS: Final = re.compile(
    r"nats-server: (Parse error on line \d|config is invalid \(|variable reference for '|integer '|expected integer"
    r"|float '|expected float|expected boolean|expected Zulu|error parsing include file '|error opening config file)"
)
UNKNOWN: Final = re.compile(r'(?:nats-server: )?.+?:(\d+):-?\d+: unknown field ("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class Reading:
    """What one side makes of a file: its top-level keys that are not used as variables, with their lines."""

    accepted: bool
    keys: frozenset[tuple[str, int]] = frozenset()


def server_says(directory: Path, text: str) -> tuple[Reading, str]:
    (directory / "oracle.conf").write_bytes(text.encode())
    command = [NATS_SERVER, "-t", "-c", "oracle.conf"]
    result = subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, timeout=60, check=False)
    output = result.stderr.decode(errors="replace")
    if REFUSALS.match(output):
        return Reading(accepted=False), output
    phrases = ("is valid (sha256:", "config has no values or is empty", "unknown field")
    assert any(phrase in output for phrase in phrases), f"neither a verdict nor a refusal: {output}"
    keys = ((ast.literal_eval(quoted), int(line)) for line, quoted in UNKNOWN.findall(output))
    return Reading(accepted=True, keys=frozenset(keys)), output


def read(text: str) -> ConfDocument:
    def include(path: str, _: str) -> tuple[str, str]:
        clean = posixpath.normpath(f"./{path}")
        if clean not in INCLUDED:
            raise FileNotFoundError(2, "No such file or directory")
        return clean, INCLUDED[clean]

    return parse(text, "oracle.conf", include=include, env=ENVIRONMENT)


def we_say(text: str) -> Reading:
    document = read(text)
    if any(finding.is_error for finding in document.findings):
        return Reading(accepted=False)
    used = {reference.definition for reference in document.references}
    unused = [entry for entry in document.root.effective_entries() if entry.key_span not in used]
    return Reading(accepted=True, keys=frozenset((entry.key, entry.key_span.end_line) for entry in unused))


# Values that are right

SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.builds("{}{}".format, st.integers(-9999, 9999), st.sampled_from(["k", "Kb", "ki", "m", "MB", "mib", "g", "gB", "GiB", "t", "tb", "p", "pib", "e", "eb", "kbb"])),
    st.builds("{}.{}".format, st.integers(-(10**6), 10**6), st.integers(1, 999).map("{:03}".format)),
    st.sampled_from(["true", "No", "ON", "2024-02-29T23:59:59Z", "0000-02-29T00:00:00Z", "9999-12-31T00:00:00Z"]),
    st.sampled_from(["1.2.3.4", "1.2.3.4:5", "100%", "5mx", "1m30s", "-1ki2", "a'", "a\\tb", "<&>", "$2a$1", "x.>", "10s", "a#", "(\na\n)"]),
    st.sampled_from(["$E_NUMBER", "$E_LIST", "$E_MAP", "$E_LINES", "$E_EMPTY", "[]", "{}", "{ a }", "[ { a } ]"]),
    st.text(st.characters(codec="utf-8", exclude_characters='"\\\0'), max_size=8).map('"{}"'.format),
    st.lists(st.sampled_from(["\\n", "\\x41", "\\xc3\\xa9", "\\\\", '\\"', "a", "'"]), max_size=8).map("".join).map('"{}"'.format),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda value: (
        st.lists(value, max_size=3).map(lambda items: "[" + "".join(f"{item}\n" for item in items) + "]")
        | st.lists(value, max_size=3).map(
            lambda items: "{" + "".join(f"k{n % 2}: {i}\n" for n, i in enumerate(items)) + "}"
        )
    ),
    max_leaves=6,
)


# Files that are right, wrong, and odd

SPACES = st.sampled_from(["", " ", "  ", "\t", "\n", "\r\n", " # c\n", " // c\n", "\u00a0", "\v", " /", "#"])
KEYS = st.sampled_from(
    [
        "k1",
        "k2",
        "k3",
        '"k 4"',
        "'k5'",
        '"k1"',
        "k.>",
        "$k1",
        "größe",
        "}",
        '"}"',
        "/k6",
        '"include"',
        "k7]",
        "(k8",
        "-k9",
    ]
)
SEPARATORS = st.sampled_from(["=", ":", " ", ": ", " = ", "\n", "", " : ", ":\n", "\n=", "\t"])
ENDS = st.sampled_from(
    ["\n", "\n", "\n", ", ", ";", "\r\n", " # c\n", "// c\n", "", " ", "}", "/", "/\n", "\0", "\n\n"]
)
PLAIN = st.sampled_from(
    [
        *("1", "12k", "12kb", "1KiB", "-3", "-3gb", "1.5", "-1.5", "1.2.3.4", "1.2.3.4:80", "127.0.0.1:4222-", "1kbb", "20e"),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "0x10", "1e5", "1.", ".5", "-", "-x", "5x"),
        *("true", "off", "YES", "nope", "word", "100%", "nats://u:p@h:4222", "host:1", "a=b", "a#b", "a/b", "*", ">", "10s", "1m30s", "5e7ab", "-1k2"),
        *('"s"', "'s'", '"a\\nb"', '"\\x41\\xff"', '"\\q"', "w\\tx", "w\\q", '"', "'", "a'", 'a"b', "'a\nb'", '"a\nb"', '"a\\'),
        *("2024-01-01T00:00:00Z", "2024-02-30T00:00:00Z", "0000-02-29T00:00:00Z", "2024-1-1", "20-1", "99999-01"),
        *("$k1", "$k2", "$k3", "$k 4", "$", "$$", "$2a$11$abc", "$2b$11$abc", "$k1'", "$k1\\t", '"$k1"'),
        *("$E_NUMBER", "$E_LIST", "$E_MAP", "$E_LOOP", "$E_EMPTY", "$E_WORDS", "$E_DROPPED", "$E_LINES", "$E_QUIET", "$E_NOT"),
        *("(\nx\n)", "(\n x)\n)\n", "(\r\nx\r\n)\r\n", "()", "(\n)", "(\n) \n)\n", "#x", "//", "/", "=x", ":x", ";", ",", "1]", "\u0663"),
    ]
)  # fmt: skip
DIRECTIVES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["include", "INCLUDE", "Include", '"include"', "include:"]),
    st.sampled_from([" ", "\t", "  ", "\n", "\v", ""]),
    st.sampled_from(
        [
            *("good.cfg", "'good.cfg'", '"outer.cfg"', "outer.cfg", "open.cfg", "blind.cfg", "empty.cfg", "gone.cfg"),
            *("good.cfg'", '"good.cfg', "$k1", "[", "{", "(", "1", "-", "\\", ";", ""),
        ]
    ),
    ENDS,
)


def blocks(value: SearchStrategy[str]) -> SearchStrategy[str]:
    entry = st.builds("{}{}{}{}{}".format, SPACES, KEYS, SEPARATORS, value, ENDS)
    return st.lists(entry | entry | entry | DIRECTIVES, max_size=4).map("".join)


def nested_values(value: SearchStrategy[str]) -> SearchStrategy[str]:
    commas = st.sampled_from([",", ", ", "\n", " ,\n", "\r\n", "/", "#c\n", "// c\n", " ", ";", ",,"])
    items = st.lists(st.builds("{}{}{}".format, SPACES, value, commas), max_size=3).map("".join)
    arrays = st.builds("[{}{}".format, items, st.sampled_from(["]", " ]", "\n]", "]", " # c\n]", ""]))
    maps = st.builds("{{{}{}".format, blocks(value), st.sampled_from(["}", " }", "\n}", "}", "// c\n}", ""]))
    return arrays | maps


DOCUMENTS = st.builds(
    "{}{}".format,
    blocks(st.recursive(PLAIN, nested_values, max_leaves=8)),
    st.sampled_from(["", "", "", "\n", "}", '"', "'", "k", "k:", "# c", "/", "\ufeff", "\0x"]),
)
WHOLE_BRACES = st.builds("{}{}{}".format, st.sampled_from(["{", "{{", "\n{ "]), DOCUMENTS, st.sampled_from(["}", "}}", "\n}\n", "} }", "},", ""]))  # fmt: skip
SEEDS = (  # without options of the server, which it would read: a cut can bring any key to the top
    """\
rules = {
  "oo.>": [
    {destination: "_vs.oo.west.oo.>", weight: 100%, place: "west"},
    {destination: "_vs.oo.east.oo.>", weight: 100%, place: "east"},
  ]
  "$JS.API.STREAM.INFO.oo": [{destination: "$JS.API.STREAM.INFO.oo-west", weight: 100%, place: "west"}]
}
""",
    """\
name: n1-west
listen_at: 0.0.0.0:4222 # clients
store {
  dir: '/data/js', max_mem: 1G; max_file = 10GB
}
""",
    """\
west_url = "nats://127.0.0.1:7222"
links { name: west, peers: [
  {name: west, urls: [$west_url]}
  // later
  {name: east, urls: ['nats://h:7223', nats://h:7224]}
] }
""",
    "people = { SYS: { users: [ {user: admin, pass: $2a$11$UP3xizk94sWF9SHF } ] } }\nwho: SYS\n",
    "motd (\n  hello { world }\n)\nwait: 2m, ratio: 0.75, on: yes\n",
)
ATOMS = [*"{}[]()\"'\\=:;,/#.-$% \t\n\r\0ab1k", "//", "\n)\n", "include ", "\u00a0", "\u2028", "é", "\u0663", "\ufeff"]


TIDY = st.lists(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["k1", "k2", '"k 3"', "k4.>", "\n# c\nk5", "'k6'"]),
        st.sampled_from([": ", " = ", " "]),
        VALUES,
        st.sampled_from(["\n", "\r\n", "\n# c\n", "\n\n"]),
    ),
    max_size=4,
).map("".join)


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    text = draw(TIDY | TIDY | st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.sampled_from([0, 0, 1, 2, 30]))
        text = text[:at] + draw(st.sampled_from(["", *ATOMS])) + text[at + cut :]
    return text


SOUPS = st.lists(st.sampled_from([*ATOMS, "true", "1.5", '"s"', "k1", "$k1", "m {", "a [", "k: 1\n"]), max_size=24).map(
    "".join
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("natsconf")
    for name, text in INCLUDED.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


@ORACLE
@given(mutated_texts() | mutated_texts() | DOCUMENTS | WHOLE_BRACES | SOUPS)
def test_we_accept_what_the_server_accepts(directory: Path, text: str) -> None:
    reading, output = server_says(directory, text)
    assert we_say(text) == reading, f"{text!r}\n{output}"


@ORACLE
@given(st.lists(VALUES, max_size=4))
def test_values_are_those_of_the_server(directory: Path, values: list[str]) -> None:
    text = "first: 1\n" + "".join(f"k{number}: {value}\n" for number, value in enumerate(values))
    document = read(text)
    assert [finding for finding in document.findings if finding.is_error] == []
    text += "used: [\n" + "".join(f"${entry.key}\n" for entry in document.root.effective_entries()) + '"'
    reading, output = server_says(directory, text)
    assert (reading, f"({digest(document)})" in output) == (Reading(accepted=True), True), f"{text}\n{output}"
