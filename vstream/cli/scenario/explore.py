"""`vstream scenario explore`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from vstream import resources
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import CaseStatus
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import console
from vstream.cli.views import scenario as view
from vstream.cli.views.json_output import print_json
from vstream.errors import VstreamError
from vstream.runner.explore import Exploration, Run, RunOutcome, SearchLimits, summarize_verdict
from vstream.runner.runner import capture_scenario
from vstream.scenario.generate import ScenarioData, generate
from vstream.scenario.model import Scenario
from vstream.syntax import yaml

Lab = dict[str, str]
"""What a scenario says under `lab`."""

_MINUTE_SECONDS = 60.0
DEFAULT_TOPOLOGY = "three-by-three"


def command(
    minutes: Annotated[float, typer.Option("--minutes", help="Start no run after this long.", min=0)] = 10,
    runs: Annotated[int | None, typer.Option("--runs", help="The largest number of runs.", min=1)] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed gives the same scenarios; by default a new one.", min=0)
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(
            "--topology", "-t", help="What runs: by default three regions of three servers.", envvar="VSTREAM_TOPOLOGY"
        ),
    ] = None,
    server_version: options.ServerVersion = None,
    links: Annotated[
        Literal["proxy", "none"] | None,
        typer.Option("--links", help="What carries the links between regions; with `none` they are left alone."),
    ] = None,
    templates: options.TemplatesDirectory = None,
    output_path: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where scenarios and captures go; by default below `captures/`."),
    ] = None,
    shrinking_runs: Annotated[
        int,
        typer.Option("--shrinking-runs", help="Runs to make one failed scenario short; 0 leaves it as it is.", min=0),
    ] = 24,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the captures of runs that passed, too.")] = False,
    output_format: options.TextOrJson = "text",
) -> None:
    """
    Rehearse random disasters: none of them may lose or duplicate anything, and regions agree in the end.

    Scenarios are made of kills, pauses, cuts, slow links and lost leaders in any overlap, and run one after the
    other. One that fails is run again with fewer steps, shorter times and less load, as long as it fails: what is
    left is a short scenario file, to be replayed with `vstream scenario run`. Exits with 1 if a run failed, with 3 if one
    proved nothing.

    Examples: `vstream scenario explore --minutes 30 --seed 7`, `vstream scenario explore --runs 1 -t acme.yaml --keep`
    """
    lab: Lab = {}
    if links is not None:
        lab["links"] = links
    if server_version is not None:
        lab["versions"] = server_version
    if templates is not None:
        lab["templates"] = str(templates.resolve())
    chosen = secrets.randbelow(2**31) if seed is None else seed
    directory = output_path or Path("captures") / f"explored-{chosen}-{secrets.token_hex(2)}"
    if (directory / "explored.json").exists():
        raise VstreamError(f"{directory} holds another exploration", hint="choose another directory with `--output`")
    exploration = Exploration(
        seed=chosen,
        compose=_make_generator(topology, lab),
        run=_make_runner(chosen),
        out=directory,
        bounds=SearchLimits(seconds=minutes * _MINUTE_SECONDS, runs=runs, shrinking_runs=shrinking_runs),
        observer=view.ExplorationLog(),
        is_kept=keep,
    )
    console.print_note(f"exploring with seed {chosen}: scenarios and captures are in {directory}")
    try:
        run(exploration.explore())
    finally:
        # Also after Ctrl-C: what has ended until then is known.
        if output_format == "json":
            print_json("scenario-explore", exploration.as_dict())
        else:
            console.print_lines(view.summarize(exploration))
    is_unknown = exploration.count(CaseStatus.UNKNOWN) > 0 or not exploration.runs
    exit_unless_yes(is_no=exploration.count(CaseStatus.FAIL) > 0, is_unknown=is_unknown)


def _make_generator(topology: Path | None, lab: Lab) -> Callable[[int], ScenarioData]:
    """What makes a scenario of a seed, in a *lab* like that. Raises InvalidInputError if the topology is wrong."""
    file = topology or resources.scenarios() / "topologies" / f"{DEFAULT_TOPOLOGY}.yaml"
    checked = options.check_topology_file(file)
    chosen, text = checked.require(), yaml.parse(checked.text.encode(), str(file)).data

    def generate_for(seed: int) -> ScenarioData:
        data = generate(chosen, text, seed, has_links=lab.get("links") != "none")
        return {**data, "lab": lab} if lab else data

    return generate_for


def _make_runner(seed: int) -> Run:
    """What runs one scenario, in a lab of its own, and judges it."""
    lab = f"explore-{seed}-{secrets.token_hex(2)}"

    async def run_one(scenario: Scenario, capture: Path) -> RunOutcome:
        captured = await capture_scenario(scenario, capture_dir=capture, lab_name=lab, on_event=lambda _event: None)
        return summarize_verdict(judge_capture(captured, scenario.expectations))

    return run_one
