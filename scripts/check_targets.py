"""
Renders the official NATS chart with our values, and holds our custom resources, Compose files and units against their checkers.

What the chart makes of the values is started by `nats-server -t`, compared with what vstream renders for files and with
our model of the chart, and run: its pods are processes of this machine that are planned, applied and probed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python  # type: ignore[import-not-found, unused-ignore]  # installed by scripts/check-targets
import jsonschema
import trustme
import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.chart_pods import PASSWORD, Pods, make_configuration, read_configuration, read_releases, running_pods
from tests.support.command import vstream
from vstream import resources
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.render.targets import render_target
from vstream.servers.bundles import provide_signer
from vstream.syntax import natsconf
from vstream.topology.bundle import loaded_path, placeholder_for
from vstream.topology.model import Security

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Seat, Topology

ROOT = Path(__file__).parent.parent
TOPOLOGIES = sorted((ROOT / "tests" / "render" / "targets").glob("kubernetes*.yaml"))
HOSTS = ROOT / "tests" / "golden" / "stretch-hosts.yaml"
SAME = (
    ("cluster", "name"),
    ("gateway", "name"),
    ("gateway", "advertise"),
    ("jetstream", "max_file_store"),
    ("jetstream", "max_memory_store"),
    ("jetstream", "sync_interval"),
    ("server_tags",),
    ("accounts",),
    ("mappings",),
    ("operator",),
    ("system_account",),
    ("resolver_preload",),
    ("resolver", "type"),
    ("resolver", "interval"),
    ("tls", "verify_and_map"),
    ("jetstream", "unique_tag"),
)
"""What the chart's configuration says as the one for files does. Addresses and paths are those of pods."""


