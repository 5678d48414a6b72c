"""`vstream scenario explore`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run as run_to_end
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from vstream.runner.explore import Exploration, Run, RunOutcome
    from vstream.scenario.generate import ScenarioData
    from vstream.scenario.model import Scenario

Lab = dict[str, str]
"""What a scenario says under `lab`."""

_MINUTE = 60.0
DEFAULT_TOPOLOGY = "three-by-three"


def command(
    minutes: Annotated[float, typer.Option("--minutes", help="No run begins later than that.", min=0)] = 10,
    runs: Annotated[int | None, typer.Option("--runs", help="At most so many runs.", min=1)] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed gives the same scenarios; by default a new one.", min=0)
    ] = None,
    topology: Annotated[
        Path | None, typer.Option("--topology", "-t", help="What runs: by default three regions of three servers.")
    ] = None,
    server_version: Annotated[
        str | None, typer.Option("--server-version", help="The nats-server of all servers, such as 2.12.8.")
    ] = None,
    links: Annotated[
        Literal["proxy", "none"] | None,
        typer.Option("--links", help="What carries the links between regions; with `none` they are left alone."),
    ] = None,
    templates: options.TemplatesDirectory = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where scenarios and captures go; by default below `captures/`.")
    ] = None,
    shrinking_runs: Annotated[
        int,
        typer.Option("--shrinking-runs", help="Runs to make one failed scenario short; 0 leaves it as it is.", min=0),
    ] = 24,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the captures of runs that passed, too.")] = False,
    output: Annotated[Literal["text", "json"], typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """
    Rehearse random disasters: nothing may be lost or doubled by any of them, and regions agree in the end.

    Scenarios are composed of kills, pauses, cuts, slow links and lost leaders in any overlap, and run one after the
    other. One that fails is run again with ever fewer steps, shorter times and less load, as long as it fails: a short
    scenario file is left, to be replayed with `vstream scenario run`. Exits with 1 if a run failed, with 3 if one
    proved nothing.

    Examples: `vstream scenario explore --minutes 30 --seed 7`, `vstream scenario explore --runs 1 -t acme.yaml --keep`
    """
    from vstream.capture.verdict.verdict import Status  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import explore as view  # noqa: PLC0415
    from vstream.errors import VstreamError  # noqa: PLC0415
    from vstream.runner.explore import Bounds, Exploration, explore  # noqa: PLC0415

    lab: Lab = {}
    if links is not None:
        lab["links"] = links
    if server_version is not None:
        lab["versions"] = server_version
    if templates is not None:
        lab["templates"] = str(templates.resolve())
    compose = _composer(topology, lab)
    chosen = secrets.randbelow(2**31) if seed is None else seed
    directory = out or Path("captures") / f"explored-{chosen}-{secrets.token_hex(2)}"
    if (directory / "explored.json").exists():
        raise VstreamError(f"{directory} holds another exploration", hint="choose another directory with `--out`")
    console.print_note(f"exploring with seed {chosen}: scenarios and captures are in {directory}")
    found = Exploration(seed=chosen)
    bounds = Bounds(seconds=minutes * _MINUTE, runs=runs, shrinking_runs=shrinking_runs)
    try:
        run_to_end(
            explore(found, compose, _runner(chosen), out=directory, bounds=bounds, watcher=view.Told(), is_kept=keep)
        )
    finally:
        # Also after Ctrl-C: what has ended until then is known.
        _show(found, output)
    if found.count(Status.FAIL):
        raise typer.Exit(NO)
    if found.count(Status.UNKNOWN) or not found.runs:
        raise typer.Exit(FAILED)


def _show(found: Exploration, output: str) -> None:
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import explore as view  # noqa: PLC0415

    if output == "json":
        print_json("scenario-explore", found.as_dict())
    else:
        for one in view.table(found):
            console.stdout().print(one)


def _composer(topology: Path | None, lab: Lab) -> Callable[[int], ScenarioData]:
    """What makes a scenario of a seed, in a *lab* like that. Raises InvalidInputError if the topology is wrong."""
    from vstream import resources  # noqa: PLC0415
    from vstream.scenario.generate import generate  # noqa: PLC0415
    from vstream.syntax import yaml  # noqa: PLC0415

    file = topology or resources.scenarios() / "topologies" / f"{DEFAULT_TOPOLOGY}.yaml"
    loaded = options.load_topology(file)
    wanted, written = loaded.require(), yaml.parse(loaded.text.encode(), str(file)).data

    def composed(seed: int) -> ScenarioData:
        data = generate(wanted, written, seed, has_links=lab.get("links") != "none")
        return {**data, "lab": lab} if lab else data

    return composed


def _runner(seed: int) -> Run:
    """What runs one scenario, in a lab of its own, and judges it."""
    from vstream.capture.verdict.check import check  # noqa: PLC0415
    from vstream.runner.explore import outcome  # noqa: PLC0415
    from vstream.runner.runner import run as run_scenario  # noqa: PLC0415

    lab = f"explore-{seed}-{secrets.token_hex(2)}"

    async def run_one(scenario: Scenario, capture: Path) -> RunOutcome:
        captured = await run_scenario(scenario, capture_dir=capture, lab_name=lab, on_event=lambda _event: None)
        return outcome(check(captured, scenario.expectations))

    return run_one
