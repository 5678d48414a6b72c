"""
The one place where the command line imports late: a group that loads a command's module when the command runs.

Help and `--version` need only the table of names and help texts, so a command module imports all it needs at its top.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import MarkupMode, TyperCommand, TyperGroup

SECONDS: Final = "SECONDS"  # or a duration, such as 5m
MARKUP: MarkupMode = "markdown"
_COMPLETIONS = {
    "regions": "also come_from lost one other region to",
    "streams": "consumer stream streams",
    "machines": "server target targets",
    "labs": "fault lab same",
    "scenarios": "scenario scenarios",
    "codes": "explained extend_select ignore select",
    "commands": "commands",
}
_COMPLETED = frozenset(name for names in _COMPLETIONS.values() for name in names.split())
"""Parameters with values that `vstream.cli.completion` knows, which is loaded only when a shell asks."""

_VALUE_NAMES = {
    SECONDS: "every gate-timeout timeout wait-loaded",
    "DURATION": "for jitter lose rtt",
    "PERCENT": "loss",
    "NUMBER": "copies lines runs sample seed shrinking-runs",
    "REGION=TIME@BEGIN": "isolate kill-region",
    "CODE": "explain",
    "CODES": "extend-select ignore select",
    "FILE": "creds env-file nkey",
    "FORMAT": "publish-as",
    "HOST:PORT": "listen",
    "NAME": "as",
    "STREAM": "adopt",
    "URL": "master monitor remote server",
    "VARIABLE": "password-env",
    "VERSION": "server-version to",
}
"""What options take whose names do not say it."""
_VALUE_NAME_OF = {option: value for value, options in _VALUE_NAMES.items() for option in options.split()}


def load_late(module: str) -> Any:
    """The *module*, imported now: what only a mode of a command needs, such as `plan --drift`, or a format."""
    return import_module(module)


def refuse_named(context: Any, reason: str, *names: str) -> None:
    """Raises BadParameter if the command line itself, not the environment, names one of these parameters."""
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name).name == "COMMANDLINE":
            raise typer.BadParameter(reason, ctx=context, param=parameter)


@dataclass(frozen=True, slots=True)
class OfferedValue:
    """A value that a shell offers, as Typer's completion reads it."""

    value: str
    type: str = "plain"
    help: str | None = None


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One line of the help, and where its command is: in the module *place* of `vstream.cli`."""

    place: str = ""
    help: str = ""
    attribute: str = "command"
    """The function of the command in *module*, or the Typer app of a group of commands."""
    commands: Mapping[str, CommandEntry] = field(default_factory=dict)
    """Those of a group whose commands have modules of their own; it has none."""

    @property
    def module(self) -> str:
        """The whole name of the module."""
        return f"vstream.cli.{self.place}"


class HelpfulCommand(TyperCommand):
    """A command whose help names the values of its options, and has no `<bool>` at its switches."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options."""
        return convert_late(_name_values(add_overlay_option(super().get_params(ctx))))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set its values. A shell that completes an option's value has that option last: an error, which hides the others."""
        is_open = ctx.resilient_parsing and args and args[-1].startswith("-")
        return list(super().parse_args(ctx, args[:-1] if is_open else args))

    def invoke(self, ctx: Any) -> Any:
        """Run it. At a terminal, it says how long it takes if it took long last time."""
        if "lab" in ctx.params:
            import_module("vstream.cli.lab_options").fill_in_topology(ctx)
        if not sys.stderr.isatty():
            return super().invoke(ctx)
        with import_module("vstream.cli.views.durations").tell_duration():
            return super().invoke(ctx)


class HelpfulGroup(TyperGroup):
    """A group of commands, whose help names values as that of `HelpfulCommand` does."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options."""
        return convert_late(_name_values(super().get_params(ctx)))


class LazyCommand(TyperCommand):
    """A command that knows its help line, and is loaded to be run."""

    def __init__(self, name: str, entry: CommandEntry, *, panel: str) -> None:
        super().__init__(name, help=entry.help, rich_help_panel=panel, rich_markup_mode=MARKUP)
        self.entry = entry

    def load(self) -> Any:
        """The command itself, with its arguments and options."""
        if self.entry.commands:
            panels = {"Commands": self.entry.commands}
            return LazyGroup(panels, name=self.name, help=self.help, no_args_is_help=True, rich_markup_mode=MARKUP)
        target = getattr(import_module(self.entry.module), self.entry.attribute)
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
            app.command(self.name, cls=HelpfulCommand)(target)
            return typer.main.get_command(app)
        target.rich_markup_mode = MARKUP
        target.info.cls = HelpfulGroup
        for info in target.registered_commands:
            info.cls = HelpfulCommand
        return typer.main.get_group(target)


class LazyGroup(HelpfulGroup):
    """A group whose commands are declared in a table; subclasses set *panels*."""

    panels: ClassVar[Mapping[str, Mapping[str, CommandEntry]]] = {}
    """The commands by name, in the panels of the help."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """What to write instead of commands that are gone, or are groups now."""

    def __init__(self, panels: Mapping[str, Mapping[str, CommandEntry]] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, entries in (panels or self.panels).items():
            self.commands.update({name: LazyCommand(name, entry, panel=panel) for name, entry in entries.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that *args* name, loaded: to run it, to show its help, or to complete its arguments."""
        if args and args[0] in self.renamed and not ctx.resilient_parsing and not self._is_group_called(*args):
            ctx.fail(f"`{ctx.command_path} {args[0]}` is `{ctx.command_path} {self.renamed[args[0]]}` now")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def _is_group_called(self, name: str, first: str = "--help", *_: str) -> bool:
        """Whether *name* is a group and *first* one of its commands, also mistyped: not what the command of old took."""
        command = self.commands.get(name)
        members = command.entry.commands if isinstance(command, LazyCommand) else ()
        return bool(members) and bool(get_close_matches(first, ["-h", "--help", *members]))


