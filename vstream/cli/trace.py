"""`vstream map --trace`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO, UNKNOWN
from vstream.cli.map import read_workspace
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.errors import UnknownNameError
from vstream.lab.find_servers import find_servers
from vstream.lint.publishing_client import find_client
from vstream.probe.trace import PublishExpectation, PublishTrace, StepKind, TraceStep, expect_publish, trace_publish
from vstream.topology.physical import client_account


def print_trace(
    subject: str, files: Sequence[str], regions: Sequence[str], lab: str | None, *, timeout: float, is_json: bool
) -> None:
    """
    Show where servers of the topology in *files* take a publish to the literal *subject*, beside what is expected.

    One publish through every address of each region, or of each of *regions*; nothing is stored or delivered.
    *timeout*: seconds until every server has answered. Exits with 1 where something differs, and with 3 where something
    cannot be known or a server is older than 2.11. Raises VstreamError, and BadParameter for several files.
    """
    if len(files) > 1:
        raise typer.BadParameter("name one topology", param_hint="FILES")
    workspace = read_workspace(files)
    loaded = workspace.topology or options.load_topology(Path(files[0])).require()
    names = [place.name for place in loaded.regions]
    for name in regions:
        if name not in names:
            raise UnknownNameError(f"there is no region `{name}`", hint=f"there are {', '.join(names)}")
    where = find_servers(loaded, lab)
    expected = []
    for name in regions or names:
        account = client_account(loaded, name) if loaded.has_accounts else None
        simulation = find_client(workspace, name, account).publish(subject)
        expected.append(expect_publish(loaded, name, subject, simulation))
    traces = run(trace_publish(subject, expected, where.endpoints, timeout=timeout))
    if is_json:
        print_json("trace", as_dict(loaded.name, subject, expected, traces))
    else:
        console.print_note(f"{loaded.name} on {where.description}")
        console.print_lines(render(subject, expected, traces))
    if any(trace.is_expected is False for trace in traces):
        raise typer.Exit(NO)
    if any(trace.is_expected is None for trace in traces):
        raise typer.Exit(UNKNOWN)


_VERDICTS = {True: "expected", False: "different", None: "unknown"}
_MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("?", "bold yellow")}


def render(subject: str, expected: Sequence[PublishExpectation], traces: Sequence[PublishTrace]) -> Iterator[Text]:
    """Each region's expectation, then each server: what it did, and what is not as expected."""
    for expectation in expected:
        yield Text(f"a publish to `{subject}` in `{expectation.region}`", style="bold")
        yield Text(f"  expected: {_describe_expectation(subject, expectation)}")
        for trace in traces:
            if trace.region == expectation.region:
                yield from _describe_trace(trace)
    if not any(trace.differs or trace.unknown for trace in traces):
        yield Text("Every server does what is expected.", style="bold green")


def _describe_expectation(subject: str, expected: PublishExpectation) -> str:
    becomes = " or ".join(f"`{name}`" for name in expected.subjects if name != subject)
    stream = f"stored in `{expected.stream}`" if expected.stream else "no virtual stream here has this subject"
    return f"mapped to {becomes}, {stream}" if becomes else stream


def _describe_trace(trace: PublishTrace) -> Iterator[Text]:
    version = f" ({trace.version})" if trace.version else ""
    yield Text.assemble("  ", _MARKS[trace.is_expected], f" by {trace.server}{version}")
    for step in trace.steps:
        yield Text(f"      {step.server}: {_describe_step(step)}" + (f": {step.error}" if step.error else ""))
    yield from (Text(f"    {sentence}", style="bold red") for sentence in trace.differs)
    yield from (Text(f"    not known: {sentence}", style="bold yellow") for sentence in trace.unknown)


def _describe_step(step: TraceStep) -> str:
    match step.kind:
        case StepKind.RECEIVED:
            return f"has it from {step.by} {step.peer or ''} in account `{step.account}`, as `{step.subject}`"
        case StepKind.MAPPED:
            return f"maps it to `{step.subject}`"
        case StepKind.IMPORTED:
            return f"hands it to account `{step.account}`, as `{step.subject}`"
        case StepKind.EXPORTED:
            return f"shows it to account `{step.account}`, as `{step.subject}`"
        case StepKind.STREAM:
            return f"stream `{step.stream}` " + ("refuses it" if step.error else f"would store it, as `{step.subject}`")
        case StepKind.SENT:
            listens = f", which listens on `{step.subject}`" if step.subject else ""
            return f"{'would pass' if step.by == 'client' else 'passes'} it to {step.by} {step.peer or ''}{listens}"


def as_dict(
    topology: str, subject: str, expected: Sequence[PublishExpectation], traces: Sequence[PublishTrace]
) -> dict[str, Any]:
    """Everything that is known, for other programs."""
    return {
        "topology": topology,
        "subject": subject,
        "expected": [
            {"region": place.region, "subjects": list(place.subjects), "stream": place.stream} for place in expected
        ],
        "traces": [_trace_json(trace) for trace in traces],
    }


def _trace_json(trace: PublishTrace) -> dict[str, Any]:
    return {
        "region": trace.region,
        "server": trace.server,
        "version": trace.version,
        "verdict": _VERDICTS[trace.is_expected],
        "differs": list(trace.differs),
        "unknown": list(trace.unknown),
        "steps": [{**asdict(step), "kind": step.kind.value} for step in trace.steps],
    }
