"""What is recorded of a lab, who holds it, and which process is which server."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.lab_bundle import topology
from vstream.errors import LabError
from vstream.lab import conf, ports, processes, server_records, state
from vstream.lab.binaries import Program
from vstream.lab.server import NatsServer
from vstream.lab.server_records import ServerRecord
from vstream.lab.state import LabDirectory, LabRecord, lab_directory, list_lab_directories
from vstream.topology.bundle import Artifact

HOLD = """
import asyncio
from vstream.lab.state import lab_directory

async def hold():
    async with lab_directory("x").lock():
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(hold())
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabDirectory:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(state, "_LOCK_TIMEOUT", 0.1)
    return lab_directory("x")


def a_record(directory: LabDirectory) -> LabRecord:
    servers = ports.allocate(topology(2, 2).seats, 14000, directory)
    programs = {server.server.name: Program(Path("/bin/nats-server"), "2.15.1") for server in servers}
    return LabRecord(topology="acme", servers=servers, programs=programs)


def a_server(directory: LabDirectory, pid: int, create_time: float) -> ServerRecord:
    config = directory.config("r0-0")
    argv = server_records.server_arguments(Path("/bin/nats-server"), config)
    return ServerRecord(
        server="r0-0",
        state=server_records.RUNNING,
        argv=argv,
        config=str(config),
        version="2.15.1",
        pid=pid,
        create_time=create_time,
    )


def test_a_lab_is_read_back_as_it_was_written(directory: LabDirectory) -> None:
    directory.create()
    directory.write(a_record(directory))
    assert directory.read() == a_record(directory)
    assert list_lab_directories() == (directory,)


def test_a_lab_that_was_never_started_has_no_record(directory: LabDirectory) -> None:
    assert directory.read() is None
    assert list_lab_directories() == ()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1, "topology": "x"}'])
def test_a_record_that_cannot_be_understood_is_named_with_the_way_out(directory: LabDirectory, text: str) -> None:
    directory.create()
    (directory.path / "lab.json").write_text(text)
    with pytest.raises(LabError, match=r"record of lab `x` at `.*lab\.json` cannot be read") as caught:
        directory.read()
    assert "vstream lab down x --purge" in str(caught.value.hint)


def test_nobody_else_can_read_a_lab(directory: LabDirectory) -> None:
    directory.create()
    made = [directory.path.parent.parent, directory.path.parent, directory.path, *directory.path.iterdir()]
    assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in made}


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "file" / "state"))
    with pytest.raises(LabError, match="cannot write its directory") as caught:
        lab_directory("x").create()
    assert "VSTREAM_STATE_DIR" in str(caught.value.hint)


def test_a_lab_has_one_path_however_one_gets_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "link"))
    assert lab_directory("x").path == tmp_path.resolve() / "real" / "labs" / "x"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 65, "a b", "x\n"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="cannot be the name of a lab"):
        lab_directory(name)


async def test_only_one_command_changes_a_lab_and_the_other_is_told_which(directory: LabDirectory) -> None:
    async with directory.lock():
        with pytest.raises(LabError, match=f"lab `x` is being changed by process {os.getpid()}"):
            async with directory.lock():
                pass
    async with directory.lock():
        pass


def test_a_killed_holder_leaves_the_lab_to_the_next(directory: LabDirectory) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LabError, match=f"process {holder.pid}"):
        asyncio.run(_hold(directory))
    holder.kill()
    holder.communicate()
    asyncio.run(_hold(directory))


async def test_who_waited_for_a_lab_that_was_purged_gets_a_whole_one(directory: LabDirectory) -> None:
    async with directory.lock():
        directory.write(a_record(directory))
        waiting = asyncio.create_task(_hold(directory, patience=60))
        await asyncio.sleep(0)
        directory.purge()
    await waiting
    assert directory.read() is None


async def _hold(directory: LabDirectory, patience: float | None = None) -> None:
    async with directory.lock(patience=patience):
        assert directory.conf.is_dir()


def test_a_record_is_no_process(directory: LabDirectory) -> None:
    """This test runs with the recorded pid and start time, but was not started with the server's configuration."""
    directory.create()
    server_records.write(directory, a_server(directory, os.getpid(), psutil.Process().create_time()))
    assert server_records.read(directory, "r0-0") is not None
    assert server_records.process_of(directory, "r0-0") is None


