"""What streams survive: tables and reasons, and what a rehearsal showed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from vstream.runner.survival import CellStatus, RehearsalRequest, RehearsedCell, SurvivalRehearsal
from vstream.topology.model import Topology
from vstream.topology.survival import Ability, Failure, Survival, SurvivalCell

_ANSWER_STYLES = {
    Survival.YES: "green",
    Survival.PAUSE: "green",
    Survival.NO: "bold red",
    Survival.UNKNOWN: "yellow",
    Survival.NEVER: "dim",
}
_ANSWER_WORDS = {Survival.PAUSE: "yes, after a pause", Survival.NEVER: "never promised"}
_REHEARSAL_MARKS = {
    CellStatus.SHOWN: " ✓",
    CellStatus.REFUTED: " ✗ refuted",
    CellStatus.UNKNOWN: " ? not measured",
    CellStatus.UNTRIED: "",
}
_MAX_STREAMS_IN_TITLE = 4


def render_table(cells: Sequence[SurvivalCell], result: SurvivalRehearsal | None) -> Iterator[RenderableType]:
    """Tables and reasons for a terminal."""
    outcomes = _index_outcomes(result)
    for title, rows in _group_alike(cells, outcomes):
        abilities = _list_abilities(rows)
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
        table.add_column("if this fails")
        for ability in abilities:
            table.add_column(_name(ability))
        for failure in _list_failures(rows):
            row = {cell.ability: cell for cell in rows if cell.failure is failure}
            in_order = [row[ability] for ability in abilities]
            marked = [Text(_mark(cell, outcomes), style=_ANSWER_STYLES[cell.ruling.answer]) for cell in in_order]
            table.add_row(_name(failure), *marked)
        yield table
        for line in _list_reasons(rows):
            yield Text(f"  {line}")
    if result is not None:
        for line in summarize(result):
            yield Text(line)


def render_markdown(cells: Sequence[SurvivalCell], result: SurvivalRehearsal | None) -> str:
    """The table and the rehearsal as Markdown."""
    lines: list[str] = []
    outcomes = _index_outcomes(result)
    for title, rows in _group_alike(cells, outcomes):
        abilities = _list_abilities(rows)
        lines += [f"## {title}", ""]
        lines += [f"| if this fails | {' | '.join(map(_name, abilities))} |", f"|---|{'---|' * len(abilities)}"]
        for failure in _list_failures(rows):
            row = {cell.ability: cell for cell in rows if cell.failure is failure}
            lines.append(f"| {_name(failure)} | {' | '.join(_mark(row[ability], outcomes) for ability in abilities)} |")
        lines += ["", *(f"- {line}" for line in _list_reasons(rows)), ""]
    lines += [f"{line}  " for line in summarize(result)] if result is not None else []
    return "\n".join(lines).rstrip() + "\n"


def as_dict(topology: Topology, cells: Sequence[SurvivalCell], result: SurvivalRehearsal | None) -> dict[str, Any]:
    """The table as plain JSON data; *result* is None where nothing was rehearsed."""
    outcomes = _index_outcomes(result)
    return {
        "topology": topology.name,
        "cells": [_cell_as_dict(cell, outcomes.get(cell)) for cell in cells],
        "rehearsal": _rehearsal_as_dict(result) if result is not None else None,
    }


def _cell_as_dict(cell: SurvivalCell, outcome: RehearsedCell | None) -> dict[str, Any]:
    return {
        "stream": cell.stream,
        "failure": cell.failure.value,
        "ability": cell.ability.value,
        "answer": cell.ruling.answer.value,
        "reason": cell.ruling.reason,
        "incident": cell.incident.name if cell.incident is not None else None,
        "rehearsed": outcome.status.value if outcome is not None else None,
        "detail": outcome.detail if outcome is not None else None,
    }


def describe_rehearsal(request: RehearsalRequest) -> Iterator[str]:
    """What a rehearsal is about to do."""
    for number, scenario in enumerate(request.scenarios, 1):
        yield f"lab {request.lab}-{number}: {', '.join(scenario.incidents)}"
    yield f"captures go to {request.directory}"


def summarize(result: SurvivalRehearsal) -> Iterator[str]:
    """What came of a rehearsal, in a few lines."""
    counts = ", ".join(f"{result.count(status)} {status.value}" for status in CellStatus)
    yield f"{counts}, in {len(result.incidents)} failures"
    power = (
        f", {result.expected_losses:,} of them to losses of power, as the table says" if result.expected_losses else ""
    )
    yield f"{result.acknowledged:,} publishes acknowledged, {result.lost:,} lost{power}"
    for cell in result.cells:
        if cell.status in {CellStatus.REFUTED, CellStatus.UNKNOWN}:
            where = f"{cell.cell.stream}, {_name(cell.cell.failure)}, {_name(cell.cell.ability)}"
            yield f"{cell.status.value}: {where}: {cell.detail}"
    yield from result.problems


def _rehearsal_as_dict(result: SurvivalRehearsal) -> dict[str, Any]:
    return {
        "incidents": list(result.incidents),
        "shown": result.count(CellStatus.SHOWN),
        "refuted": result.count(CellStatus.REFUTED),
        "unknown": result.count(CellStatus.UNKNOWN),
        "untried": result.count(CellStatus.UNTRIED),
        "acknowledged": result.acknowledged,
        "lost": result.lost,
        "expected_losses": result.expected_losses,
        "problems": list(result.problems),
        "captures": [str(path) for path in result.captures],
    }


def _index_outcomes(result: SurvivalRehearsal | None) -> dict[SurvivalCell, RehearsedCell]:
    return {cell.cell: cell for cell in result.cells} if result is not None else {}


def _group_alike(
    cells: Sequence[SurvivalCell], outcomes: Mapping[SurvivalCell, RehearsedCell]
) -> Iterator[tuple[str, Sequence[SurvivalCell]]]:
    """Streams that differ in their names only, as a title, and the cells of the first of them."""
    by_stream: defaultdict[str, list[SurvivalCell]] = defaultdict(list)
    for cell in cells:
        by_stream[cell.stream].append(cell)
    groups: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for stream, rows in by_stream.items():
        answers = [(cell.failure, cell.ability, cell.incident, _mark(cell, outcomes)) for cell in rows]
        groups[*answers, *(cell.ruling.reason.replace(stream, "") for cell in rows)].append(stream)
    for streams in groups.values():
        more = f" and {len(streams) - _MAX_STREAMS_IN_TITLE:,} more" if len(streams) > _MAX_STREAMS_IN_TITLE else ""
        yield ", ".join(streams[:_MAX_STREAMS_IN_TITLE]) + more, by_stream[streams[0]]


def _mark(cell: SurvivalCell, outcomes: Mapping[SurvivalCell, RehearsedCell]) -> str:
    word = _ANSWER_WORDS.get(cell.ruling.answer, cell.ruling.answer.value)
    outcome = outcomes.get(cell)
    return word + (_REHEARSAL_MARKS[outcome.status] if outcome is not None else "")


def _list_reasons(cells: Sequence[SurvivalCell]) -> Iterator[str]:
    """Each reason once, with the cells that it is for; nobody asks why all is well."""
    grouped: dict[tuple[Survival, str, str], list[SurvivalCell]] = {}
    for cell in cells:
        if cell.ruling.answer is not Survival.YES:
            place = cell.incident.name if cell.incident is not None and cell.ruling.answer is not Survival.NEVER else ""
            grouped.setdefault((cell.ruling.answer, cell.ruling.reason, place), []).append(cell)
    for (answer, reason, place), group in grouped.items():
        abilities = ", ".join(dict.fromkeys(_name(cell.ability) for cell in group))
        failures = ", ".join(dict.fromkeys(_name(cell.failure) for cell in group))
        where = f"{failures} ({place})" if place else failures
        subject = abilities if answer is Survival.NEVER else f"{where}: {abilities}"
        yield f"{subject}: {_ANSWER_WORDS.get(answer, answer.value)}: {reason}"


def _name(word: Failure | Ability) -> str:
    text: str = word.value
    return text.replace("_", " ")


def _list_abilities(cells: Sequence[SurvivalCell]) -> list[Ability]:
    return [ability for ability in Ability if any(cell.ability is ability for cell in cells)]


def _list_failures(cells: Sequence[SurvivalCell]) -> list[Failure]:
    return [failure for failure in Failure if any(cell.failure is failure for cell in cells)]
