"""Nobody else on the machine can read what a lab keeps, or log in to its system account."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from tests.support.lab_bundle import topology
from vstream.chaos import journal
from vstream.chaos.faults.kill import Kill
from vstream.chaos.journal import Journal, OpenFault
from vstream.lab import conf, passwords, ports, server_records
from vstream.lab.binaries import Program
from vstream.lab.links import choose, state
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import Answer, Backend
from vstream.lab.server_records import ServerRecord
from vstream.lab.state import LabDirectory, LabRecord
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import SYSTEM_PASSWORD_PATH

MAPPED = (
    'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}, east: {servers: 1}}\n'
    "streams: {foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 1h}}}\n"
)


async def test_what_a_lab_keeps_is_readable_by_nobody_else_whatever_the_umask_is(tmp_path: Path) -> None:
    directory = LabDirectory("a", tmp_path / "labs" / "a")
    before = os.umask(0)
    try:
        async with directory.lock():
            addresses = ports.allocate(topology(2, 1).seats, 14000, directory, backend=Backend.PROXY)
            programs = {address.server.name: Program(Path("nats-server"), "2.15.1") for address in addresses}
            directory.write(LabRecord(topology="test", servers=addresses, programs=programs))
            argv = ("nats-server", "-c", "x")
            server_records.write(
                directory, ServerRecord(server="r0-0", state="starting", argv=argv, config="x", version="1")
            )
            ProxyProcess(directory).write_orders(choose.make_links(addresses, Backend.PROXY, {}))
            answer = Answer(pid=1, generation=1, answered=1, connections={})
            state.replace_file(directory.links / "answer.json", state.encode_answer(answer))
            opened = OpenFault(id="f1", command="kill", fault=Kill(servers=("r0-0",)), since=datetime.now(UTC))
            journal.write_journal(directory, Journal(number=1, faults=(opened,)))
    finally:
        os.umask(before)
    files = {path.name: path.stat().st_mode & 0o777 for path in directory.path.rglob("*") if path.is_file()}
    assert {"lab.json", "r0-0.json", "links.json", "answer.json", "chaos.json", "lab.holder"} <= files.keys()
    assert {name: mode for name, mode in files.items() if mode & 0o077 and not name.endswith(".lock")} == {}
    folders = [path for path in (directory.path, *directory.path.rglob("*")) if path.is_dir()]
    assert {path.name: path.stat().st_mode & 0o077 for path in folders} == dict.fromkeys(
        (path.name for path in folders), 0
    )


def test_the_system_account_of_a_lab_without_users_has_a_random_password(tmp_path: Path) -> None:
    mapped = check_topology(MAPPED.encode(), "acme.yaml").require()
    directory = LabDirectory("acme", tmp_path)
    bundle = render_bundle(mapped, addresses=ports.allocate(mapped.seats, 14000, directory))
    files = passwords.with_passwords(directory.conf, bundle)
    conf.replace_files(directory.conf, files)
    chosen = passwords.find_password(directory.conf, "system")
    assert chosen is not None
    assert len(chosen) >= 24
    # It is in its own file, which nobody else can read, and stays when the lab starts again.
    assert [file.path for file in files if chosen in file.text] == [SYSTEM_PASSWORD_PATH]
    assert (directory.conf / SYSTEM_PASSWORD_PATH).stat().st_mode & 0o777 == 0o600
    assert passwords.with_passwords(directory.conf, bundle) == files
    assert passwords.with_passwords(tmp_path / "other", bundle) != files
