"""Mapping rules come as files to servers that are nobody's lab: one `apply` ships them, has them loaded, and looks."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.render.test_transport import LEAF_PASSWORD, SuperCluster, running
from tests.support.command import Ran, vstream
from tests.support.killed_command import run_and_kill
from tests.support.paths import CERTIFICATES
from tests.support.ports import free_port
from tests.support.publish_load import publish_over_tls

pytestmark = pytest.mark.server

SHIP = """\
import pathlib, shutil, sys
directory, host, server, mode = sys.argv[1:]
target = pathlib.Path(host) / server
if mode == "not-" + server:
    sys.exit(0)
(target / "shipped").write_text(" ".join(sorted(file.name for file in pathlib.Path(directory).iterdir())))
for file in pathlib.Path(directory).glob("*.cfg"):
    text = file.read_text()
    (target / file.name).write_text(text + ("no_such_key: 1" if mode == "broken-" + server else ""))
"""


class ShippedCluster(SuperCluster):
    """Servers that have a directory of their own each, as hosts have."""

    def run(self, name: str, configuration: Path) -> None:
        host_directory = self.directory / "hosts" / name
        shutil.copytree(configuration.parent, host_directory / "servers")
        for file in self.directory.glob("*.cfg"):
            shutil.copy(file, host_directory)
        super().run(name, host_directory / "servers" / configuration.name)


class Site:
    """A topology file, the servers that run it, and the command that ships to them."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "acme.yaml"
        self.ports = {
            region: {port: free_port() for port in ("client", "monitor", "cluster", "gateway")}
            for region in ("west", "east")
        }
        self.script = directory / "ship.py"
        self.script.write_text(SHIP)
        self.subjects = {"orders": ["orders.>"]}
        self.write()
        self.cluster = ShippedCluster(directory / "servers", self.file.read_text())

    def add(self, stream: str, *, has_system: bool = True) -> None:
        """Write the file with one more stream."""
        self.subjects[stream] = [f"{stream}.>"]
        self.write(has_system=has_system)

    def write(self, *, has_system: bool = True) -> None:
        hosts = {"west": "127.0.0.1", "east": "localhost"}
        connect = {
            region: {
                "urls": [f"tls://{host}:{self.ports[region]['client']}"],
                "user": "vstream",
                "password_env": "VSTREAM_PASSWORD_VSTREAM",
                "tls": {"ca": str(CERTIFICATES / "ca.pem")},
                "monitor": [f"https://{host}:{self.ports[region]['monitor']}"],
                **({"system": {"user": "system", "password_env": "VSTREAM_PASSWORD_SYSTEM"}} if has_system else {}),
            }
            for region, host in hosts.items()
        }
        files = {"cert_file": "server.pem", "key_file": "server.key", "ca_file": "ca.pem"}
        document = {
            "version": 1,
            "name": "acme",
            "server_version": "2.12",
            "routing": "accounts",
            "security": {"transport": {key: str(CERTIFICATES / name) for key, name in files.items()}},
            "regions": {region: {"servers": [host], "ports": self.ports[region]} for region, host in hosts.items()},
            "connect": connect,
            "defaults": {"write": {"max_age": "1h"}},
            "streams": {name: {"subjects": subjects} for name, subjects in self.subjects.items()},
        }
        self.file.write_text(json.dumps(document))

    def command(self, mode: str = "all") -> str:
        hosts = self.cluster.directory / "hosts"
        return f"{sys.executable} {self.script} {{directory}} {hosts} {{server}} {mode}"

    def apply(self, mode: str = "all", *arguments: str) -> Ran:
        return vstream("apply", self.file, "--yes", "--ship-with", self.command(mode), *arguments)

    def apply_killed(self, record: Path, only: str = "") -> list[str]:
        """The stages after which `apply` was killed, until it came to its end."""
        options = ("--yes", "--allow-destructive", "--allow-many", "--ship-with", self.command())
        return run_and_kill(record, "apply", self.file, *options, only=only)

    def rules(self, server: str, port: str = "accountz?acc=APP") -> str:
        """What the account of clients has loaded on *server*."""
        return json.dumps(self.cluster.ask(server, port))

    async def publish(self, region: str, subject: str) -> str:
        """The stream that takes a publish of an application."""
        host = {"west": "127.0.0.1", "east": "localhost"}[region]
        return await publish_over_tls(f"{host}:{self.ports[region]['client']}", LEAF_PASSWORD, subject)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("shipped"))
    with running(site.cluster), pytest.MonkeyPatch.context() as patch:
        for user in ("VSTREAM", "SYSTEM", "PROBE", "APP"):
            patch.setenv(f"VSTREAM_PASSWORD_{user}", LEAF_PASSWORD)
        site.cluster.wait(
            lambda: "east" in site.cluster.ask("west-1", "gatewayz")["outbound_gateways"], "the regions are one"
        )
        applied = vstream("apply", site.file, "--yes")
        assert applied.code == 0, applied.out + applied.err
        yield site


def plan_rules(site: Site) -> list[dict[str, Any]]:
    ran = vstream("plan", site.file, "--format", "json")
    assert ran.code == 0, ran.err
    rules: list[dict[str, Any]] = json.loads(ran.out)["mappings"]
    return rules


def test_one_run_ships_reloads_and_looks(site: Site) -> None:
    site.add("events")
    applied = site.apply()
    assert applied.code == 0, applied.out + applied.err
    assert plan_rules(site) == []
    # Configurations of servers stay as they are: no server reloads another list of gateways.
    shipped = {file.read_text() for file in site.cluster.directory.glob("hosts/*/shipped")}
    assert shipped == {".vstream-bundle accounts.cfg"}
    assert asyncio.run(site.publish("east", "events.a")) == "events"


