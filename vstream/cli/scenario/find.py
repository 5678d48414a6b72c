"""Find scenarios: by file, or by the name of one that ships with vstream."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vstream import resources
from vstream.cli import options
from vstream.errors import VstreamError
from vstream.formatting import suggest_name
from vstream.lint import input_files
from vstream.lint.check_scenario import CheckedScenario, check_scenario
from vstream.lint.parse_files import STDIN
from vstream.syntax.yaml import MAX_BYTES

ScenarioFile = Annotated[
    str,
    typer.Argument(
        help="The scenario file, or the name of a shipped one (`vstream scenario list`); `-` reads standard input.",
        metavar="FILE|NAME",
    ),
]


def list_shipped() -> dict[str, Path]:
    """The scenarios that ship with vstream, by name."""
    return {path.stem: path for path in sorted(resources.scenarios().glob("*.yaml"))}


def require_scenario(name: str) -> Path:
    """The file that *name* stands for. Raises VstreamError if there is none."""
    path = Path(name)
    if name == "-" or path.exists():
        return path
    shipped = list_shipped()
    if name in shipped:
        return shipped[name]
    if path.suffix or len(path.parts) > 1:
        raise VstreamError(f"{name} does not exist", hint="check the path; `vstream scenario list` lists shipped ones")
    hint = suggest_name(name, shipped) or "`vstream scenario list` lists those that ship with vstream"
    raise VstreamError(f"there is no scenario `{name}`", hint=hint)


def read_scenario(name: str) -> CheckedScenario:
    """Read and check the scenario that *name* stands for, and its topology. Raises VstreamError if it cannot be read."""
    path = require_scenario(name)
    file = STDIN if name == "-" else str(path)
    roots = input_files.Roots([str(path)])

    def is_directory(name: str) -> bool:
        return Path(name).is_dir() and roots.hold(name)

    return check_scenario(options.read_bytes(path, limit=MAX_BYTES + 1), file, roots.read, is_directory)
