"""What is written for hosts, containers and Kubernetes, and that running servers take it."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.render.test_transport import SuperCluster, running, topology_text
from tests.support.chart_pods import read_releases
from tests.support.command import vstream
from tests.support.paths import ROOT
from vstream import resources
from vstream.errors import VstreamError
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.render.targets import TARGETS, nack, render_target
from vstream.topology.bundle import placeholder_for

HERE = Path(__file__).parent / "targets"
KUBERNETES = (HERE / "kubernetes.yaml").read_text()
MAPPED = (HERE / "kubernetes-mapped.yaml").read_text()
STRETCH = (HERE / "kubernetes-stretch.yaml").read_text()
CERTIFICATES = (HERE / "kubernetes-certificates.yaml").read_text()
TAGGED = re.sub(
    r"(servers: 3,)|(tags: \[ssd, ssd, ssd\])",
    lambda match: "servers: 3, tags: [az:a, az:b, az:c]," if match[1] else "tags: [az:a, az:b, az:c]",
    KUBERNETES.replace("streams:", 'server_options: {unique_tag: "az:"}\nstreams:'),
)
HOSTS = (ROOT / "tests" / "golden" / "stretch-hosts.yaml").read_text()
CHART_VALUES = frozenset(
    [
        "fullnameOverride",
        "config.serverNamePrefix",
        "config.cluster.enabled",
        "config.cluster.port",
        "config.cluster.replicas",
        "config.cluster.routeURLs.useFQDN",
        "config.cluster.tls.enabled",
        "config.cluster.tls.secretName",
        "config.cluster.tls.merge",
        "config.cluster.merge",
        "config.gateway.enabled",
        "config.gateway.port",
        "config.gateway.tls.enabled",
        "config.gateway.tls.secretName",
        "config.gateway.tls.merge",
        "config.gateway.merge",
        "config.jetstream.enabled",
        "config.jetstream.fileStore.maxSize",
        "config.jetstream.fileStore.pvc.size",
        "config.jetstream.memoryStore.enabled",
        "config.jetstream.memoryStore.maxSize",
        "config.jetstream.merge",
        "config.nats.tls.enabled",
        "config.nats.tls.secretName",
        "config.nats.tls.merge",
        "config.monitor.tls.enabled",
        "config.resolver.enabled",
        "config.resolver.dir",
        "config.resolver.pvc.enabled",
        "config.resolver.merge",
        "config.merge",
        "tlsCA.enabled",
        "tlsCA.secretName",
        "container.patch",
        "service.ports.gateway.enabled",
        "service.ports.cluster.enabled",
        "service.merge",
        "podTemplate.topologySpreadConstraints",
        "podTemplate.patch",
        "extraResources",
    ]
)
"""What the chart 2.14.2 knows, of what we set. It has no schema: what it does not know, it drops in silence."""


def render(target: str, text: str) -> dict[str, str]:
    """The files of *target* by path."""
    topology = check_topology(text.encode(), "t.yaml").require()
    artifacts = render_target(target, topology, render_bundle(topology), [resources.templates()])
    return {artifact.path: artifact.text for artifact in artifacts}


def values(text: str) -> dict[str, Any]:
    """The values of each release, by `REGION` or `REGION/CLUSTER`."""
    topology = check_topology(text.encode(), "t.yaml").require()
    return read_releases(render_target("helm", topology, render_bundle(topology), [resources.templates()]))


def leaves(node: Any, path: str = "") -> set[str]:
    """The keys of *node* as dotted paths; what is merged or a list is the chart's user's own."""
    if not isinstance(node, dict) or path.endswith((".merge", "topologySpreadConstraints")):
        return {path}
    return {leaf for key, value in node.items() for leaf in leaves(value, f"{path}.{key}" if path else key)}


class TestHosts:
    @pytest.mark.parametrize(("target", "directory"), [("systemd", "etc/nats"), ("compose", "nats")])
    def test_a_host_has_its_servers_and_what_they_include(self, target: str, directory: str) -> None:
        files = render(target, HOSTS)
        hosts = {path.partition("/")[0] for path in files}
        topology = check_topology(HOSTS.encode(), "t.yaml").require()
        assert hosts == {server.host for region in topology.regions for server in region.servers} | {
            str(server.host) for server in (topology.stretch.members.values() if topology.stretch else ())
        }
        for host in hosts:
            configurations = [path for path in files if path.startswith(f"{host}/{directory}/servers/")]
            assert configurations
            for path in configurations:
                for included in re.findall(r'^include "\.\./(.*)"', files[path], re.MULTILINE):
                    assert f"{host}/{directory}/{included}" in files

    def test_the_unit_starts_each_server_by_its_name_and_stops_it_in_lame_duck_mode(self) -> None:
        path, text = next(item for item in render("systemd", HOSTS).items() if item[0].endswith(".service"))
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(text)
        assert path.endswith("/etc/systemd/system/nats-server@.service")
        assert unit["Service"]["ExecStart"].endswith("-c /etc/nats/servers/%i.conf")
        assert unit["Service"]["KillSignal"] == "SIGUSR2"
        assert unit["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"

    def test_each_service_of_a_compose_file_runs_a_configuration_that_is_there(self) -> None:
        files = render("compose", HOSTS)
        for path, text in files.items():
            if path.endswith("compose.yaml"):
                for service in yaml.safe_load(text)["services"].values():
                    configuration = service["command"][1].removeprefix("/etc/nats/")
                    assert f"{path.removesuffix('compose.yaml')}nats/{configuration}" in files

    @pytest.mark.parametrize("target", ["systemd", "compose"])
    def test_a_number_of_servers_is_no_host(self, target: str) -> None:
        with pytest.raises(VstreamError, match="not on which hosts"):
            render(target, MAPPED)

    @pytest.mark.parametrize("target", ["systemd", "compose"])
    @pytest.mark.parametrize(
        "place", ["/data\nExecStartPre=/bin/sh", "/data /etc", "/:/host", "/$SECRET", "/%h", '/"x']
    )
    def test_no_path_adds_a_line_or_is_acted_on(self, target: str, place: str) -> None:
        text = HOSTS.replace("store_dir: /var/lib/nats", f"store_dir: {json.dumps(place)}")
        with pytest.raises(VstreamError, match="would act on"):
            render(target, text)


class TestHelm:
    @pytest.mark.parametrize("entry", [{"$include": "/etc/passwd"}, {"k": "<< 1, authorization: {} >>"}])
    def test_no_text_is_spliced_into_the_configuration(self, entry: dict[str, str]) -> None:
        text = KUBERNETES.replace("streams:", f"server_options: {{metadata: {json.dumps(entry)}}}\nstreams:", 1)
        with pytest.raises(VstreamError, match="the chart would obey"):
            render("helm", text)

    @pytest.mark.parametrize("text", [KUBERNETES, MAPPED, STRETCH, CERTIFICATES])
    def test_the_chart_knows_every_value(self, text: str) -> None:
        for region, content in values(text).items():
            assert leaves(content) <= CHART_VALUES, region

    @pytest.mark.parametrize("text", [KUBERNETES, MAPPED, STRETCH, CERTIFICATES])
    def test_no_port_of_a_pod_is_without_tls(self, text: str) -> None:
        for region in values(text).values():
            config = region["config"]
            assert all(config[port]["tls"]["enabled"] is True for port in ("nats", "cluster", "gateway", "monitor"))
            assert all(config[port]["tls"]["merge"]["verify"] is True for port in ("cluster", "gateway"))
            assert {"websocket", "mqtt", "leafnodes", "profiling"}.isdisjoint(config)

    @pytest.mark.parametrize(("text", "file"), [(KUBERNETES, "accounts.cfg"), (MAPPED, "mappings.cfg")])
    def test_pods_load_the_same_file_as_hosts(self, text: str, file: str) -> None:
        bundle = render_bundle(check_topology(text.encode(), "t.yaml").require())
        for content in values(text).values():
            (config_map,) = content["extraResources"]
            assert config_map["data"] == {file: bundle.text(file)}
            assert content["config"]["merge"]["$include"] == f"../nats-vstream/{file}"

    def test_a_member_of_the_stretch_cluster_is_a_release_that_finds_the_others(self) -> None:
        releases = values(STRETCH)
        config = releases["west/stretch"]["config"]
        assert config["merge"]["server_name"] == "stretch-west"
        assert config["merge"]["server_tags"] == ["az:west"]
        assert config["cluster"]["merge"] == {
            "name": "stretch",
            "routes": [f"tls://stretch.{region}.example.net:6222" for region in ("west", "central", "east")],
        }
        assert releases["west/stretch"]["service"]["ports"] == {
            "gateway": {"enabled": True},
            "cluster": {"enabled": True},
        }
        dialed = releases["west"]["config"]["gateway"]["merge"]["gateways"]
        assert dialed[-1] == {"name": "stretch", "urls": ["tls://stretch.west.example.net:7222"]}
        # Two releases share a namespace, and no ConfigMap.
        names = {release["extraResources"][0]["metadata"]["name"] for release in releases.values()}
        assert names == {"nats-vstream", "stretch-vstream"}

    def test_gateways_that_refuse_others_have_all_of_them(self) -> None:
        merge = values(STRETCH)["west"]["config"]["gateway"]["merge"]
        assert merge["reject_unknown_cluster"] is True
        assert [gateway["name"] for gateway in merge["gateways"]] == ["west", "central", "east", "stretch"]

    def test_only_certificates_with_the_name_of_servers_are_let_in(self) -> None:
        named = STRETCH.replace("reject_unknown_cluster: true", "peer_name: servers.acme.example")
        for release in values(named).values():
            for port in ("cluster", "gateway"):
                assert release["config"][port]["tls"]["merge"] == {"verify_and_map": True}
                assert release["config"][port]["merge"]["authorization"] == {"user": "servers.acme.example"}

    def test_a_client_is_who_its_certificate_says_by_an_authority_of_its_own(self) -> None:
        for release in values(CERTIFICATES).values():
            tls = release["config"]["nats"]["tls"]
            assert tls["merge"] == {"verify_and_map": True, "ca_file": "/etc/nats-vstream/client-ca.crt"}
            sources = release["podTemplate"]["patch"][0]["value"]["projected"]["sources"]
            assert {
                "secret": {"name": "nats-client-ca", "items": [{"key": "ca.crt", "path": "client-ca.crt"}]}
            } in sources

    def test_options_of_servers_are_merged_into_what_the_chart_writes(self) -> None:
        options = "server_options: {connect_backoff: true, metadata: {team: payments}}\nstreams:"
        config = values(KUBERNETES.replace("streams:", options))["west"]["config"]
        assert config["cluster"]["merge"]["connect_backoff"] is True
        assert config["gateway"]["merge"]["connect_backoff"] is True
        assert config["merge"]["server_metadata"] == {"team": "payments"}

    def test_a_new_region_changes_no_gateway_list_of_another(self) -> None:
        more = KUBERNETES.replace(
            "streams:",
            "  north: {servers: 2, names: [north-nats-0, north-nats-1], gateway: nats-gw.north.example.net}\nstreams:",
        )
        before, after = values(KUBERNETES), values(more)
        assert after.keys() - before.keys() == {"north"}
        for region, content in before.items():
            assert after[region]["config"]["gateway"] == content["config"]["gateway"]
        dialed = [gateway["name"] for gateway in after["north"]["config"]["gateway"]["merge"]["gateways"]]
        assert dialed == ["west", "central", "east", "north"]

    @pytest.mark.server
    def test_a_region_that_dials_nobody_is_joined_by_those_that_dial_it(self, tmp_path: Path) -> None:
        cluster = SuperCluster(tmp_path, topology_text("mapped"))
        first = tmp_path / "servers" / "west-1.conf"
        first.write_text(re.sub(r'^ *\{name: "east".*\n', "", first.read_text(), flags=re.MULTILINE))
        assert '{name: "east"' not in first.read_text()
        with running(cluster):
            cluster.wait(lambda: "west" in cluster.ask("east-1", "gatewayz")["outbound_gateways"], "east dials west")
            cluster.wait(lambda: "east" in cluster.ask("west-1", "gatewayz")["outbound_gateways"], "west answers east")

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (", gateway: nats-gw.west.example.net", "", "does not say where other regions reach its gateways"),
            ("names: [west-nats-0, west-nats-1, west-nats-2], ", "", "after its pods, counted from 0"),
            ("[ssd, ssd, ssd]", "[ssd, ssd, hdd]", "different tags"),
            (
                KUBERNETES,
                KUBERNETES.replace("west-nats-", "nats_west-"),
                "`nats_west` cannot be what the pods of region",
            ),
            (
                KUBERNETES,
                KUBERNETES.replace("west-nats-", "west-Nats-"),
                "`Nats` cannot be what the pods of region `west`",
            ),
            (
                KUBERNETES,
                STRETCH.replace("stretch:", "stretch:\n  cluster: ONE", 1),
                "`ONE` cannot be .* of cluster `ONE`",
            ),
            (KUBERNETES, TAGGED, "`unique_tag` needs servers with different tags"),
            ("streams:", "stretch: {members: all}\nstreams:", "member in region `west` does not say where"),
            ("routing: accounts", "routing: domains", "the chart cannot make hubs"),
            (KUBERNETES, re.sub(r"\n  transport: .*", "", CERTIFICATES), "need TLS, and the topology does not"),
        ],
    )
    def test_what_one_release_cannot_be_is_refused(self, old: str, new: str, message: str) -> None:
        with pytest.raises(VstreamError, match=message):
            render("helm", KUBERNETES.replace(old, new))


class TestNack:
    def test_resources_create_and_never_change_or_delete(self) -> None:
        files = render("nack", MAPPED)
        assert set(files) == {
            f"{region}/{name}.yaml"
            for region in ("west", "central", "east")
            for name in ("account", "streams", "consumers")
        }
        for path, text in files.items():
            for resource in yaml.safe_load_all(text):
                if resource["kind"] != "Account":
                    assert (resource["spec"]["preventUpdate"], resource["spec"]["preventDelete"]) == (True, True), path

    def test_what_a_definition_would_default_otherwise_is_written(self) -> None:
        files = render("nack", MAPPED)
        for stream in yaml.safe_load_all(files["west/streams.yaml"]):
            assert (stream["spec"]["storage"], stream["spec"]["replicas"]) == ("file", 3)
        (consumer,) = yaml.safe_load_all(files["west/consumers.yaml"])
        assert (consumer["spec"]["ackPolicy"], consumer["spec"]["ackWait"]) == ("explicit", "30s")

    @pytest.mark.parametrize(
        ("nanoseconds", "text"),
        [(7_200_000_000_000, "2h"), (90_000_000_000, "90s"), (100_000_000, "100ms"), (1, "1ns"), (1_500, "1500ns")],
    )
    def test_durations_are_those_of_go(self, nanoseconds: int, text: str) -> None:
        assert nack.format_go_duration(nanoseconds) == text

    def test_a_field_that_resources_do_not_have_is_named(self) -> None:
        with pytest.raises(VstreamError, match=r"streams/a\.json: `allow_batched` does not exist in NACK's resources"):
            nack.convert_stream({"name": "a", "allow_batched": True}, "streams/a.json")

    def test_streams_in_accounts_are_refused(self) -> None:
        with pytest.raises(VstreamError, match="accounts that NACK does not log in to"):
            render("nack", KUBERNETES)


class TestCommand:
    def test_only_mappings_are_written(self, tmp_path: Path) -> None:
        ran = vstream("render", HERE / "kubernetes-mapped.yaml", "--only", "mappings", "-o", tmp_path / "out")
        assert ran.code == 0, ran.err
        assert {file.name for file in (tmp_path / "out").rglob("*") if file.is_file()} == {
            "mappings.cfg",
            ".vstream-bundle",
        }

    def test_what_would_write_nothing_or_something_else_is_refused(self, tmp_path: Path) -> None:
        file = HERE / "kubernetes.yaml"
        alone = vstream("render", file, "--target", "helm", "--only", "mappings", "-o", tmp_path / "out")
        assert (alone.code, "has no file of them" in alone.err) == (2, True), alone.err
        ejected = vstream("render", file, "--target", "helm", "--eject", tmp_path / "mine")
        assert (ejected.code, "which copies all" in ejected.err) == (2, True), ejected.err
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("target", TARGETS)
    def test_every_target_is_offered(self, target: str) -> None:
        assert target in vstream("render", "--help").out

    def test_ejected_templates_render_the_same_until_they_are_changed(self, tmp_path: Path) -> None:
        assert vstream("render", "--eject", tmp_path / "mine").code == 0
        template = tmp_path / "mine" / "targets" / "helm" / "values.yaml.j2"
        template.write_text(template.read_text().replace("# Values of", "# My values of"))
        file = HERE / "kubernetes.yaml"
        ran = vstream("render", file, "--target", "helm", "--templates", tmp_path / "mine", "-o", tmp_path / "out")
        assert ran.code == 0, ran.err
        assert (tmp_path / "out" / "west" / "values.yaml").read_text().startswith("# My values of")
        template.write_text("<< nothing >>")
        ran = vstream("render", file, "--target", "helm", "--templates", tmp_path / "mine", "-o", tmp_path / "out")
        assert ran.code == 3
        assert "error: a template of `--target helm`: UndefinedError: 'nothing' is undefined\n" in ran.err
        again = vstream("render", "--eject", tmp_path / "mine")
        assert (again.code, "is not empty" in again.err) == (3, True)

    def test_templates_in_places_where_nobody_looks_are_refused(self, tmp_path: Path) -> None:
        """Else the built-in ones would be rendered, and nobody would say so."""
        (tmp_path / "values.yaml.j2").write_text("# Mine\n")
        for command in (("render", "--target", "helm", "-o", tmp_path / "out"), ("plan",), ("lab", "up")):
            ran = vstream(*command, HERE / "kubernetes.yaml", "--templates", tmp_path)
            assert (ran.code, "in the place of a built-in one" in ran.err) == (2, True), ran.err
        assert not (tmp_path / "out").exists()


OPTIONS = """\
version: 1
name: acme
server_version: "VERSION"
server_options: {unique_tag: "az:", connect_backoff: true, metadata: {team: "pay \\"ments\\""}}
nats_checks: {lag: 500, silence: 90s}
regions: {west: {servers: 3, tags: [az:a, az:b, az:c]}, east: {servers: 3, tags: [az:a, az:b, az:c]}}
streams:
  foo: {subjects: [foo.>], metadata: {io.nats.monitor.peer-expect: "2"}, write: {max_age: 1h}}
