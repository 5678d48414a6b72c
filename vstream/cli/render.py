"""`vstream render`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from vstream import resources
from vstream.cli import options
from vstream.cli.views.console import print_note, print_warning
from vstream.cli.views.json_output import print_json
from vstream.errors import VstreamError
from vstream.formatting import format_count
from vstream.render.pipeline import list_template_directories, render_bundle
from vstream.render.targets import render_target
from vstream.render.targets.hosts import list_exposures, list_missing_files
from vstream.render.write_bundle import write_bundle
from vstream.servers.bundles import provide_signer
from vstream.topology.bundle import loaded_path

TargetName = Literal["files", "systemd", "compose", "helm", "nack"]


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    output_path: Annotated[
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
        options.refuse_options("has no effect with `--eject`, which copies all templates", chosen)
        eject_templates(eject)
        return
    if target in {"helm", "nack"}:
        options.refuse_options(f"has no effect with `--target {target}`, which has no file of them", {"--only": only})
    if str(output_path) == "-":
        raise typer.BadParameter("a bundle is many files: name a directory", param_hint="--output")
    topology = options.check_topology_file(file).require()
    bundle = render_bundle(topology, templates=templates, signer=provide_signer(topology, None))
    artifacts = render_target(target, topology, bundle, list_template_directories(templates))
    if only == "mappings":
        artifacts = tuple(artifact for artifact in artifacts if artifact.path.endswith(loaded_path(topology)))
    removed_count = write_bundle(artifacts, output_path)
    is_for_hosts = target not in {"helm", "nack"} and any(seat.server.host for seat in topology.all_seats)
    missing = list_missing_files(bundle) if is_for_hosts and only is None else []
    if output_format == "json":
        print_json(
            "render",
            {
                "topology": topology.name,
                "directory": str(output_path),
                "files": sorted(artifact.path for artifact in artifacts),
                "removed": removed_count,
                "streams": len(bundle.streams),
                "mapping_rules": len(bundle.mappings),
                "missing": [*missing],
                "exposures": list_exposures(topology),
            },
        )
        return
    print_note(
        f"{output_path}: {format_count(len(artifacts), 'file')}, {format_count(len(bundle.streams), 'stream')}, "
        f"{format_count(len(bundle.mappings), 'mapping rule')}"
        + (f", {format_count(removed_count, 'old file')} removed" if removed_count else "")
    )
    if missing:
        print_note(f"note: put beside {loaded_path(topology)} on each host: {', '.join(missing)} (docs/routing.md)")
    for line in list_exposures(topology):
        print_warning(f"note: {line}")


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
