"""
Options of plain text without pydantic, which Typer imports to convert the first value that a command has.

It takes longer to import than a small file takes to check. Text is left as it is, nothing stays nothing, and a choice is
looked up; whatever else has to be converted, or is wrong, is Typer's.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from importlib import import_module
from typing import Any, Final

import typer

SECONDS: Final = "SECONDS"  # or a duration, such as 5m
_TEXTS: Final = (str, list[str])


class PlainValue:
    """What Typer asks to convert the value of a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command has it. Raises BadParameter, as Typer does."""
        is_repeated = param.multiple or param.nargs == -1
        if value is None:
            return () if is_repeated else None
        expected = param.type_descriptor.annotation
        if expected in _TEXTS and not param.type_descriptor.parameter_info.parser:
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
            error.message = error.message.removeprefix("Value error, ")  # pydantic's word for it
            raise


def convert_late(parameters: list[Any]) -> list[Any]:
    """*parameters*, which ask Typer for a conversion only where there is something to convert."""
    for parameter in parameters:
        if "_runtime_param" in vars(parameter):  # Another Typer may do without it, and converts as it does then.
            vars(parameter)["_runtime_param"] = PlainValue()
    return parameters