def test_a_process_can_be_recognised_as_soon_as_it_was_started(tmp_path: Path) -> None:
    """Else a server that starts on a busy machine is said to have died. On one core, a fifth was not recognised."""
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
    try:
        for _ in range(50):
            process = psutil.Process(processes.start_process(["/bin/sleep", "60"], log=tmp_path / "said", cwd=tmp_path))
            shown = processes.read_arguments(process)
            process.kill()
            process.wait()
            assert shown == ["/bin/sleep", "60"]
    finally:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)


def test_a_process_with_other_arguments_is_no_server_although_it_names_the_configuration(
    directory: LabDirectory,
) -> None:
    """Such as an editor or `tail -f`."""
    directory.create()
    config = str(directory.config("r0-0"))
    reader = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()", config],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "up\n"
    assert config in psutil.Process(reader.pid).cmdline()
    assert not server_records.scan_processes(directory)
    reader.communicate()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"server": "r0-0"}', '{"argv": null}'])
def test_a_damaged_server_record_is_no_record_but_is_known(directory: LabDirectory, text: str) -> None:
    directory.create()
    (directory.run / "r0-0.json").write_text(text)
    assert server_records.read(directory, "r0-0") is None
    assert server_records.list_recorded_servers(directory) == ("r0-0",)


def test_a_bundle_on_disk_is_exactly_the_bundle(directory: LabDirectory) -> None:
    directory.create()
    first = [Artifact(path="mappings.cfg", text="a"), Artifact(path="streams/r0/foo.json", text="{}")]
    second = [Artifact(path="mappings.cfg", text="b\r\n")]
    conf.replace_files(directory.conf, first)
    conf.replace_files(directory.conf, second)
    assert [path for path in directory.conf.rglob("*") if path.is_file()] == [directory.conf / "mappings.cfg"]
    assert (directory.conf / "mappings.cfg").read_bytes() == b"b\r\n"


GATEWAYS = """gateway {{
  gateways: [
{0}
  ]
}}
cluster {{
  routes: [
{0}
  ]
}}
listen: "127.0.0.1:{1}"
"""


def test_what_a_server_runs_with_is_another_only_if_more_than_whom_it_dials_differs(
    directory: LabDirectory,
) -> None:
    directory.create()
    path = "servers/r0-0.conf"
    running = GATEWAYS.format('    {name: "a", urls: []}', 1)
    conf.replace_files(directory.conf, [Artifact(path=path, text=running), Artifact(path="mappings.cfg", text="a")])
    grown = Artifact(path=path, text=GATEWAYS.format('    {name: "a", urls: []}\n    {name: "b", urls: []}', 1))
    more = [grown, Artifact(path="servers/r1-0.conf", text="new"), Artifact(path="mappings.cfg", text="b")]
    assert conf.list_differing_configs(directory.conf, more) == ()
    assert conf.list_differing_configs(directory.conf, [Artifact(path=path, text=GATEWAYS.format("", 2))]) == (path,)
    texts = {file.path: file.text for file in conf.keep_loaded_files(directory.conf, more)}
    assert texts == {path: running, "servers/r1-0.conf": "new", "mappings.cfg": "a"}


@pytest.mark.parametrize("path", ["../x.conf", "/etc/x.conf", "servers/../../x.conf"])
def test_a_bundle_cannot_write_beside_its_directory(directory: LabDirectory, path: str) -> None:
    with pytest.raises(LabError, match="outside of its directory"):
        conf.replace_files(directory.conf, [Artifact(path=path, text="x")])


def test_copied_logs_say_which_lines_are_of_a_panic(directory: LabDirectory, tmp_path: Path) -> None:
    server = NatsServer(directory, "r0-0")
    server.log_file.parent.mkdir(parents=True)
    server.log_file.write_text("[INF] Starting\n[FTL] no quorum\n")
    server.err_file.write_text("panic: nil\n" * 30)
    copies = tmp_path / "copies"
    copies.mkdir()
    panics = server.copy_logs(copies)
    assert (panics[:2], len(panics)) == (("[FTL] no quorum", "panic: nil"), 20)
    assert (copies / "r0-0.log").read_text() == server.log_file.read_text()
    server.err_file.write_text("")
    assert server.copy_logs(copies) == ("[FTL] no quorum",)
