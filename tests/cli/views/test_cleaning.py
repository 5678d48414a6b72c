"""Foreign text is printed, never obeyed; and what cannot be encoded is replaced."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tests.support.command import environment, vstream
from tests.support.plans import FakeServers, make_plan, render_streams
from tests.support.topologies import one_region
from vstream.cli.views import finding_formats, finding_text
from vstream.cli.views import plan as plan_view
from vstream.cli.views.cleaning import clean, clean_text, fit_encoding, markdown_code, markdown_text
from vstream.cli.views.console import CleanConsole, print_error
from vstream.cli.views.json_output import print_json
from vstream.cli.views.keys import render_keys
from vstream.errors import VstreamError
from vstream.findings import Finding, Severity, Span, mask_line, mask_secrets
from vstream.junit import Result, TestCase, to_xml
from vstream.plan import saved

HOSTILE = [
    "a\x1b[31mred",
    "b\x1b]0;title\x07",
    "c\r\n::error::injected",
    "::add-mask::secret",
    "d ##[error]injected",
    "e ##vso[task.setvariable]x",
    "f\u202eoverride",
    "g\x9b31m",
    "h\udcff",
    "i\u2028line",
    "j[bold red]markup[/]",
    "k\n##[group]x",
]


def print_values(*printed: Any, encoding: str = "utf-8", width: int = 60) -> str:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding, errors="strict", newline="")
    console = CleanConsole(file=file, width=width, highlight=False, soft_wrap=True, markup=False, emoji=False)
    for value in printed:
        console.print(value)
    file.flush()
    return buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("as_text", [str, Text])
def test_a_cell_of_millions_of_characters_is_cut_before_it_is_laid_out(as_text: type) -> None:
    """Seed 30997 of the fuzz series: to lay out 8 MB in a column of 35 took longer than the command has."""
    table = Table()
    table.add_column("answer", width=35)
    table.add_row(as_text("x" * 2_000_000))
    shown = print_values(table, Text("y" * 2_000_000), "z" * 2_000_000)
    assert len(shown) < 150_000
    assert shown.count("(2,000,000 characters)") == 3


SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
TOKEN = "eyJ0eXAiOiJKV1QifQ.eyJqdGkiOiJzIn0.c2lnbmF0dXJl"
FORMS = {
    "a login": "nats://ops:hunter2@west.example.net",
    "a token in an address": "nats://hunter2@west.example.net",
    "a password with an @": "nats://ops:hunt@hunter2@west.example.net",
    "a seed": SEED.replace("SSL3", "hunter2".upper()),
    "a signed token": TOKEN.replace("c2ln", "hunter2"),
    "a private key": "-----BEGIN PRIVATE KEY-----hunter2-----END PRIVATE KEY-----",
    "a hash": "$2a$11$" + "hunter2".ljust(53, "x"),
    "an assignment": "http://127.0.0.1/?token=hunter2&x",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_no_way_to_print_shows_what_has_the_form_of_a_secret(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json("size", {"evidence": f"before\n{text}\tafter", "list": [text, f"//{text}"]})
    document = capsys.readouterr().out
    assert [len(item) for item in json.loads(document)["list"]] == [len(text), len(text) + 2]
    case = TestCase(classname=text, name=text, result=Result.FAILURE, message=text, text=text)
    assert "hunter2" not in "".join(
        (
            document,
            print_values(text, Text(text)),
            markdown_code(text),
            markdown_text(text),
            to_xml(text, {text: [case]}),
        )
    ).lower().replace("\n", "")


WRITTEN = {
    "a login without a scheme": ("urls", '"ops:hunter2@127.0.0.1:4222"'),
    "an unknown key": ("password", "hunter2"),
    "a login in the address of a gateway": ("gateway", '"ops:hunter2@127.0.0.1:7222"'),
    "a key that is spelled wrong": ("pasword", "hunter2"),
    "a password for the name of a variable": ("user: ops, password_env", "hunter2"),
    "another that can be none": ("user: ops, password_env", '"hunter2!"'),
    "a token": ("token_env", "hunter2"),
    "a key for its file": (
        "tls",
        '{cert: a.pem, key: "-----BEGIN PRIVATE KEY-----\\nhunter2\\n-----END PRIVATE KEY-----"}',
    ),
    "credentials for their file": ("creds", TOKEN.replace("c2ln", "hunter2")),
    "the password of the system account": ("system", "{user: system, password: hunter2}"),
}


@pytest.mark.parametrize(("key", "value"), WRITTEN.values(), ids=WRITTEN)
def test_no_command_shows_a_secret_that_stands_in_a_topology(tmp_path: Path, key: str, value: str) -> None:
    entry = f", {key}: {value}"
    region, connect = (entry, "") if key == "gateway" else ("", entry)
    file = tmp_path / "acme.yaml"
    file.write_text(
        f'version: 1\nname: acme\nserver_version: "2.12"\nregions: {{west: {{servers: 1{region}}}}}\n'
        "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"
        f'connect: {{west: {{urls: "nats://127.0.0.1:1"{connect}}}}}\n'.replace(
            'urls: "nats://127.0.0.1:1", urls', "urls"
        )
    )
    for command in (("validate", "--format", "json"), ("lint", "--format", "junit"), ("plan",)):
        ran = vstream(*command, file)
        assert ran.code in {0, 1, 3}
        assert "hunter2" not in ran.out + ran.err, command


@pytest.mark.parametrize("name", ["api_token", "dbPassword", "app.secret", "API-KEY", "private_key"])
async def test_no_plan_shows_metadata_that_is_called_a_secret(name: str) -> None:
    streams = {
        label: render_streams({"foo": {"subjects": ["foo.>"], "metadata": {name: label}}})
        for label in ("hunter2", 'hunter2"3')
    }
    servers = FakeServers()
    for stream in streams["hunter2"].streams:
        await servers.create(stream.config)
    for bundle in (streams['hunter2"3'], render_streams({"foo": {"subjects": ["foo.>"]}})):
        plan = make_plan("acme", bundle, servers.observe())
        document = json.dumps(saved.to_dict(plan), indent=2)
        shown = [
            print_values(*plan_view.render_plan(plan)),
            plan_view.render_markdown(plan, "routing"),
            mask_secrets(document),
        ]
        assert all(f"metadata.{name}" in text and "hunter2" not in text for text in shown), shown
        assert json.loads(shown[-1]).keys() == json.loads(document).keys()
        assert "hunter2" in document, "a saved plan has what will be applied"


@pytest.mark.parametrize("key", ["key", "ek", "encryption_key", "prev_key", "password", "token", '"pass"'])
def test_a_line_of_a_file_is_shown_without_what_encrypts_or_logs_in(key: str) -> None:
    assert "hunter2" not in mask_line(f'jetstream {{ store_dir: "/data", {key}: hunter2, cipher: aess }}')
    assert mask_line(f"{key}: $HUNTER2 # which").endswith("$HUNTER2 # which")


def test_masking_takes_no_longer_than_reading() -> None:
    parts = (
        'token":"',
        'token","before":null,"after":"',
        "-----BEGIN SEED-----",
        "eyJ-",
        "eyJ.",
        "a:b,",
        "//a@",
        "//",
        "password=",
        "$2a$11$",
        "SU",
    )
    for part in parts:
        began = time.process_time()
        mask_line(part * (200_000 // len(part)))
        assert time.process_time() - began < 2, part


def check_harmless(text: str) -> None:
    assert all(char.isprintable() or char == "\n" for char in text), ascii(text)
    assert not re.search(r"^\s*::|##\[|##vso\[", text, re.MULTILINE), text


@pytest.mark.parametrize("name", HOSTILE)
def test_no_way_to_print_obeys_a_name(name: str) -> None:
    table = Table(title=name)
    table.add_column(name)
    table.add_row(name)
    table.add_row(Text(name, style="red"))
    for printed in (
        name,
        Text(name),
        Text.assemble(("stream ", "bold"), (name, "red"), " end"),
        Group(name, Text(name)),
    ):
        check_harmless(print_values(printed))
    check_harmless(print_values(table))
    assert print_values(name).count("\n") == 1
    assert print_values(Text(name)).count("\n") == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_styles_stay_where_they_were(name: str) -> None:
    cleaned = clean_text(Text.assemble(("before ", "bold"), (name, "red"), (" after", "green")))
    assert cleaned.plain.replace(r"\x3a", ":") == clean(Text(f"before {name} after").plain).replace(r"\x3a", ":")
    assert "".join(cleaned.plain[span.start : span.end] for span in cleaned.spans if span.style == "green") == " after"


async def plan_lines(name: str) -> Iterable[Any]:
    before = render_streams({"foo": {"subjects": ["foo.>"]}})
    bundle = render_streams({"foo": {"subjects": ["foo.>"], "metadata": {"label": name}, "description": name}})
    servers = FakeServers()
    for stream in before.streams:
        await servers.create(stream.config)
    plan = make_plan("acme", bundle, servers.observe())
    return [*plan_view.render_plan(plan), *plan_view.render_markdown(plan, "routing").splitlines()]


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\udcff" not in name])
async def test_views_print_hostile_names_harmlessly(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = [
        Finding(code="VS101", severity=Severity.ERROR, message=name, where=Span(name, 1, 1, 1, 2), hint=name),
        Finding(code="VD201", severity=Severity.WARNING, message="dead", where=name, evidence=name, hint=name),
    ]
    printed = [
        *finding_text.render_full(hostile, {name: name}),
        *finding_text.render_concise(hostile),
        *await plan_lines(name),
        render_keys({name: name}),
    ]
    check_harmless(print_values(*printed))
    check_harmless(finding_formats.to_junit(hostile, [name]))
    print_error(VstreamError(name, hint=name))
    check_harmless(capsys.readouterr().err)


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_has_nothing_of_its_own(name: str) -> None:
    for text in (markdown_code(f"`{name}`|x"), markdown_text(f"{name} | <img src=x> @org/team ![x](y)")):
        assert "\n" not in text
        assert not re.search(r"(?<!\\)\|", text)
    assert markdown_text("<img> @me ![x]") == "&lt;img&gt; &#64;me \\!\\[x]"
    assert markdown_code("a`b") == "``a`b``"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_marks_and_boxes_fit_the_encoding(encoding: str) -> None:
    table = Table("✓ ok", "▁▂█")
    table.add_row("✗", "Ω")
    text = print_values(table, "✓ 3 → 4 …", encoding=encoding)
    assert "+ 3 > 4" in text
    assert "?" in text
    assert fit_encoding("a × b", "latin-1") == "a × b"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_command_ends_well_in_any_encoding(encoding: str) -> None:
    for arguments in (["--help"], ["scenario", "list"], ["lint", "--explain", "VS101"]):
        ran = vstream(*arguments, variables={"PYTHONIOENCODING": encoding})
        assert ran.code == 0, ran.err


_SHOW_PROGRESS = """
from vstream.cli.views import console
from vstream.cli.views.progress import progress_bar
with progress_bar() as bar:
    task = bar.add_task("waiting", total=None)
    bar.refresh()
    console.stdout().print("data")
    console.print_note("note")
