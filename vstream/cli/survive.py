"""`vstream survive`."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Literal

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import console
from vstream.cli.views import scenario as scenario_view
from vstream.cli.views import survive as view
from vstream.cli.views.json_output import print_json
from vstream.lint.check_topology import CheckedTopology
from vstream.runner import survival as runner
from vstream.runner.survival import CellStatus, SurvivalRehearsal
from vstream.scenario.survival import compose_survival_scenarios
from vstream.topology.survival import Ability, Failure, SurvivalCell, survival_table


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    stream: options.StreamNames = None,
    failure: Annotated[
        list[Failure] | None, typer.Option("--failure", help="Only if this fails. Can be repeated.")
    ] = None,
    ability: Annotated[
        list[Ability] | None, typer.Option("--ability", help="Only this ability. Can be repeated.")
    ] = None,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Show or refute each cell on a lab.")] = False,
    output_path: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --rehearse: where captures go.")
    ] = None,
    server_version: Annotated[
        str | None, typer.Option("--server-version", help="With --rehearse: the nats-server, such as 2.12.8.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", help="With --rehearse: publishes per second, by default 20.", min=1)
    ] = None,
    output_format: Annotated[
        Literal["text", "markdown", "json"], typer.Option("--format", help="How the result is written.")
    ] = "text",
) -> None:
    """
    Show what each stream survives, and why: a server, a zone, a region, two regions, a partition, a loss of power.

    From the topology alone. `--rehearse` starts labs, makes each failure happen while clients
    publish and read in every region, and says which cells were shown and which were refuted.
    It takes some minutes, and exits with 1 if a cell was refuted, with 3 if one could not be measured.
    `survive` in the topology demands cells: `vstream validate` fails where they do not hold.

    Examples: `vstream survive`, `vstream survive acme.yaml --failure region --rehearse`
    """
    if not rehearse:
        chosen = {"--output": output_path, "--server-version": server_version, "--rate": rate}
        options.refuse_options("has no effect with a table from the topology alone: add `--rehearse`", chosen)
    checked = options.check_topology_file(file)
    streams = options.choose_streams(checked.require(), stream)
    cells = [cell for cell in survival_table(checked.require()) if cell.stream in streams]
    cells = [cell for cell in cells if cell.failure in (failure or Failure) and cell.ability in (ability or Ability)]
    result = _rehearse(checked, cells, output_path, server_version, rate or 20) if rehearse else None
    if output_format == "json":
        print_json("survive", view.as_dict(checked.require(), cells, result))
    elif output_format == "markdown":
        typer.echo(view.render_markdown(cells, result), nl=False)
    else:
        console.print_lines(view.render_table(cells, result))
    if result is not None:
        is_refuted = bool(result.count(CellStatus.REFUTED) or result.problems)
        is_shown = bool(result.count(CellStatus.SHOWN) and not result.count(CellStatus.UNKNOWN))
        exit_unless_yes(is_no=is_refuted, is_unknown=not is_shown)


def _rehearse(
    checked: CheckedTopology, cells: list[SurvivalCell], output_path: Path | None, version: str | None, rate: int
) -> SurvivalRehearsal:
    topology = checked.require()
    lab = f"survive-{secrets.token_hex(2)}"
    request = runner.RehearsalRequest(
        topology_text=checked.text,
        cells=cells,
        scenarios=compose_survival_scenarios(topology, cells, rate=rate),
        directory=output_path or Path("captures") / lab,
        lab=lab,
        version=version,
    )
    for line in view.describe_rehearsal(request):
        console.print_note(line)
    with scenario_view.show_run([region.name for region in topology.regions]) as on_event:
        return run(runner.rehearse(request, on_event))
