"""`vstream validate`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.exit_codes import NO
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from vstream.diagnostics import Finding

Format = Annotated[str, typer.Option("--format", help="full, concise or json.")]


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    templates: options.TemplatesDirectory = None,
    output: Format = "full",
) -> None:
    """
    Check a topology file, and everything that it renders to; or a scenario file. Exits with 1 if there are errors.

    Examples: `vstream validate`, `vstream validate acme.yaml --format json`
    """
    from vstream.cli import files  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.errors import InvalidInputError  # noqa: PLC0415
    from vstream.lint import detect  # noqa: PLC0415
    from vstream.lint.load_topology import load, render_bundle  # noqa: PLC0415
    from vstream.lint.rules.wording import count  # noqa: PLC0415
    from vstream.syntax.yaml import MAX_BYTES  # noqa: PLC0415

    content = options.read_bytes(topology, limit=MAX_BYTES + 1)
    file = files.STDIN if str(topology) == "-" else str(topology)
    if detect.detect(content.decode("utf-8", errors="replace"), f"{file}.yaml") is detect.Kind.SCENARIO:
        _scenario(content, file, output)
        return
    loaded = load(content, file)
    found = loaded.diagnostics
    rendered = None
    if loaded.topology is not None and not any(one.is_error for one in found):
        try:
            rendered = render_bundle(loaded.topology, templates=templates)
        except InvalidInputError as error:
            found = (*found, *error.diagnostics)
    if show(found, {file: loaded.text}, output):
        raise typer.Exit(NO)
    if rendered is not None:
        console.print_note(
            f"{topology} is valid: {count(len(rendered.servers), 'server')}, "
            f"{count(len(rendered.streams), 'physical stream')}, {count(len(rendered.mappings), 'mapping rule')}"
        )


def _scenario(content: bytes, file: str, output: str) -> None:
    from vstream.cli import files  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import scenario as view  # noqa: PLC0415
    from vstream.lint.load_scenario import load  # noqa: PLC0415

    loaded = load(content, file, files.read_included, os.path.isdir)
    if show(loaded.diagnostics, loaded.texts, output):
        raise typer.Exit(NO)
    console.print_note(f"{file} is valid: {view.outline(loaded.require())}")


def show(found: Sequence[Finding], texts: Mapping[str, str], output: str) -> bool:
    """Print what was found, and how many errors are among it; whether there are any."""
    from vstream.cli.views import (  # noqa: PLC0415
        console,
        diagnostics,
    )

    if output not in set(diagnostics.FindingFormat):
        raise typer.BadParameter(f"`{output}` is none of full, concise, json", param_hint="--format")
    if output == "json":
        print_json("findings", {"findings": diagnostics.as_json(found)})
    else:
        for line in diagnostics.full(found, texts) if output == "full" else diagnostics.concise(found):
            console.stdout().print(line)
    errors = sum(one.is_error for one in found)
    if errors:
        console.print_note(f"{errors} error{'' if errors == 1 else 's'} found")
    return errors > 0
