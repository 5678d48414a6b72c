"""`vstream validate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from vstream.cli import inputs
from vstream.cli.outcome import NO


def command(
    topology: inputs.TopologyFile = inputs.DEFAULT_FILE,
    templates: inputs.TemplatesDirectory = None,
    output: Annotated[str, typer.Option("--format", help="full, concise or json.")] = "full",
) -> None:
    """
    Check a topology file, and everything that it renders to. Exits with 1 if there are errors.

    Examples: `vstream validate`, `vstream validate acme.yaml --format json`
    """
    from vstream.errors import InvalidInputError  # noqa: PLC0415
    from vstream.load import bundle  # noqa: PLC0415
    from vstream.ui import console, diagnostics  # noqa: PLC0415

    if output not in set(diagnostics.DiagnosticFormat):
        raise typer.BadParameter(f"`{output}` is none of full, concise, json", param_hint="--format")
    loaded = inputs.load(topology)
    found = loaded.diagnostics
    rendered = None
    if loaded.topology is not None and not any(one.is_error for one in found):
        try:
            rendered = bundle(loaded.topology, templates=templates)
        except InvalidInputError as error:
            found = (*found, *error.diagnostics)
    if output == "json":
        typer.echo(json.dumps(diagnostics.as_json(found), indent=2, ensure_ascii=False))
    else:
        texts = {"<stdin>" if str(topology) == "-" else str(topology): loaded.text}
        for line in diagnostics.full(found, texts) if output == "full" else diagnostics.concise(found):
            console.out().print(line)
    errors = sum(one.is_error for one in found)
    if errors:
        console.say(f"{errors} error{'' if errors == 1 else 's'} found")
        raise typer.Exit(NO)
    if rendered is not None:
        console.say(
            f"{topology} is valid: {len(rendered.servers)} servers, {len(rendered.streams)} physical streams, "
            f"{len(rendered.mappings)} mapping rules"
        )
