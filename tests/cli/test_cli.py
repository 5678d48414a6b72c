"""The commands that need no servers, and how every command ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import nkeys
import pytest

from tests.support.command import environment, vstream
from tests.support.topologies import begin_topology
from vstream import __version__

GOOD = begin_topology("acme", west=1, east=1) + "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"
BAD = GOOD.replace("foo.>]", "foo.>], regions: [wset]").replace("max_age: 1h", "max_age: 1 hour")

COMMANDS = ["init", "validate", "render", "plan", "apply", "probe", "lab", "scenario", "schema"]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "topology.yaml"
    file.write_text(GOOD)
    return file


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))


def test_version_is_printed() -> None:
    assert vstream("--version").out == f"vstream {__version__}\n"


def test_help_lists_every_command_and_the_exit_codes() -> None:
    ran = vstream("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert name in ran.out
    assert "Exit codes" in ran.out


@pytest.mark.parametrize("name", ["chaos isolate", *(name for name in COMMANDS if name not in {"lab", "scenario"})])
def test_every_command_explains_itself(name: str) -> None:
    ran = vstream(*name.split(), "--help")
    assert ran.code == 0
    assert "Usage" in ran.out
    assert not re.search(r"list\[|<(str|path)>", ran.out)  # a type of Python


def test_an_unknown_command_is_a_usage_error() -> None:
    assert vstream("explode").code == 2


def test_init_writes_a_topology_that_is_valid(tmp_path: Path) -> None:
    assert vstream("init", cwd=tmp_path).code == 0
    ran = vstream("validate", cwd=tmp_path)
    assert ran.code == 0
    assert "9 servers, 6 physical streams, 9 mapping rules" in ran.err
    assert "no limit" not in ran.err
    schema = json.loads((tmp_path / "topology.schema.json").read_text())
    assert schema == vstream("schema").json()
    named = vstream("init", "two regions.yaml", cwd=tmp_path)
    assert named.err.endswith("next: vstream validate 'two regions.yaml'\n"), "a shell takes what is to be typed"


def test_init_overwrites_nothing_unless_told(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text("mine")
    ran = vstream("init", cwd=tmp_path)
    assert ran.code == 3
    assert "--force" in ran.err
    assert (tmp_path / "topology.yaml").read_text() == "mine"
    assert vstream("init", "--force", "--routing", "accounts", cwd=tmp_path).code == 0
    assert "9 servers, 6 physical streams, 4 mapping rules" in vstream("validate", cwd=tmp_path).err


def test_init_refuses_a_name_that_is_not_one(tmp_path: Path) -> None:
    ran = vstream("init", "--name", "a b", cwd=tmp_path)
    assert ran.code == 2
    assert not (tmp_path / "topology.yaml").exists()


def test_a_valid_file_says_what_it_is(good: Path) -> None:
    ran = vstream("validate", good)
    assert ran.code == 1  # as lint: there is a warning
    assert [line.split(": ")[1] for line in ran.out.splitlines() if ": warning " in line] == ["warning VS410"]
    assert "topology.yaml has warnings, no errors: 2 servers, 4 physical streams, 9 mapping rules" in ran.err


@pytest.mark.parametrize(
    ("streams", "note"),
    [
        ("{}", "It has no streams"),
        ("{foo: {subjects: [foo.>], write: {max_age: unlimited}}}", "Some streams of `foo` have no limit"),
        ("{foo: {subjects: [foo.>], write: {max_age: 1h}, read: {max_bytes: 1GB}}}", ""),
    ],
)
def test_what_is_valid_and_perhaps_not_meant_is_said(streams: str, note: str, tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(f"{begin_topology('n', west=1)}streams: {streams}\n")
    lines = vstream("validate", cwd=tmp_path).err.splitlines()
    notes = [line for line in lines if line.startswith(("It has", "Some streams"))]
    assert notes[0].startswith(note) if note else notes == [], lines


def test_errors_come_with_place_snippet_and_way_out(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(BAD)
    ran = vstream("validate", cwd=tmp_path)
    assert ran.code == 1
    assert ran.out == (
        "topology.yaml:5:46: error VS101: stream `foo` uses unknown region `wset`\n"
        "  |\n"
        "5 | streams: {foo: {subjects: [foo.>], regions: [wset], write: {max_age: 1 hour}}}\n"
        "  |                                              ^^^^\n"
        "hint: did you mean `west`?\n"
        "\n"
        "topology.yaml:5:70: error VS005: `streams.foo.write.max_age`: `1 hour` is not a valid duration: write it like "
        "`90s`, `1h30m`, `30d` or `unlimited`\n"
        "  |\n"
        "5 | streams: {foo: {subjects: [foo.>], regions: [wset], write: {max_age: 1 hour}}}\n"
        "  |                                                                      ^^^^^^\n"
        "\n"
    )
    (tmp_path / "topology.yaml").write_text(BAD.replace("1 hour", "1h"))
    ran = vstream("validate", "--format", "concise", cwd=tmp_path)
    assert ran.out == (
        "topology.yaml:5:46: error VS101: stream `foo` uses unknown region `wset` (did you mean `west`?)\n"
    )


def test_errors_as_json(tmp_path: Path) -> None:
    ran = vstream("validate", "-", "--format", "json", stdin=BAD)
    assert ran.code == 1
    findings = [(finding["code"], finding["file"], finding["line"]) for finding in ran.json()["findings"]]
    assert findings == [("VS101", "<stdin>", 5), ("VS005", "<stdin>", 5)]


@pytest.mark.parametrize("command", ["plan", "apply", "probe", "render", "lab up"])
def test_every_command_refuses_a_bad_file_the_same_way(tmp_path: Path, command: str) -> None:
    (tmp_path / "topology.yaml").write_text(BAD)
    ran = vstream(*command.split(), cwd=tmp_path)
    assert ran.code == 1
    assert "error VS005" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("command", ["validate", "plan", "render", "lab up"])
def test_a_missing_topology_file_is_one_clear_error(tmp_path: Path, command: str) -> None:
    ran = vstream(*command.split(), cwd=tmp_path)
    assert ran.code == 3
    assert "topology.yaml does not exist" in ran.err
    assert "name the file, or `vstream init`" in " ".join(ran.err.split())


def test_a_directory_instead_of_a_file(tmp_path: Path) -> None:
    ran = vstream("validate", tmp_path)
    assert ran.code == 3
    assert ran.err.endswith("is a directory\nhint: name a file in it\n")


@pytest.mark.parametrize("command", ["plan", "lab up", "render"])
def test_a_scenario_instead_of_a_topology_is_one_error(tmp_path: Path, command: str) -> None:
    file = tmp_path / "cut.yaml"
    file.write_text("scenario: 1\nname: cut\ntopology: topology.yaml\nsteps: [{wait: 1s}]\n")
    ran = vstream(*command.split(), file)
    assert ran.code == 1
    assert ran.err.count("error VS") == 1, ran.err
    assert "cut.yaml:1:1: error VS005: this is a scenario, not a topology" in ran.err


@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_topology_instead_of_a_scenario_is_one_error(good: Path, command: str) -> None:
    ran = vstream("scenario", command, good)
    assert ran.code == 1
    printed = ran.out + ran.err
    assert printed.count("error VS") == 1, printed
    assert "topology.yaml:4:1: error VS005: this is a topology, not a scenario" in printed


def test_no_line_is_shown_of_what_cannot_be_read_again() -> None:
    ran = vstream("plan", "-", stdin=BAD)
    assert ran.code == 1
    assert "<stdin>:5:46: error VS101" in ran.err
    assert " | " not in ran.err, "an empty line would look like that of the file"


def test_endless_input_ends() -> None:
    ran = vstream("validate", "/dev/zero")
    assert ran.code == 3
    assert "VS004" in ran.out


def test_render_writes_the_bundle_and_takes_back_what_is_gone(good: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    assert vstream("render", good, "-o", build).code == 0
    first = {path.relative_to(build).as_posix(): path.read_bytes() for path in build.rglob("*") if path.is_file()}
    assert "streams/west/foo-read-west.json" in first
    good.write_text(GOOD.replace("foo: {", "bar: {").replace("foo.>", "bar.>"))
    ran = vstream("render", good, "-o", build, "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    written = {path.relative_to(build).as_posix() for path in build.rglob("*") if path.is_file()}
    assert {*ran.json()["files"], ".vstream-bundle"} == written
    assert ran.json()["removed"] == sum(path not in written for path in first)
    assert not (build / "streams/west/foo-read-west.json").exists()
    assert (build / "streams/west/bar-read-west.json").exists()
    good.write_text(GOOD)
    assert vstream("render", good, "-o", build).code == 0
    again = {path.relative_to(build).as_posix(): path.read_bytes() for path in build.rglob("*") if path.is_file()}
    assert again == first


def test_render_never_writes_among_other_peoples_files(good: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("mine")
    ran = vstream("render", good, "-o", tmp_path / "src")
    assert ran.code == 3
    assert [path.name for path in (tmp_path / "src").iterdir()] == ["main.py"]


def test_render_follows_no_links_and_deletes_nothing_outside(good: Path, tmp_path: Path) -> None:
    build, victim = tmp_path / "build", tmp_path / "victim"
    victim.mkdir()
    for name in ("precious", "bashrc"):
        (victim / name).write_text("mine")
    attacks = {
        "link/precious\n": ("link", victim),
        "mappings.cfg\n": ("mappings.cfg", victim / "bashrc"),
        "../victim/precious\n": ("other", victim),
        f"{victim / 'precious'}\n": ("other", victim),
        "streams/west/foo-read-west.json\n": ("streams", victim),
    }
    for number, (listed, (name, target)) in enumerate(attacks.items()):
        directory = build / str(number)
        directory.mkdir(parents=True)
        (directory / ".vstream-bundle").write_text(listed)
        (directory / name).symlink_to(target)
        ran = vstream("render", good, "-o", directory)
        assert ran.code == 3, listed
        assert sorted(path.name for path in victim.rglob("*")) == ["bashrc", "precious"]
        assert all(path.read_text() == "mine" for path in victim.iterdir())
    marker = build / "marker"
    marker.mkdir()
    (marker / ".vstream-bundle").symlink_to(victim / "bashrc")
    assert vstream("render", good, "-o", marker).code == 3
    assert (victim / "bashrc").read_text() == "mine"


def test_nobody_else_can_write_what_is_rendered(good: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ran = vstream("render", good, "-o", tmp_path / "build")
    finally:
        os.umask(before)
    assert ran.code == 0
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "build", *(tmp_path / "build").rglob("*"))}
    assert tmp_path / "build" / ".vstream-bundle" in modes
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o644}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o755}


def test_nobody_else_can_look_where_rendered_tokens_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_KEYS", str(tmp_path / "keys"))
    topology = tmp_path / "topology.yaml"
    topology.write_text(GOOD + "security: {mode: operator}\nrouting: accounts\n")
    before = os.umask(0)
    try:
        assert vstream("keys", "create", topology).code == 0
        assert "app" in vstream("keys", "show", topology, "--format", "json").json()["credentials"]
        ran = vstream("render", topology, "-o", tmp_path / "a/build")
    finally:
        os.umask(before)
    assert ran.code == 0, ran.err
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755
    tokens = list((tmp_path / "a/build").rglob("operator.cfg"))
    assert {path.stat().st_mode & 0o777 for path in tokens} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in tokens} == {0o700}


def test_render_is_not_for_standard_output(good: Path, tmp_path: Path) -> None:
    ran = vstream("render", good, "-o", "-", cwd=tmp_path)
    assert ran.code == 2
    assert not (tmp_path / "-").exists()


def test_render_says_what_it_leaves_open_on_real_hosts(good: Path, tmp_path: Path) -> None:
    assert "note:" not in vstream("render", good, "-o", tmp_path / "lab").err
    hosts = "regions: {west: {servers: [w1.example.net]}, east: {servers: [e1.example.net]}}"
    transport = "security: {transport: {none: the hosts are joined by WireGuard}, users: elsewhere}\n"
    good.write_text(GOOD.replace("regions: {west: {servers: 1}, east: {servers: 1}}", hosts) + transport)
    ran = vstream("render", good, "-o", tmp_path / "hosts")
    assert ran.code == 0, ran.err
    assert "no TLS" in ran.err
    assert "no users" in ran.err
    header = (tmp_path / "hosts" / "servers" / "west-1.conf").read_text().partition("server_name")[0]
    assert "# No TLS" in header
    assert "# No users" in header


@pytest.mark.parametrize("command", ["plan", "apply", "probe"])
def test_without_servers_a_command_says_how_to_get_some(good: Path, command: str) -> None:
    ran = vstream(command, good)
    assert ran.code == 3
    assert "vstream lab up" in ran.err


def test_a_region_that_cannot_be_reached(good: Path) -> None:
    text = GOOD.replace("max_age: 1h}", "max_age: 1h}, consumers: {reader: {}}")
    good.write_text(text + "connect: {west: {urls: 'nats://127.0.0.1:1'}, east: {urls: 'nats://127.0.0.1:1'}}\n")
    commands: tuple[tuple[str | Path, ...], ...] = (("plan", good), ("probe", good), ("consumer", "sync", "-t", good))
    for command in commands:
        ran = vstream(*command)
        assert ran.code == 3, command
        assert "127.0.0.1:1" in ran.out + ran.err


@pytest.mark.parametrize(
    ("connect", "said"),
    [
        ("{context: nowhere}", "no nats CLI context `nowhere`"),
        ("{urls: 'nats://127.0.0.1:1', creds: nowhere.creds}", "nowhere.creds does not exist"),
        ("{urls: 'nats://127.0.0.1:1', user: me, password_env: VSTREAM_TEST_UNSET}", "VSTREAM_TEST_UNSET is not set"),
    ],
)
def test_a_connection_that_is_incomplete(good: Path, connect: str, said: str) -> None:
    good.write_text(GOOD + f"connect: {{west: {connect}}}\n")
    ran = vstream("plan", good)
    assert ran.code == 3
    assert said in ran.err


@pytest.mark.parametrize("command", ["status", "doctor", "plan"])
def test_everything_that_a_connection_lacks_is_said_at_once(command: str, good: Path) -> None:
    west = "{urls: 'nats://127.0.0.1:1', tls: {ca: nowhere.pem}, user: me, password_env: VSTREAM_TEST_UNSET}"
    good.write_text(GOOD + f"connect: {{west: {west}, east: {{context: nowhere}}}}\n")
    ran = vstream(command, good)
    assert ran.code == 3
    for problem in ("nowhere.pem does not exist", "VSTREAM_TEST_UNSET is not set", "no nats CLI context `nowhere`"):
        assert problem in ran.err


def test_a_topology_names_secret_files_only_where_whoever_runs_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, elsewhere = tmp_path / "here", tmp_path / "there"
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
    for path in (
        directory / "ops.nk",
        directory / "sub/ops.nk",
        directory / ".ssh/ops.nk",
        elsewhere / "prod.nk",
        elsewhere / "keys/acme/own.nk",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(seed)
    (directory / "link.nk").symlink_to(elsewhere / "prod.nk")
    monkeypatch.setenv("VSTREAM_KEYS", str(elsewhere / "keys"))

    def run(*logins: str) -> str:
        names = [f"r{number}" for number in range(len(logins))]
        lines = (
            f"  {name}: {{urls: 'nats://127.0.0.1:1', {login}}}" for name, login in zip(names, logins, strict=True)
        )
        regions = ", ".join(f"{name}: {{servers: 1}}" for name in names)
        connect = "\n".join(lines)
        (directory / "t.yaml").write_text(
            GOOD.replace("{west: {servers: 1}, east: {servers: 1}}", f"{{{regions}}}") + f"connect:\n{connect}\n"
        )
        ran = vstream("plan", "t.yaml", cwd=directory)
        assert ran.code == 3
        return ran.err

    refused = [elsewhere / "prod.nk", "../there/prod.nk", "link.nk", ".ssh/ops.nk", "~/prod.nk", "/etc/shadow"]
    for named in refused:
        assert f"error: region `r0`: a topology may not name the file {named}\n" in run(f"nkey: {named}")
    assert "export VSTREAM_CREDENTIALS=../there\n" in run("nkey: ../there/prod.nk")
    assert f"export VSTREAM_CREDENTIALS={elsewhere}\n" in run("nkey: link.nk"), "where the link leads"
    for login in (
        "tls: {cert: ../there/a.pem, key: b.pem}",
        "creds: ../a.creds",
        "nkey: ops.nk, system: {nkey: ../s.nk}",
    ):
        assert "may not name the file ../" in run(login)

    def are_dialled(*names: object) -> None:
        errors = run(*(f"nkey: {name}" for name in names))
        for number, name in enumerate(names):
            assert f"region `r{number}` cannot be reached at nats://127.0.0.1:1" in errors, name

    are_dialled("ops.nk", "sub/ops.nk", "own.nk", directory / "ops.nk")
    monkeypatch.setenv("VSTREAM_CREDENTIALS", f"/nowhere:{elsewhere}")
    are_dialled(elsewhere / "prod.nk", "prod.nk", "link.nk")


def test_a_plan_file_that_is_not_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    ran = vstream("apply", "plan.json", cwd=tmp_path)
    assert ran.code == 3
    assert "is not a plan file" in ran.err


@pytest.mark.parametrize(
    "arguments", [["plan", "--format", "xml"], ["validate", "--format", "xml"], ["probe", "--format", "xml"]]
)
def test_an_unknown_format_is_a_usage_error(good: Path, arguments: list[str]) -> None:
    assert vstream(arguments[0], good, *arguments[1:]).code == 2


def test_a_closed_pipe_is_no_traceback(good: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m vstream schema | head -1",
        shell=True,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["validate", "render", "plan", "apply"])
def test_a_directory_of_templates_that_is_not_there_is_never_replaced_by_the_built_in_ones(
    good: Path, command: str
) -> None:
    ran = vstream(command, good, "--templates", good.parent / "templats")
    assert ran.code == 2
    assert "does not exist" in " ".join(ran.err.replace("│", " ").split())  # as wide as the path, it may be broken


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_cannot_be_written_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "vstream", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
            check=False,
        )
    assert ran.returncode == 3
    assert "cannot write the output: No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_lab_on_a_full_disk_can_be_taken_down(good: Path, tmp_path: Path) -> None:
    """A limit of the process stands for the disk."""
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); from vstream.__main__ import main; main()"
    run = partial(
        subprocess.run,
        capture_output=True,
        env=environment({"VSTREAM_STATE_DIR": str(tmp_path / "state")}),
        text=True,
        check=False,
    )
    up = run([sys.executable, "-c", program, "lab", "up", good])
    record = tmp_path / "state" / "labs" / "acme" / "lab.json"
    assert up.returncode == 3
    assert up.stderr == f"error: {record} cannot be written: File too large\nhint: make room there, and run it again\n"
    down = run([sys.executable, "-c", program, "lab", "down", "acme", "--purge"])
    assert (down.returncode, down.stderr) == (0, "lab acme is down and removed\n")
    assert not record.parent.exists()
