"""
What stands for hosts and a cluster where tests follow pages: a host is a directory, and `rsync`, `ssh`, `docker` and `helm`
are programs that read their arguments as the real ones do and end with an error where those would.

`ssh` runs the command with the host's directory as its root. `systemctl` there is the real one. What the real `docker` and
`helm` start is tested elsewhere: tests/render/test_production_live.py runs the containers' commands, and
`scripts/check-targets` the chart's pods.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.chart_pods import make_configuration
from tests.support.paths import ROOT

PROGRAMS = ("rsync", "ssh", "docker", "helm", "systemctl")
CHARTS = "https://nats-io.github.io/k8s/helm/charts/"


def write_programs(directory: Path) -> Path:
    """The programs, for the beginning of PATH. Hosts are below *directory*, as are the releases that `helm` has installed."""
    programs = directory / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        file = programs / name
        file.write_text(
            f'#!/bin/sh\nSITE={directory} PYTHONPATH={ROOT} exec {sys.executable} -m {__name__} {name} "$@"\n'
        )
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return programs


def rsync(*words: str) -> None:
    """`rsync -r FROM/ [USER@]HOST:TO/`: what is in FROM."""
    parser = argparse.ArgumentParser("rsync")
    parser.add_argument("-r", action="store_true", required=True)
    parser.add_argument("source")
    parser.add_argument("target")
    arguments = parser.parse_args(words)
    host, _, path = arguments.target.rpartition("@")[2].partition(":")
    assert arguments.source.endswith("/"), "the directory itself would be copied into the other"
    assert path.startswith("/")
    shutil.copytree(arguments.source, find_root(host) / path.lstrip("/"), dirs_exist_ok=True)


def ssh(host: str, *command: str) -> None:
    """`ssh [USER@]HOST COMMAND…`."""
    root = find_root(host.rpartition("@")[2])
    assert root.is_dir(), f"nothing was copied to {host}"
    subprocess.run(command, env={**os.environ, "HOST_ROOT": str(root)}, check=True)


def systemctl(*words: str) -> None:
    """`systemctl enable --now UNIT` of a host: enabled by the real one, and what it would start is there."""
    parser = argparse.ArgumentParser("systemctl")
    parser.add_argument("verb", choices=["enable"])
    parser.add_argument("--now", action="store_true", required=True)
    parser.add_argument("unit")
    unit, root = parser.parse_args(words).unit, Path(os.environ["HOST_ROOT"])
    subprocess.run(
        [shutil.which("systemctl", path="/usr/bin:/bin") or "systemctl", "--root", root, "enable", unit], check=True
    )
    (link,) = (root / "etc/systemd/system/multi-user.target.wants").iterdir()
    assert link.name == f"{unit}.service"
    started = (root / str(link.readlink()).lstrip("/")).read_text()
    (line,) = [line for line in started.splitlines() if line.startswith("ExecStart=")]
    configuration = line.replace("%i", unit.partition("@")[2]).rpartition("-c ")[2]
    assert (root / configuration.lstrip("/")).is_file()
    verified = root.parent / f"{unit}.service"
    verified.write_text(started.replace("/usr/bin/nats-server", sys.executable))
    subprocess.run(["systemd-analyze", "verify", verified], check=True)


def docker(*words: str) -> None:
    """`docker compose --project-directory DIRECTORY up -d` of a host: what each container would start is in a volume of it."""
    parser = argparse.ArgumentParser("docker")
    parser.add_argument("compose", choices=["compose"])
    parser.add_argument("--project-directory", required=True)
    parser.add_argument("verb", choices=["up"])
    parser.add_argument("-d", action="store_true", required=True)
    project = Path(os.environ["HOST_ROOT"]) / parser.parse_args(words).project_directory.lstrip("/")
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    for service in services.values():
        mounts = dict(reversed(volume.split(":")[:2]) for volume in service["volumes"])
        flag, configuration = service["command"]
        assert flag == "-c"
        (inside,) = [path for path in mounts if configuration.startswith(f"{path}/")]
        assert (project / mounts[inside] / configuration.removeprefix(f"{inside}/")).is_file()


def helm(verb: str, *words: str) -> None:
    """`helm repo add NAME URL`, and `helm upgrade --install RELEASE REPOSITORY/nats` with values that the chart takes."""
    site = Path(os.environ["SITE"])
    if verb == "repo":
        add, name, url = words
        assert (add, url) == ("add", CHARTS)
        (site / "repository").write_text(name)
        return
    assert verb == "upgrade"
    parser = argparse.ArgumentParser("helm upgrade")
    parser.add_argument("--install", action="store_true", required=True)
    parser.add_argument("release")
    parser.add_argument("chart")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--values", type=Path, required=True)
    arguments = parser.parse_args(words)
    assert arguments.chart == f"{(site / 'repository').read_text()}/nats"
    values = yaml.safe_load(arguments.values.read_text())
    assert values["fullnameOverride"], "all releases have one name: the values say what their pods are called"
    configuration = make_configuration(values, arguments.namespace)
    assert all(f".{arguments.namespace}.svc" in route for route in configuration["cluster"]["routes"])


def find_root(host: str) -> Path:
    return Path(os.environ["SITE"]) / "hosts" / host


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