"""


class TestLanguage:
    @pytest.mark.server
    def test_options_of_servers_are_taken_by_them(self, tmp_path: Path) -> None:
        bundle = render_bundle(check_topology(OPTIONS.replace("VERSION", "2.12").encode(), "t.yaml").require())
        for artifact in bundle.artifacts:
            file = tmp_path / artifact.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(artifact.text)
        (tmp_path / "system-password.cfg").write_text(placeholder_for("system-password.cfg") or "")
        ran = subprocess.run(
            [binaries.find_or_fetch(), "-t", "-c", tmp_path / "servers" / "west-1.conf"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        text = bundle.text("servers/west-1.conf")
        assert (text.count("connect_backoff: true"), text.count('unique_tag: "az:"')) == (2, 1)

    def test_a_version_without_an_option_has_a_configuration_without_it(self) -> None:
        text = render_bundle(check_topology(OPTIONS.replace("VERSION", "2.11").encode(), "t.yaml").require()).text(
            "servers/west-1.conf"
        )
        assert ("connect_backoff" in text, "server_metadata" in text, "unique_tag" in text) == (False, False, True)

    def test_streams_say_what_nats_server_check_expects_of_them(self) -> None:
        bundle = render_bundle(check_topology(OPTIONS.replace("VERSION", "2.12").encode(), "t.yaml").require())
        checks = {
            stream.config.name: {
                key.removeprefix("io.nats.monitor."): value
                for key, value in stream.config.metadata.items()
                if key.startswith("io.nats.monitor.")
            }
            for stream in bundle.streams
        }
        assert checks["foo-write-west"] == {"enabled": "true", "peer-expect": "2"}
        assert checks["foo-read-west"] == {
            "enabled": "true",
            "peer-expect": "2",
            "lag-critical": "500",
            "seen-critical": "90s",
            "min-sources": "2",
            "max-sources": "2",
        }

    def test_a_gateway_address_is_advertised_and_dialed(self) -> None:
        bundle = render_bundle(check_topology(KUBERNETES.encode(), "t.yaml").require())
        assert 'advertise: "nats-gw.east.example.net:7333"' in bundle.text("servers/east-nats-0.conf")
        dialed = '{name: "east", urls: ["tls://nats-gw.east.example.net:7333"]}'
        assert dialed in bundle.text("servers/west-nats-0.conf")

    @pytest.mark.parametrize(
        ("old", "new", "code"),
        [
            ("nats-gw.west.example.net", '"nats gw"', "VS005"),
            ("nats-gw.west.example.net", '"gw:70000"', "VS005"),
            ("[west-nats-0, west-nats-1, west-nats-2]", "[a, a, b]", "VS005"),
            ("[west-nats-0, west-nats-1, west-nats-2]", '["a b", c, d]', "VS005"),
            ("[west-nats-0, west-nats-1, west-nats-2]", "[a, b]", "VS110"),
        ],
    )
    def test_what_is_no_name_or_address_is_told_where_it_is(self, old: str, new: str, code: str) -> None:
        errors = [
            finding
            for finding in check_topology(KUBERNETES.replace(old, new).encode(), "t.yaml").findings
            if finding.is_error
        ]
        assert [finding.code for finding in errors] == [code]
        assert errors[0].span is not None
        assert errors[0].span.line == 10
