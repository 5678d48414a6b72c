"""`vstream render`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.files import BUNDLE_MARKER
from vstream.cli.servers import find_signer
from vstream.cli.views.console import print_note
from vstream.errors import VstreamError
from vstream.files import write_atomically
from vstream.lint.load_topology import render_bundle
from vstream.topology.bundle import is_private

if TYPE_CHECKING:
    from vstream.topology.bundle import Artifact, Bundle
    from vstream.topology.model import Topology

_PRIVATE = 0o600


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The directory to write.", file_okay=False, allow_dash=True)
    ] = Path("build"),
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Write the bundle: stream JSON, mappings.cfg, server configurations and nats CLI contexts.

    Files of an earlier bundle in the same directory that no longer belong to it are removed.

    Example: `vstream render acme.yaml -o build/`
    """
    if str(output) == "-":
        raise typer.BadParameter("a bundle is many files: name a directory", param_hint="--output")
    loaded = options.load_topology(topology).require()
    bundle = render_bundle(loaded, templates=templates, signer=find_signer(loaded, None))
    removed = write_bundle(bundle, output)
    print_note(
        f"{output}: {len(bundle.artifacts)} files, {len(bundle.streams)} streams, "
        f"{len(bundle.mappings)} mapping rules" + (f", {removed} old files removed" if removed else "")
    )
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


def write_bundle(bundle: Bundle, directory: Path) -> int:
    """
    Write *bundle* and remove what an earlier one left; returns how many files were removed.

    Nothing outside of *directory* is touched, whatever links and lists of files lie in it. Raises VstreamError for a
    directory that has other things in it.
    """
    marker = directory / BUNDLE_MARKER
    paths = {artifact.path for artifact in bundle.artifacts}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_no_links(directory, PurePosixPath(BUNDLE_MARKER))
        if any(directory.iterdir()) and not marker.is_file():
            raise VstreamError(
                f"{directory} has files that vstream did not write", hint="name an empty or new directory with -o"
            )
        old_paths = set(marker.read_text(encoding="utf-8").splitlines()) if marker.is_file() else set()
        for path in paths | old_paths:
            _check_no_links(directory, PurePosixPath(path))
        # Both lists first: whatever happens below, the next run knows which files are ours.
        marker.write_text("".join(f"{path}\n" for path in sorted(paths | old_paths)), encoding="utf-8")
        for artifact in bundle.artifacts:
            _write_artifact(directory / artifact.path, artifact)
        stale_paths = old_paths - paths
        for path in stale_paths:
            (directory / path).unlink(missing_ok=True)
        marker.write_text("".join(f"{path}\n" for path in sorted(paths)), encoding="utf-8")
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
                f"{directory / part} is a link, and vstream writes through none",
                hint="remove it, or name another directory with -o",
            )


def _write_artifact(path: Path, artifact: Artifact) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_private(artifact.path):
        write_atomically(path, artifact.text, mode=_PRIVATE)
    else:
        path.write_text(artifact.text, encoding="utf-8", newline="")