def test_a_server_that_reloaded_and_has_other_rules_is_named(site: Site) -> None:
    site.add("late")
    applied = site.apply("not-east-1", "--wait-loaded", "2")
    assert applied.code == 3
    assert "east-1 has not loaded what is planned" in applied.err
    assert {server for rule in plan_rules(site) for server in rule["servers"]} == {"east-1"}
    again = site.apply()
    assert again.code == 0, again.out + again.err


@pytest.mark.parametrize(
    ("unread", "message"),
    [
        (["east"], "nobody could read what east-1 has loaded"),
        (["east", "west"], "nobody could read what servers have loaded, so nothing would be shipped"),
    ],
)
def test_servers_that_nobody_can_read_are_named(site: Site, unread: list[str], message: str) -> None:
    site.add(f"unread-{len(unread)}")  # a new one in each case: another test may have applied the first
    document = json.loads(site.file.read_text())
    for region in unread:
        del document["connect"][region]["monitor"]
    site.file.write_text(json.dumps(document))
    applied = site.apply("all", "--wait-loaded", "1")
    assert (applied.code, message in applied.err) == (3, True), applied.err
    assert "`monitor`" in applied.err
    assert "`vstream render`" not in applied.err


def test_the_first_server_is_a_canary(site: Site) -> None:
    before = site.cluster.ask("east-1", "varz")["config_load_time"]
    site.add("more")
    applied = site.apply("broken-west-1")
    assert applied.code == 3
    assert "server `west-1` refuses its files" in applied.err
    assert "\\n" not in applied.err
    assert site.cluster.ask("east-1", "varz")["config_load_time"] == before
    again = site.apply()
    assert again.code == 0, again.out + again.err


def test_a_user_of_another_account_is_told_from_servers_that_are_silent(site: Site) -> None:
    site.add("other")
    document = json.loads(site.file.read_text())
    for connect in document["connect"].values():
        connect["system"] = {"user": "vstream", "password_env": "VSTREAM_PASSWORD_VSTREAM"}
    site.file.write_text(json.dumps(document))
    refused = site.apply()
    assert (refused.code, "is not in the system account" in refused.err) == (3, True), refused.err
    assert "did not answer" not in refused.err
    shipped = [file.read_text() for file in site.cluster.directory.glob("hosts/**/accounts.cfg")]
    assert shipped
    assert not any("other" in text for text in shipped)  # said before anything is shipped
    site.write()
    again = site.apply()
    assert again.code == 0, again.out + again.err


def test_a_command_that_fails_reloads_nothing(site: Site) -> None:
    before = site.cluster.ask("west-1", "varz")["config_load_time"]
    site.add("last")
    failed = vstream("apply", site.file, "--yes", "--ship-with", "false {server}")
    assert (failed.code, "shipping to server `west-1` failed with 1" in failed.err) == (3, True), failed.err
    unknown = vstream("apply", site.file, "--yes", "--ship-with", "cp {nothing}")
    assert (unknown.code, "it knows {server}, {host}, {region} and {directory}" in unknown.err) == (3, True)
    assert site.cluster.ask("west-1", "varz")["config_load_time"] == before
    again = site.apply()
    assert again.code == 0, again.out + again.err


def test_without_a_system_user_it_waits_for_whoever_reloads(site: Site) -> None:
    site.add("waited", has_system=False)
    stopped = threading.Event()

    def reload() -> None:
        """A sidecar: reloads whatever is there, again and again."""
        while not stopped.wait(0.5):
            for process in site.cluster.processes.values():
                process.send_signal(signal.SIGHUP)

    sidecar = threading.Thread(target=reload)
    sidecar.start()
    try:
        applied = site.apply("all", "--wait-loaded", "60")
    finally:
        stopped.set()
        sidecar.join()
    assert applied.code == 0, applied.out + applied.err
    refused = site.apply()
    assert refused.code == 0, refused.err  # nothing is left to be loaded, so nothing is asked for
    site.add("never", has_system=False)
    nobody = site.apply()
    assert (nobody.code, "no server would load them" in nobody.err) == (3, True), nobody.err


STAGES = {
    "a server has its file",
    "all have their files",
    "a server has reloaded",
    "the canary has what is planned",
    "all have reloaded",
}


def test_killed_before_the_others_reload_the_next_run_goes_on(site: Site, tmp_path: Path) -> None:
    site.add("killed")
    canary = "the canary has what is planned"
    assert site.apply_killed(tmp_path / "record", canary) == [canary]
    assert plan_rules(site) == []
    assert asyncio.run(site.publish("east", "killed.a")) == "killed"


@pytest.mark.night
@pytest.mark.parametrize(
    ("before", "after", "stages"),
    [
        ([], ["stage.>"], {"CHANGE_WRITE_STREAMS", "CHANGE_READ_STREAMS"}),
        (["stage.>"], ["stage.>", "second.>"], {"CHANGE_WRITE_STREAMS"}),
        (["stage.>"], [], {"DELETE_WRITE_STREAMS", "DELETE_READ_STREAMS"}),
    ],
    ids=["a new stream", "another subject", "a stream less"],
)
def test_killed_after_each_stage_the_next_run_goes_on(
    site: Site, before: list[str], after: list[str], stages: set[str], tmp_path: Path
) -> None:
    for number, subjects in enumerate((before, after)):
        site.subjects.pop("stage", None)
        if subjects:
            site.subjects["stage"] = subjects
        site.write()
        killed = site.apply_killed(tmp_path / str(number), "" if number else "no stage")
    assert STAGES | stages <= set(killed)
    sys.stdout.write(f"killed after: {', '.join(killed)}\n")
    assert plan_rules(site) == []
    for subject in after:
        assert asyncio.run(site.publish("east", subject.replace(">", "a"))) == "stage"
