"""`vstream repair sources`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.exit_codes import NO
from vstream.cli.views import chaos as view
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import progress_bar
from vstream.health.live.refresh import Refresher, watch
from vstream.health.live.resync import resync


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait before the step-downs, and again after them.", min=1)
    ] = 120,
    wait_only: Annotated[bool, typer.Option("--wait-only", help="Only measure; do not step down leaders.")] = False,
    is_watching: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Keep watching until Ctrl-C, and refresh only streams that stand still."),
    ] = False,
    every: Annotated[float, typer.Option(help="With --watch: seconds between two checks.", min=0.2, max=3600)] = 1,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = None,
) -> None:
    """
    Make every read stream source again at once after an outage, and measure until all have caught up.

    Waits for gateways and the meta leader first. A stream that has lost a source asks again after
    10 s, then later and later. Its next leader asks at once, so each read stream's leader steps down.
    Exits with 1 unless every read stream has everything in time.

    `--watch` does it by itself, stream by stream: where nothing has arrived for two checks although
    the origin, the gateways and the meta leader are there. Otherwise it says what it waits for.

    Examples: `vstream repair sources`, `vstream repair sources acme.yaml --wait-only`, `vstream repair sources --watch`
    """
    console.set_log(log_format, is_quiet=is_quiet)
    if is_watching:
        show = view.RefreshPrinter(is_json=output == "json").show
        followed = options.FollowedTopology(
            topology, lambda newest: Refresher(newest, find_target_servers(newest, lab))
        )
        run(watch(followed.latest, every=every, on_look=show))
    loaded = options.load_topology(topology).require()
    target = find_target_servers(loaded, lab)
    with progress_bar() as bar:
        bar.add_task(f"waiting for gateways, leaders and sources: at most twice {timeout:g} s", total=None)
        result = run(resync(loaded, target, timeout=timeout, step_down=not wait_only))
    if output == "json":
        print_json("resync", view.resync_as_dict(result))
    else:
        console.print_note(f"gateways and leaders were ready after {result.waited:.1f} s")
        console.stdout().print(view.resync(result))
    if not result.is_complete:
        raise typer.Exit(NO)
