"""`vstream render`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.servers import find_signer
from vstream.cli.views import console
from vstream.errors import VstreamError
from vstream.files import write_atomically
from vstream.lint.load_topology import render_bundle
from vstream.topology.bundle import is_private

if TYPE_CHECKING:
    from vstream.topology.bundle import Bundle

_MARKER = ".vstream-bundle"
_PRIVATE = 0o600


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")] = Path("build"),
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Write the bundle: stream JSON, mappings.cfg, server configurations and nats CLI contexts.

    Files of an earlier bundle in the same directory that no longer belong to it are removed.

    Example: `vstream render acme.yaml -o build/`
    """
    wanted = options.load_topology(topology).require()
    rendered = render_bundle(wanted, templates=templates, signer=find_signer(wanted, None))
    removed = write(rendered, output)
    console.print_note(
        f"{output}: {len(rendered.artifacts)} files, {len(rendered.streams)} streams, "
        f"{len(rendered.mappings)} mapping rules" + (f", {removed} old files removed" if removed else "")
    )


def write(bundle: Bundle, directory: Path) -> int:
    """
    Write *bundle* and remove what an earlier one left; returns how many files were removed.

    Raises VstreamError for a directory that has other things in it.
    """
    marker = directory / _MARKER
    paths = {artifact.path for artifact in bundle.artifacts}
    try:
        if directory.is_dir() and any(directory.iterdir()) and not marker.is_file():
            raise VstreamError(
                f"{directory} has files that vstream did not write", hint="name an empty or new directory with -o"
            )
        old = set(marker.read_text(encoding="utf-8").splitlines()) if marker.is_file() else set()
        directory.mkdir(parents=True, exist_ok=True)
        # Both lists first: whatever happens below, the next run knows which files are ours.
        marker.write_text("".join(f"{path}\n" for path in sorted(paths | old)), encoding="utf-8")
        for artifact in bundle.artifacts:
            path = directory / artifact.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if is_private(artifact.path):
                write_atomically(path, artifact.text, mode=_PRIVATE)
            else:
                path.write_text(artifact.text, encoding="utf-8", newline="")
        stale = {path for path in old - paths if ".." not in PurePosixPath(path).parts and path[:1] != "/"}
        for old_path in stale:
            (directory / old_path).unlink(missing_ok=True)
        marker.write_text("".join(f"{path}\n" for path in sorted(paths)), encoding="utf-8")
    except OSError as error:
        raise VstreamError(f"{error.filename or directory} cannot be written: {error.strerror}") from None
    return len(stale)
