"""What the Helm chart makes of our values runs: planned, applied and probed, with addresses of this machine."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
import yaml

from tests.support.chart_pods import CERTIFICATES, PASSWORD, Pods, make_configuration, running_pods
from tests.support.command import Ran, vstream
from vstream import resources
from vstream.lint.load_topology import load, render_bundle
from vstream.render.targets import render_target
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Pods]]:
    directory = tmp_path_factory.mktemp("chart")
    topology = load(json.dumps(DOCUMENT).encode(), "acme.yaml").require()
    bundle = render_bundle(topology)
    artifacts = render_target("helm", topology, bundle, [resources.templates()])
    configurations = {
        artifact.path.partition("/")[0]: make_configuration(yaml.safe_load(artifact.text)) for artifact in artifacts
    }
    pods = Pods(directory / "pods", topology, configurations)
    file = directory / "acme.yaml"
    file.write_text(json.dumps({**DOCUMENT, "connect": pods.connect()}))
    with running_pods(pods, bundle.text(loaded_path(topology))), pytest.MonkeyPatch.context() as patch:
        for user in ("VSTREAM", "SYSTEM", "PROBE", "APP"):
            patch.setenv(f"VSTREAM_PASSWORD_{user}", PASSWORD)
        yield file, pods


def succeed(ran: Ran) -> str:
    assert ran.code == 0, ran.out + ran.err
    return ran.out


def test_pods_of_the_chart_are_planned_applied_and_probed(site: tuple[Path, Pods]) -> None:
    file, pods = site
    succeed(vstream("apply", file, "--yes"))
    assert "No changes" in succeed(vstream("plan", file, "--detailed-exitcode"))
    succeed(vstream("probe", file))

    async def publish() -> str:
        client = await nats.connect(
            f"tls://127.0.0.1:{pods.ports['east-nats-0']['client']}",
            tls=ssl.create_default_context(cafile=CERTIFICATES / "ca.pem"),
            user="app",
            password=PASSWORD,
        )
        try:
            return (await client.jetstream(timeout=30).publish("orders.1", b"")).stream
        finally:
            await client.close()

    assert asyncio.run(publish()) == "orders"


def test_a_server_that_has_other_rules_than_its_neighbour_is_named(site: tuple[Path, Pods]) -> None:
    file, pods = site
    succeed(vstream("apply", file, "--yes"))
    rules = pods.directory / "west-nats-1" / "nats-vstream" / "accounts.cfg"
    text = rules.read_text()
    rules.write_text(re.sub(r'      "orders\.>": \[\n.*?\n      \]\n', "", text, count=1, flags=re.DOTALL))
    assert rules.read_text() != text
    try:
        pods.reload("west-nats-1")
        probed = vstream("probe", file, "--each-server", "--deadline", "10", "--format", "json")
        failed = {check["server"] for check in probed.json()["checks"] if check["status"] == "failed"}
        assert (probed.code != 0, failed) == (True, {"west-nats-1"}), probed.out
    finally:
        rules.write_text(text)
        pods.reload("west-nats-1")
    succeed(vstream("probe", file, "--each-server"))