def main() -> int:
    """Check everything; 0 if all of it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chart", type=Path, required=True, help="helm/charts/nats of github.com/nats-io/k8s")
    parser.add_argument("--crds", type=Path, required=True, help="deploy/crds.yml of github.com/nats-io/nack")
    parser.add_argument(
        "--compose", type=Path, required=True, help="schema/compose-spec.json of github.com/compose-spec/compose-spec"
    )
    arguments = parser.parse_args()
    problems: list[str] = []
    with helm_python.Chart.load(str(arguments.chart)) as chart:
        print(f"chart {chart.name} {chart.version}")
        with tempfile.TemporaryDirectory() as keys:
            os.environ["VSTREAM_KEYS"] = keys
            for file in TOPOLOGIES:
                problems += check_chart(chart, file)
    schemas = read_schemas(arguments.crds)
    mapped = next(file for file in TOPOLOGIES if file.stem == "kubernetes-mapped")
    topology = check_topology(mapped.read_bytes(), mapped.name).require()
    problems += check_resources(topology, render_bundle(topology), schemas)
    problems += check_hosts(json.loads(arguments.compose.read_text()))
    for problem in problems:
        print(f"✗ {problem}")
    return 1 if problems else 0


def check_chart(chart: Any, file: Path) -> list[str]:
    """What is wrong with the configuration that the chart makes for each region of the topology *file*, and with its pods."""
    topology = check_topology(file.read_bytes(), file.name).require()
    if topology.security is Security.OPERATOR:
        vstream("keys", "create", file)
    bundle = render_bundle(topology, signer=provide_signer(topology, None))
    problems, configurations = [], {}
    releases = read_releases(render_target("helm", topology, bundle, [resources.templates()]))
    for release, values in releases.items():
        documents = [
            document
            for text in chart.render(values, name="release", namespace="nats").values()
            for document in yaml.safe_load_all(text)
            if document
        ]
        configurations[release] = read_configuration(find_file(documents, "nats.conf"))
        is_modelled = configurations[release] == make_configuration(values)
        region, _, cluster = release.partition("/")
        seats = [seat for seat in topology.seats if seat.region == region and seat.is_stretch == bool(cluster)]
        wrong = (
            *compare(bundle, seats, documents, loaded_path(topology)),
            *check_pods(documents, loaded_path(topology)),
            *([] if is_modelled else ["tests/support/chart_pods.py makes another nats.conf of these values"]),
        )
        place = f"{file.stem}, release {release}"
        problems += [f"{place}: {problem}" for problem in wrong]
        print(f"{'✗' if wrong else '✓'} {place}: {len(documents)} resources")
    return [*problems, *run_pods(file, topology, configurations, bundle.text(loaded_path(topology)))]


def find_file(documents: list[dict[str, Any]], name: str) -> str:
    """The text of the file *name* in a ConfigMap of *documents*."""
    return next(str(d["data"][name]) for d in documents if d["kind"] == "ConfigMap" and name in d["data"])


def run_pods(source: Path, topology: Topology, configurations: dict[str, dict[str, Any]], text: str) -> list[str]:
    """What goes wrong where the pods run on this machine with *text* loaded, and are planned, applied and probed."""
    place = f"{source.stem}, {len(topology.seats)} pods"
    with tempfile.TemporaryDirectory() as name:
        pods = Pods(Path(name) / "pods", topology, configurations)
        file = Path(name) / "acme.yaml"
        file.write_text(json.dumps({**yaml.safe_load(source.read_text()), "connect": pods.connect()}))
        for user in ("VSTREAM", "SYSTEM", "PROBE", "APP"):
            os.environ[f"VSTREAM_PASSWORD_{user}"] = PASSWORD
        with running_pods(pods, text):
            for command in (("apply", file, "--yes"), ("plan", file, "--detailed-exitcode"), ("probe", file)):
                ran = vstream(*command)
                print(f"{'✗' if ran.code else '✓'} {place}: {command[0]}")
                if ran.code:
                    return [f"{place}: vstream {command[0]} ends with {ran.code}: {ran.out}{ran.err}"]
    return []


def compare(bundle: Bundle, seats: Sequence[Seat], documents: list[dict[str, Any]], loaded: str) -> list[str]:
    """What differs between the chart's configuration and the one for files, and what nats-server refuses in it."""
    files = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
    with tempfile.TemporaryDirectory() as name:
        etc = Path(name) / "etc"
        config = etc / "nats-config" / "nats.conf"
        write_files(etc, files)
        mounted = etc / "nats-vstream"
        mounted.mkdir(exist_ok=True)
        (mounted / "passwords.cfg").write_text(placeholder_for("passwords.cfg") or "")
        (mounted / loaded).write_text(bundle.text(loaded))
        write_certificates(etc)
        # Paths in pods are absolute; here they are below a directory.
        config.write_text(config.read_text().replace("/etc/nats-", f"{etc}/nats-").replace('"/data', f'"{name}/data'))
        environment = {**os.environ, "SERVER_NAME": seats[0].server.name, "POD_NAME": "nats-0"}
        checked = subprocess.run(
            [binaries.find_or_fetch(), "-t", "-c", config], capture_output=True, text=True, env=environment, check=False
        )
        if checked.returncode:
            return [f"nats-server refuses it: {checked.stderr.strip()}"]
        chart_view = read_conf(config)
    our_file = f"servers/{seats[0].server.name}.conf"
    our_view = to_python(bundle.text(our_file), our_file, bundle.text)
    problems = [
        f"{'.'.join(path)} is {look(chart_view, path)!r}, not {look(our_view, path)!r}"
        for path in SAME
        if look(chart_view, path) != look(our_view, path)
        # On hosts, a member of the stretch cluster is reached where it listens.
        and not (seats[0].is_stretch and path == ("gateway", "advertise"))
    ]
    gateways = {gateway["name"]: gateway["urls"] for gateway in look(our_view, ("gateway", "gateways"))}
    problems += [
        f"gateway {gateway['name']} has {gateway['urls']}, not {gateways[gateway['name']]}"
        for gateway in look(chart_view, ("gateway", "gateways"))
        if gateways[gateway["name"]] != gateway["urls"]
    ]
    routes = [url.rpartition("@")[2] for url in look(chart_view, ("cluster", "routes"))]
    members = [seat for seat in bundle.servers if seat.cluster_name == seats[0].cluster]
    if len(routes) != len(members):
        problems.append(f"{len(routes)} routes, not {len(members)}")
    return problems


