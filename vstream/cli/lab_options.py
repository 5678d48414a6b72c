"""Options that commands on a lab share: which one is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from vstream.cli import options
from vstream.cli.lazy_group import TOPOLOGY_VARIABLE, chosen_overlays
from vstream.cli.views.console import print_note, set_log
from vstream.errors import LabError
from vstream.lab.state import lab_directory
from vstream.lab.status import list_lab_names, read_lab_status

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


def choose_lab(name: str | None, *, is_argument: bool = False) -> str:
    """The lab that is meant by `--lab`, or by an argument. Raises LabError if that is not clear."""
    if name is not None:
        return name
    names = list_lab_names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise LabError("there is no lab", hint="`vstream lab up TOPOLOGY` starts one")
    example = names[0] if is_argument else f"--lab {names[0]}"
    raise LabError(f"there are several labs: {', '.join(names)}", hint=f"name the one you mean, such as `{example}`")


def remember_topology(name: str, path: Path) -> None:
    """Note that lab *name* was started from the file *path*: unless that is standard input, or overlays lie over it."""
    link = lab_directory(name).topology
    link.unlink(missing_ok=True)
    if str(path) != "-" and not chosen_overlays():
        link.symlink_to(path.resolve())


def fill_in_topology(context: Any) -> None:
    """Where a command has `--lab`, and no topology is here, set the file that the lab was started from. Raises LabError."""
    for parameter in context.command.params:
        if parameter.envvar == TOPOLOGY_VARIABLE and (value := context.params[parameter.name]):
            set_log(context.params.get("log_format", ""), is_quiet=context.params.get("is_quiet"))
            context.params[parameter.name] = type(value)(find_topology_file(Path(value), context.params["lab"]))


def find_topology_file(path: Path, name: str | None) -> Path:
    """*path*, or what lab *name* was started from where that is the default and not here: a note says so. Raises LabError for none."""
    if name is None or path != options.DEFAULT_FILE or path.exists():
        return path
    link = lab_directory(name).topology
    if not link.is_symlink():
        read_lab_status(name)  # raises LabError if there is none, and names the others
        raise LabError(f"{path} does not exist", hint=f"name the file of the topology that lab `{name}` runs")
    print_note(f"topology: {link.readlink()}, from which lab {name} was started")
    return link.readlink()
