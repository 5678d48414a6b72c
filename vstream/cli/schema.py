"""`vstream schema`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from vstream.scenario import document as scenario_document
from vstream.topology import document as topology_document


class Language(StrEnum):
    """What a JSON Schema can be printed of."""

    TOPOLOGY = "topology"
    SCENARIO = "scenario"


def command(
    language: Annotated[Language, typer.Argument(help="Which kind of file.")] = Language.TOPOLOGY,
) -> None:
    """
    Print the JSON Schema of topology or scenario files, for completion and checks in editors.

    Examples: `vstream schema > topology.schema.json`, `vstream schema scenario > scenario.schema.json`
    """
    document = scenario_document if language is Language.SCENARIO else topology_document
    typer.echo(json.dumps(document.json_schema(), indent=2, ensure_ascii=False))
