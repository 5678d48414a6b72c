"""Options that several `vstream lab` commands share."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from vstream.errors import LabError
from vstream.lab import lab

Name = Annotated[
    str | None, typer.Option("--lab", help="The lab's name; by default the topology's.", envvar="VSTREAM_LAB")
]
LabOption = Annotated[
    str | None, typer.Option("--lab", help="The lab's name; not needed if there is only one.", envvar="VSTREAM_LAB")
]
LabArgument = Annotated[
    str | None, typer.Argument(help="The lab's name; not needed if there is only one.", envvar="VSTREAM_LAB")
]

SameLab = Annotated[str | None, typer.Option("--lab", help="The same as NAME.")]


def choose_name(argument: str | None, option: str | None) -> str | None:
    """The lab that an argument or `--lab` names, None if neither does. Raises BadParameter if they name two."""
    # Who names one by an option does not mean the environment's.
    if option is not None and argument not in {None, option, os.environ.get("VSTREAM_LAB")}:
        raise typer.BadParameter(f"`{argument}` is another lab: name one", param_hint="--lab")
    return argument if option is None else option


def the_lab(name: str | None, *, is_argument: bool = False) -> str:
    """The lab that is meant by `--lab`, or by an argument. Raises LabError if that is not clear."""
    if name is not None:
        return name
    names = lab.names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise LabError("there is no lab", hint="`vstream lab up TOPOLOGY` starts one")
    example = names[0] if is_argument else f"--lab {names[0]}"
    raise LabError(f"there are several labs: {', '.join(names)}", hint=f"name the one you mean, such as `{example}`")
