"""`vstream schema`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer
from pydantic import TypeAdapter

from vstream.errors import UnknownNameError
from vstream.outputs import OUTPUTS, schema_id
from vstream.scenario import document as scenario_document
from vstream.topology import document as topology_document


def command(
    language: Annotated[Literal["topology", "scenario"], typer.Argument(help="The kind of file.")] = "topology",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", help="Print the schema of this JSON output instead, such as `status`.", metavar="NAME"
        ),
    ] = None,
) -> None:
    """
    Print the JSON Schema of topology or scenario files, or of what a command prints as JSON.

    Editors use the schema of a file for completion and checks.

    Examples: `vstream schema > topology.schema.json`, `vstream schema scenario > scenario.schema.json`,
    `vstream schema --output status`
    """
    document = scenario_document if language == "scenario" else topology_document
    schema = document.json_schema() if output is None else make_output_schema(output)
    typer.echo(json.dumps(schema, indent=2, ensure_ascii=False))


def make_output_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of the output *name*. Raises UnknownNameError."""
    if name not in OUTPUTS:
        raise UnknownNameError(f"no command has the output `{name}`", hint=f"choose one of {', '.join(OUTPUTS)}")
    schema = TypeAdapter(OUTPUTS[name]).json_schema()
    schema["properties"]["schema"] = {"const": schema_id(name)}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": schema_id(name), **_drop_titles(schema)}


def _drop_titles(schema: Any) -> Any:
    """*schema* without the titles that only repeat the names of keys."""
    if isinstance(schema, list):
        return [_drop_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _drop_titles(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