"""


def run_on_terminal(arguments: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """How Python ends with *arguments*, and what it shows on a terminal of 60 columns."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 60, 0, 0))
    ran = subprocess.run([sys.executable, *arguments], stdout=terminal, stderr=terminal, env=variables, check=False)
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # how Linux says that it is over
        while block := os.read(controller, 1 << 16):
            shown += block
    os.close(controller)
    return ran.returncode, shown.decode()


def test_a_progress_display_is_erased_before_text_is_printed() -> None:
    """A terminal shows each text on a line of its own, and in the end nothing of the display."""
    code, shown = run_on_terminal(["-c", _SHOW_PROGRESS], {**environment(), "TERM": "xterm"})
    assert code == 0
    assert "waiting" in shown
    assert "0/?" not in shown
    for text in ("data", "note"):
        before = shown[: shown.index(text)]
        assert before.endswith(("\x1b[2K", "\r", "\n")), ascii(before[-40:])


def test_a_dumb_terminal_has_its_own_width_and_no_line_is_left_by_a_display() -> None:
    variables = {name: value for name, value in environment().items() if name not in {"COLUMNS", "LINES"}}
    program = _SHOW_PROGRESS.replace('"data"', "str(console.stdout().width)")
    code, shown = run_on_terminal(["-c", program], {**variables, "TERM": "dumb"})
    assert code == 0
    assert shown.split("\r\n") == ["60", "note", ""]


def test_a_doctor_says_whom_it_waits_for(tmp_path: Path) -> None:
    """A region that accepts connections and says nothing takes all of the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        file = tmp_path / "topology.yaml"
        file.write_text(one_region(address))
        arguments = ["-m", "vstream", "doctor", str(file), "--timeout", "0.5"]
        _, shown = run_on_terminal(arguments, {**environment(), "TERM": "xterm"})
    assert f"asking {address}" in shown
