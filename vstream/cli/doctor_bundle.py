"""`vstream doctor --bundle`."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vstream import __version__
from vstream.cli.asyncio_runner import run
from vstream.cli.views import console
from vstream.cli.views.json_output import format_json
from vstream.errors import RefusedError, VstreamError
from vstream.files import PRIVATE_MODE, write_private
from vstream.health.pipeline import diagnose, make_status_source
from vstream.health.redact import find_secrets, redact
from vstream.jetstream.monitoring import read_raw_answers
from vstream.lab.state import lab_directory
from vstream.plan import saved
from vstream.servers.bundles import provide_bundle
from vstream.servers.find_servers import Servers, find_and_trust_servers
from vstream.servers.server_plan import make_server_plan
from vstream.topology.model import Topology

_ARCHIVE = ".tar.gz"
_ELSEWHERE_HINT = "name another one with `--bundle`"


def collect_bundle(
    topology: Topology, text: str, target: Path, lab: str | None, templates: Path | None, timeout: float
) -> None:
    """
    Write what others need to help with *topology*, whose file has *text*, to *target*: a directory, or an archive.

    What could not be read is named in `manifest.json`, with the reason. *timeout*: seconds for each part. Raises
    RefusedError if *target* exists, and VstreamError if it cannot be written.
    """
    if target.exists():
        raise RefusedError(f"{target} already exists", hint=_ELSEWHERE_HINT)
    files, problems, secrets = _gather(topology, text, lab, templates, timeout)
    manifest = {
        "topology": topology.name,
        "version": __version__,
        "python": sys.version.split()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "files": sorted(files),
        "problems": problems,
    }
    files = {"manifest.json": format_json("bundle", manifest) + "\n", **files}
    _write(target, {name: redact(text, secrets) for name, text in files.items()})
    for name, problem in problems.items():
        console.print_warning(f"without {name}: {problem}")
    console.print_note(f"{len(files)} files in {target}, without secrets. Read it before you send it.")


def _gather(
    topology: Topology, text: str, lab: str | None, templates: Path | None, timeout: float
) -> tuple[dict[str, str], dict[str, str], frozenset[str]]:
    """The files by name, why others are missing, and the secrets that may stand in them."""
    files, problems = {"topology.yaml": text}, dict[str, str]()
    servers = Servers(endpoints={}, lab=None, description="")
    secret_texts: list[str] = []

    def add(name: str, make: Callable[[], Mapping[str, str]]) -> None:
        try:
            files.update(make())
        except VstreamError as error:
            problems[name] = error.message

    def add_json(name: str, make: Callable[[], dict[str, Any]]) -> None:
        add(f"{name}.json", lambda: {f"{name}.json": format_json(name, make()) + "\n"})

    try:
        servers = find_and_trust_servers(topology, lab)
    except VstreamError as error:
        problems["servers"] = error.message
    if servers.lab is not None:
        conf = lab_directory(servers.lab).conf
        secret_texts = [path.read_text(encoding="utf-8") for path in sorted(conf.glob("**/*password*.cfg"))]
    add(
        "rendered",
        lambda: {f"rendered/{part.path}": part.text for part in provide_bundle(topology, servers, templates).artifacts},
    )
    if "servers" not in problems:
        add_json("status", lambda: run(make_status_source(topology, servers, templates).read(timeout)).as_dict())
        add_json("doctor", lambda: run(_run_doctor(topology, servers, templates, timeout)))
        add_json("plan", lambda: saved.to_dict(run(make_server_plan(topology, servers, templates)).plan))
        answers, silent = run(read_raw_answers(servers.endpoints, timeout=timeout))
        files |= {f"servers/{name}.json": json.dumps(answer, indent=1) + "\n" for name, answer in answers.items()}
        problems |= silent
    # Also of servers that are not used: those of `connect` while a lab is, and of lost regions.
    endpoints = [*servers.endpoints.values(), *servers.lost.values()]
    endpoints += [region.endpoint for region in topology.regions if region.endpoint]
    return files, problems, find_secrets(endpoints, secret_texts)


async def _run_doctor(topology: Topology, servers: Servers, templates: Path | None, timeout: float) -> dict[str, Any]:
    expected = provide_bundle(topology, servers, templates)
    return (await diagnose(topology, servers.endpoints, expected, {}, timeout=timeout)).as_dict()


def _write(target: Path, files: Mapping[str, str]) -> None:
    """All of *files* below the directory *target*, or in the archive of that name: nobody else may read them."""
    try:
        if target.name.endswith(_ARCHIVE):
            _write_archive(target, files)
            return
        for name, text in files.items():
            path = target / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, text)
    except OSError as error:
        raise VstreamError(f"{target} cannot be written: {error.strerror}", hint=_ELSEWHERE_HINT) from None


def _write_archive(target: Path, files: Mapping[str, str]) -> None:
    target.touch(mode=PRIVATE_MODE, exist_ok=False)
    with tarfile.open(target, "w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{target.name.removesuffix(_ARCHIVE)}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), PRIVATE_MODE, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
