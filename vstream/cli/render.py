"""`vstream render`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import typer

from vstream import resources
from vstream.cli import options
from vstream.cli.files import BUNDLE_MARKER
from vstream.cli.servers import find_signer
from vstream.cli.views.console import print_note
from vstream.cli.views.json_output import print_json
from vstream.errors import VstreamError
from vstream.files import READABLE, write_atomically
from vstream.formatting import format_count
from vstream.lint.load_topology import render_bundle
from vstream.render.targets import render_target
from vstream.render.targets.hosts import missing_files
from vstream.topology.bundle import Artifact, is_private, loaded_path
from vstream.topology.model import Topology

_PRIVATE, _PRIVATE_DIRECTORY = 0o600, 0o700
TargetName = Literal["files", "systemd", "compose", "helm", "nack"]


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The directory to write.", file_okay=False, allow_dash=True)
    ] = Path("build"),
    target: Annotated[
        TargetName, typer.Option("--target", help="What the files are for: hosts, containers or Kubernetes.")
    ] = "files",
    only: Annotated[
        Literal["mappings"] | None,
        typer.Option("--only", help="`mappings`: only the file that running servers load again."),
    ] = None,
    templates: options.TemplatesDirectory = None,
    eject: Annotated[
        Path | None,
        typer.Option("--eject", help="Copy the built-in templates to this directory, to be changed.", file_okay=False),
    ] = None,
    output_format: options.TextOrJson = "text",
) -> None:
    """
    Write the bundle: stream JSON, mappings.cfg, server configurations and nats CLI contexts.

    Files of an earlier bundle in the same directory that no longer belong to it are removed. With `--target systemd` and
    `compose` there is a directory for each host, with `helm` and `nack` one for each region.

    Examples: `vstream render acme.yaml -o build/`, `vstream render acme.yaml --target helm -o helm/`,
    `vstream render --eject templates/`
    """
    if eject is not None:
        is_json = output_format == "json"
        chosen = {"--target": target != "files", "--only": only, "--templates": templates, "--format": is_json}
        options.refuse_beside("`--eject`, which copies all templates", chosen)
        eject_templates(eject)
        return
    if target in {"helm", "nack"}:
        options.refuse_beside(f"`--target {target}`, which has no file of them", {"--only": only})
    if str(output) == "-":
        raise typer.BadParameter("a bundle is many files: name a directory", param_hint="--output")
    loaded = options.load_topology(topology).require()
    bundle = render_bundle(loaded, templates=templates, signer=find_signer(loaded, None))
    directories = [directory for directory in (templates, resources.templates()) if directory is not None]
    artifacts = render_target(target, loaded, bundle, directories)
    if only == "mappings":
        artifacts = tuple(artifact for artifact in artifacts if artifact.path.endswith(loaded_path(loaded)))
    removed = write_bundle(artifacts, output)
    is_for_hosts = target not in {"helm", "nack"} and any(seat.server.host for seat in loaded.processes)
    missing = missing_files(bundle) if is_for_hosts and only is None else []
    if output_format == "json":
        print_json(
            "render",
            {
                "topology": loaded.name,
                "directory": str(output),
                "files": sorted(artifact.path for artifact in artifacts),
                "removed": removed,
                "streams": len(bundle.streams),
                "mapping_rules": len(bundle.mappings),
                "missing": [*missing],
                "exposures": list_exposures(loaded),
            },
        )
        return
    print_note(
        f"{output}: {format_count(len(artifacts), 'file')}, {format_count(len(bundle.streams), 'stream')}, "
        f"{format_count(len(bundle.mappings), 'mapping rule')}"
        + (f", {format_count(removed, 'old file')} removed" if removed else "")
    )
    if missing:
        print_note(f"note: put beside {loaded_path(loaded)} on each host: {', '.join(missing)} (docs/routing.md)")
    for line in list_exposures(loaded):
        print_note(f"note: {line}", style="yellow")


def list_exposures(topology: Topology) -> list[str]:
    """What the rendered server configurations leave open, where servers have host names: others may reach those."""
    if all(seat.server.host is None for seat in topology.processes):
        return []
    exposures = []
    if topology.transport is None:
        exposures.append("the servers have no TLS: whoever is on the way reads and changes what they send")
    if not topology.has_accounts:
        exposures.append("the servers have no users: whoever reaches their ports may do everything")
    return [f"{exposure} (docs/security.md)" for exposure in exposures]


def eject_templates(directory: Path) -> None:
    """Copy the built-in templates to *directory*, for `--templates`. Raises VstreamError if that has files in it."""
    try:
        if directory.exists() and any(directory.iterdir()):
            raise VstreamError(f"{directory} is not empty", hint="name an empty or new directory")
        shutil.copytree(resources.templates(), directory, dirs_exist_ok=True)
    except OSError as error:
        raise VstreamError(f"{directory} cannot be written: {error.strerror}") from None
    print_note(
        f"{directory}: the built-in templates. Delete those that you do not change, then `vstream render --templates {directory}`"
    )


def write_bundle(artifacts: Sequence[Artifact], directory: Path) -> int:
    """
    Write *artifacts* and remove what an earlier one left; returns how many files were removed.

    Nothing outside of *directory* is touched, whatever links and lists of files lie in it. Raises VstreamError for a
    directory that has other things in it.
    """
    marker = directory / BUNDLE_MARKER
    paths = {artifact.path for artifact in artifacts}
    private = {(directory / path).parent for path in paths if is_private(path)}
    try:
        directory.mkdir(mode=_PRIVATE_DIRECTORY if directory in private else 0o755, parents=True, exist_ok=True)
        _check_no_links(directory, PurePosixPath(BUNDLE_MARKER))
        if any(directory.iterdir()) and not marker.is_file():
            raise VstreamError(
                f"{directory} has files that vstream did not write", hint="name an empty or new directory with -o"
            )
        old_paths = set(marker.read_text(encoding="utf-8").splitlines()) if marker.is_file() else set()
        for path in paths | old_paths:
            _check_no_links(directory, PurePosixPath(path))
        # Both lists first: whatever happens below, the next run knows which files are ours.
        _write_readable(marker, "".join(f"{path}\n" for path in sorted(paths | old_paths)))
        for parent in sorted({(directory / path).parent for path in paths}):
            parent.mkdir(mode=_PRIVATE_DIRECTORY if parent in private else 0o755, parents=True, exist_ok=True)
        for artifact in artifacts:
            _write_artifact(directory / artifact.path, artifact)
        stale_paths = old_paths - paths
        for path in stale_paths:
            (directory / path).unlink(missing_ok=True)
        _write_readable(marker, "".join(f"{path}\n" for path in sorted(paths)))
    except (OSError, ValueError) as error:  # a NUL, or no UTF-8
        reason = error.strerror if isinstance(error, OSError) else error
        blamed = getattr(error, "filename", None) or directory
        raise VstreamError(f"{blamed} cannot be written: {reason}", hint="name another directory with -o") from None
    return len(stale_paths)


def _check_no_links(directory: Path, path: PurePosixPath) -> None:
    """Raises VstreamError if *path* leads out of *directory*, or may lead out of it."""
    if path.is_absolute() or ".." in path.parts:
        raise VstreamError(
            f"{directory / BUNDLE_MARKER} lists a file outside of {directory}: {path}", hint=f"remove {directory}"
        )
    for part in (path, *path.parents):
        if part.parts and (directory / part).is_symlink():
            raise VstreamError(
                f"{directory / part} is a symbolic link: vstream does not write through links",
                hint="remove it, or name another directory with -o",
            )


def _write_artifact(path: Path, artifact: Artifact) -> None:
    if is_private(artifact.path):
        write_atomically(path, artifact.text, mode=_PRIVATE)
    else:
        _write_readable(path, artifact.text)


def _write_readable(path: Path, text: str) -> None:
    """Write a file for nobody else to write, whatever the umask is, and through no link that came meanwhile."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, READABLE), "w", encoding="utf-8", newline="") as file:
        file.write(text)
