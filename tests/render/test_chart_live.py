"""What the Helm chart makes of our values runs: planned, applied and probed, with addresses of this machine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart_pods import PASSWORD, Pods, make_configuration, read_releases, running_pods
from tests.support.command import Ran, vstream
from tests.support.publish_load import publish_over_tls
from vstream import resources
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.render.targets import render_target
from vstream.servers.bundles import provide_signer
from vstream.topology.bundle import loaded_path

pytestmark = pytest.mark.server

DOCUMENT = {
    "version": 1,
    "name": "acme",
    "server_version": "2.12",
    "routing": "accounts",
    "security": {"transport": {key: f"/etc/nats/{key}.pem" for key in ("cert_file", "key_file", "ca_file")}},
    "server_options": {"connect_backoff": True, "metadata": {"team": "payments"}},
    "regions": {
        "west": {"servers": 2, "names": ["west-nats-0", "west-nats-1"], "gateway": "nats-gw.west.example.net"},
        "east": {"servers": 1, "names": ["east-nats-0"], "gateway": "nats-gw.east.example.net"},
    },
    "streams": {"orders": {"subjects": ["orders.>"], "canary": "orders.canary.*", "write": {"max_age": "1h"}}},
}


@contextmanager
def running_site(directory: Path, document: dict[str, Any], version: str | None = None) -> Iterator[tuple[Path, Pods]]:
    """The pods of the topology *document*, and its file, with `connect`."""
    topology = check_topology(json.dumps(document).encode(), "acme.yaml").require()
    bundle = render_bundle(topology, signer=provide_signer(topology, None))
    releases = read_releases(render_target("helm", topology, bundle, [resources.templates()]))
    pods = Pods(directory / "pods", topology, {name: make_configuration(values) for name, values in releases.items()})
    file = directory / "acme.yaml"
    file.write_text(json.dumps({**document, "connect": pods.connect()}))
    with running_pods(pods, bundle.text(loaded_path(topology)), version), pytest.MonkeyPatch.context() as patch:
        for user in ("VSTREAM", "SYSTEM", "PROBE", "APP"):
            patch.setenv(f"VSTREAM_PASSWORD_{user}", PASSWORD)
        yield file, pods


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Pods]]:
    with running_site(tmp_path_factory.mktemp("chart"), DOCUMENT) as running:
        yield running


def succeed(ran: Ran) -> str:
    assert ran.code == 0, ran.out + ran.err
    return ran.out


def test_pods_of_the_chart_are_planned_applied_and_probed(site: tuple[Path, Pods]) -> None:
    file, pods = site
    succeed(vstream("apply", file, "--yes"))
    assert "No changes" in succeed(vstream("plan", file, "--detailed-exitcode"))
    succeed(vstream("probe", file))

    east = f"127.0.0.1:{pods.ports['east-nats-0']['client']}"
    assert asyncio.run(publish_over_tls(east, PASSWORD, "orders.1")) == "orders"


def test_a_server_that_has_other_rules_than_its_neighbour_is_named(site: tuple[Path, Pods]) -> None:
    file, pods = site
    succeed(vstream("apply", file, "--yes"))
    rules = pods.directory / "west-nats-1" / "nats-vstream" / "accounts.cfg"
    text = rules.read_text()
    rules.write_text(re.sub(r'      "orders\.>": \[\n.*?\n      \]\n', "", text, count=1, flags=re.DOTALL))
    assert rules.read_text() != text
    try:
        pods.reload("west-nats-1")
        probed = vstream("probe", file, "--each-server", "--timeout", "10", "--format", "json")
        failed = {check["server"] for check in probed.json()["checks"] if check["status"] == "failed"}
        assert (probed.code != 0, failed) == (True, {"west-nats-1"}), probed.out
    finally:
        rules.write_text(text)
        pods.reload("west-nats-1")
    succeed(vstream("probe", file, "--each-server"))


def test_what_a_sidecar_loads_once_is_not_served_and_apply_reloads_it_once_more(site: tuple[Path, Pods]) -> None:
    """As after a new region: a server knows the imports of an account that a reload made, and serves them from the next on."""
    file, pods = site
    succeed(vstream("apply", file, "--yes"))
    rules = pods.directory / "west-nats-1" / "nats-vstream" / "accounts.cfg"
    text = rules.read_text()
    for loaded in (text.replace("R_east", "R_gone"), text):
        rules.write_text(loaded)
        pods.reload("west-nats-1")
    planned = vstream("plan", file, "--format", "json").json()["mappings"]
    assert {server for rule in planned for server in rule["servers"]} == {"west-nats-1"}
    assert "`west-nats-1`: error VD402: half-reloaded\n" in vstream("doctor", file).out
    document = json.loads(file.read_text())
    system = {"user": "system", "password_env": "VSTREAM_PASSWORD_SYSTEM"}
    connect = {region: {**reached, "system": system} for region, reached in document["connect"].items()}
    mended = file.with_name("with-system.yaml")
    mended.write_text(json.dumps({**document, "connect": connect}))
    succeed(vstream("apply", mended, "--yes", "--wait-loaded", "60"))
    assert "No changes" in succeed(vstream("plan", file, "--detailed-exitcode"))


@pytest.mark.night
@pytest.mark.parametrize("version", ["2.12.8", "2.15.1"])
@pytest.mark.parametrize("name", ["stretch", "operator", "certificates"])
def test_other_releases_are_planned_applied_and_probed(
    name: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSTREAM_KEYS", str(tmp_path / "keys"))
    source = Path(__file__).parent / "targets" / f"kubernetes-{name}.yaml"
    if name == "operator":
        succeed(vstream("keys", "create", source))
    with running_site(tmp_path, yaml.safe_load(source.read_text()), version) as (file, _):
        succeed(vstream("apply", file, "--yes"))
        assert "No changes" in succeed(vstream("plan", file, "--detailed-exitcode"))
        succeed(vstream("probe", file))
