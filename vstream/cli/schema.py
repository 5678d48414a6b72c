"""`vstream schema`."""

from __future__ import annotations

import json

import typer


def command() -> None:
    """
    Print the JSON Schema of topology files, for completion and checks in editors.

    Example: `vstream schema > topology.schema.json`
    """
    from vstream.topology.document import json_schema  # noqa: PLC0415 - pydantic is not needed for --help

    typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