def _name_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        _add_completion(parameter)
        if parameter.param_type_name == "argument" and not parameter.type_descriptor.is_choice:
            parameter.display_type_rich = lambda **_: None  # Typer shows `<str>` or `<list[str]>`
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.metavar is None:
            parameter.metavar = _name_value(parameter)
    return parameters


def _add_completion(parameter: Any) -> None:
    """Let the shell offer values of *parameter* that vstream can know, such as the regions of the topology."""
    name = "lab" if parameter.envvar == "VSTREAM_LAB" else parameter.name
    kind = getattr(parameter, "type_descriptor", None)
    if name in _COMPLETED and not (kind and kind.is_choice):
        parameter.shell_complete = lambda context, incomplete: [
            OfferedValue(value) for value in import_module("vstream.cli.completion").complete(name, context, incomplete)
        ]


def _name_value(parameter: Any) -> str | None:
    """`FILE`, what `_VALUE_NAMES` says, or the option's own name; None where Typer shows the choices."""
    kind = getattr(parameter, "type_descriptor", None)
    if kind is None or (kind.is_choice and not kind.is_list):
        return None
    if kind.is_choice:
        # Typer shows `<list[…]>`, which nobody can type.
        return f"<{'|'.join(getattr(choice, 'value', choice) for choice in kind.choices)}>"
    if kind.is_path:
        return "DIR" if kind.path_type == "dir" else "FILE"
    name = str(max(parameter.opts, key=len)).strip("-")
    return _VALUE_NAME_OF.get(name, name.upper())


_TEXT_TYPES: Final = (str, list[str])


class PlainValue:
    """What Typer asks to convert the value of a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command has it. Raises BadParameter, as Typer does."""
        is_repeated = param.multiple or param.nargs == -1
        if value is None:
            return () if is_repeated else None
        expected = param.type_descriptor.annotation
        if expected in _TEXT_TYPES and not param.type_descriptor.parameter_info.parser:
            return list(value) if is_repeated else value
        if isinstance(expected, type) and issubclass(expected, Enum):
            choice = next((choice for choice in expected if value in {choice, choice.value}), None)
            if choice is not None:
                return choice
        if param.metavar == SECONDS and isinstance(value, str) and value[:1].isdigit() and value[-1:].isalpha():
            with suppress(ValueError):  # Typer refuses what is none
                value = str(import_module("vstream.topology.units").parse_duration(value) / 1e9)
        try:
            return import_module("typer._coercion").build_runtime_param(param.type_descriptor).coerce(value, param, ctx)
        except typer.BadParameter as error:
            error.message = _reword(error.message)
            raise


_WORDINGS = {
    "Value error, ": "",
    "Input should be greater than or equal to": "must be at least",
    "Input should be less than or equal to": "must be at most",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
}
"""What is wrong with the value of an option, by pydantic's words for it."""


def _reword(message: str) -> str:
    for theirs, ours in _WORDINGS.items():
        message = message.replace(theirs, ours)
    return message


def convert_late(parameters: list[Any]) -> list[Any]:
    """*parameters*, which ask Typer for a conversion only where there is something to convert."""
    for parameter in parameters:
        if "_runtime_param" in vars(parameter):  # Another Typer may do without it, and converts as it does then.
            vars(parameter)["_runtime_param"] = PlainValue()
    return parameters


TOPOLOGY_VARIABLE = "VSTREAM_TOPOLOGY"
"""The environment variable of the topology's file: a command with it takes overlays too."""
OverlayFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--overlay",
        help="A file laid over the topology: maps are merged, other values replaced, `null` removes. Can be repeated.",
        envvar="VSTREAM_OVERLAY",
        metavar="FILE",
    ),
]
_chosen: list[Path] = []


def chosen_overlays() -> tuple[Path, ...]:
    """The files of `--overlay` that the command line of this process names, in order."""
    return tuple(_chosen)


def add_overlay_option(parameters: list[Any]) -> list[Any]:
    """*parameters* of a command, with `--overlay` if the command reads a topology."""
    if not any(parameter.envvar == TOPOLOGY_VARIABLE for parameter in parameters):
        return parameters
    return [*parameters[:-1], _make_option(), parameters[-1]]


def _make_option() -> Any:
    (option,) = (param for param in typer.main.get_command(_declaration).params if param.name == "overlay")
    option.expose_value = False
    option.callback = lambda _context, _parameter, value: set_overlays(value)
    return option


def set_overlays(paths: Iterable[Path] | None) -> None:
    """Lay the files *paths* over each topology that this process reads, in order."""
    _chosen[:] = [Path(path) for path in paths or ()]


_declaration = typer.Typer(add_completion=False)


@_declaration.command()
def _declare(overlay: OverlayFiles = None) -> None:
    """Exists for its option, which commands get without a parameter of their own."""