def check_pods(documents: list[dict[str, Any]], loaded: str) -> list[str]:
    """What pods lack: the file that is loaded again, a reloader that watches it, and a gateway port that others reach."""
    problems: list[str] = []
    pod = next(d for d in documents if d["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    containers = {container["name"]: container for container in pod["containers"]}
    problems += [
        f"container {name} does not mount /etc/nats-vstream"
        for name in ("nats", "reloader")
        if "/etc/nats-vstream" not in {mount["mountPath"] for mount in containers[name]["volumeMounts"]}
    ]
    if f"/etc/nats-vstream/{loaded}" not in containers["reloader"]["args"]:
        problems.append(f"the reloader does not watch {loaded}: {containers['reloader']['args']}")
    service = next(d for d in documents if d["kind"] == "Service" and d["spec"].get("clusterIP") != "None")
    if "gateway" not in {port["name"] for port in service["spec"]["ports"]}:
        problems.append("the service has no gateway port")
    if not service["spec"].get("publishNotReadyAddresses") or service["spec"].get("type") != "LoadBalancer":
        problems.append("the service is no load balancer, or leaves out pods that are not ready")
    return problems


def check_resources(topology: Topology, bundle: Bundle, schemas: dict[str, Any]) -> list[str]:
    """What NACK's definitions do not know in our custom resources."""
    problems: list[str] = []
    number = 0
    for artifact in render_target("nack", topology, bundle, [resources.templates()]):
        for document in yaml.safe_load_all(artifact.text):
            number += 1
            errors = jsonschema.Draft202012Validator(schemas[document["kind"]]).iter_errors(document["spec"])
            name = f"{artifact.path}: {document['kind']} {document['metadata']['name']}"
            problems += [f"{name}: {error.message}" for error in errors]
    print(f"{'✗' if problems else '✓'} {number} custom resources")
    return problems


def check_hosts(schema: dict[str, Any]) -> list[str]:
    """What the Compose specification does not know in our files, and systemd, where it is here, in our units."""
    problems: list[str] = []
    topology = check_topology(HOSTS.read_bytes(), HOSTS.name).require()
    bundle = render_bundle(topology)
    files = [
        file for file in render_target("compose", topology, bundle, [resources.templates()]) if "compose" in file.path
    ]
    for file in files:
        errors = jsonschema.Draft7Validator(schema).iter_errors(yaml.safe_load(file.text))
        problems += [f"{file.path}: {error.message}" for error in errors]
    print(f"{'✗' if problems else '✓'} {len(files)} Compose files")
    if (analyze := shutil.which("systemd-analyze")) is None:
        print("? units of systemd: there is no systemd-analyze here")
        return problems
    units = [file for file in render_target("systemd", topology, bundle, [resources.templates()]) if "@" in file.path]
    wrong = [f"{unit.path}: {error}" for unit in units for error in verify_unit(analyze, unit.text)]
    print(f"{'✗' if wrong else '✓'} {len(units)} units of systemd")
    return [*problems, *wrong]


def verify_unit(analyze: str, text: str) -> list[str]:
    """What systemd does not know in the unit *text*: it warns of that, and ends well."""
    with tempfile.TemporaryDirectory() as name:
        unit = Path(name) / "nats-server@.service"
        unit.write_text(text.replace("/usr/bin/nats-server", str(binaries.find_or_fetch())))
        verified = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
        return verified.stderr.splitlines()


def read_schemas(file: Path) -> dict[str, Any]:
    """The schema of each kind's `spec`, which refuses what it does not name."""
    schemas = {}
    for definition in yaml.safe_load_all(file.read_text()):
        for version in definition["spec"]["versions"]:
            if version["name"] == "v1beta2":
                spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                schemas[definition["spec"]["names"]["kind"]] = make_strict(spec)
    return schemas


def make_strict(schema: Any) -> Any:
    """*schema* with no other properties than those that it names."""
    if isinstance(schema, list):
        return [make_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: make_strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        strict["additionalProperties"] = False
    return strict


def write_files(etc: Path, files: dict[str, dict[str, str]]) -> None:
    """The content of ConfigMaps, where pods mount them."""
    for name, data in files.items():
        for file, text in data.items():
            path = etc / f"nats-{name.rpartition('-')[2]}" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def write_certificates(etc: Path) -> None:
    """The secrets with certificates, where pods mount them."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    for name in ("nats", "cluster", "gateway"):
        directory = etc / "nats-certs" / name
        directory.mkdir(parents=True)
        certificate.cert_chain_pems[0].write_to_path(str(directory / "tls.crt"))
        certificate.private_key_pem.write_to_path(str(directory / "tls.key"))
    authority.cert_pem.write_to_path(str(etc / "nats-vstream" / "client-ca.crt"))
    (etc / "nats-ca-cert").mkdir()
    authority.cert_pem.write_to_path(str(etc / "nats-ca-cert" / "ca.crt"))


def read_conf(file: Path) -> Any:
    """A configuration file and what it includes, as plain data."""
    return to_python(file.read_text(), str(file), lambda path: Path(path).read_text())


def to_python(text: str, file: str, read: Callable[[str], str]) -> Any:
    """The configuration *text* of *file* as plain data; *read* gives the text of what it includes."""

    def include(path: str, parent: str) -> tuple[str, str]:
        name = os.path.normpath(Path(parent).parent / path)
        return name, placeholder_for(path) or read(name)

    document = natsconf.parse(text, file, include=include, env={"SERVER_NAME": "name", "POD_NAME": "pod"})
    return natsconf.to_python(document.root)


def look(view: Any, path: tuple[str, ...]) -> Any:
    """The value at *path*, None where there is none."""
    for key in path:
        view = view.get(key) if isinstance(view, dict) else None
    return view


if __name__ == "__main__":
    sys.exit(main())
