"""`vstream schema`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer


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
    # pydantic is not needed for --help
    if language is Language.SCENARIO:
        from vstream.scenario.document import json_schema  # noqa: PLC0415
    else:
        from vstream.topology.document import json_schema  # noqa: PLC0415

    typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
