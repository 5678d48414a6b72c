"""
The one place where the command line imports late: a group that loads a command's module when the command runs.

Help and `--version` need only the table of names and help texts, so a command module imports all it needs at its top.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import MarkupMode, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKUP: MarkupMode = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    """One line of the help, and where its command is."""

    module: str
    help: str
    attribute: str = "command"
    """The function of the command in *module*, or the Typer app of a group of commands."""


class LazyCommand(TyperCommand):
    """A command that knows its help line, and is loaded to be run."""

    def __init__(self, name: str, entry: CommandEntry, *, panel: str) -> None:
        super().__init__(name, help=entry.help, rich_help_panel=panel, rich_markup_mode=MARKUP)
        self._entry = entry

    def load(self) -> Any:
        """The command itself, with its arguments and options."""
        target = getattr(import_module(self._entry.module), self._entry.attribute)
        if isinstance(target, typer.Typer):
            target.rich_markup_mode = MARKUP
            return typer.main.get_group(target)
        app = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
        app.command(self.name)(target)
        return typer.main.get_command(app)


class LazyGroup(TyperGroup):
    """A group whose commands are declared in a table; subclasses set *panels*."""

    panels: ClassVar[Mapping[str, Mapping[str, CommandEntry]]] = {}
    """The commands by name, in the panels of the help."""

    def __init__(self, **settings: Any) -> None:
        settings["commands"] = {
            name: LazyCommand(name, entry, panel=panel)
            for panel, entries in self.panels.items()
            for name, entry in entries.items()
        }
        super().__init__(**settings)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that *args* name, loaded: to run it, to show its help, or to complete its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
