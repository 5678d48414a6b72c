"""`vstream probe`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import console
from vstream.cli.views import probe as view
from vstream.cli.views import status as status_view
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.cli.views.progress import progress_bar
from vstream.errors import NotReachableError
from vstream.health.live.beacons import BeaconRound, BeaconSender
from vstream.probe.pipeline import ProbeOptions, probe_each_server, probe_regions
from vstream.servers.find_servers import endpoints_as_user, find_and_trust_servers
from vstream.topology.accounts import PROBE_USER


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    stream: options.StreamNames = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", "-r", help="Only this region. Can be repeated.")
    ] = None,
    timeout: Annotated[
        float,
        # A source whose first request is lost asks again after 42 s at most (vstream.health.source_retries).
        typer.Option("--timeout", help="Seconds until a canary must have arrived everywhere.", min=0.1),
    ] = 45,
    output_format: options.TextJsonOrJunit = "text",
    forms: Annotated[
        bool, typer.Option("--forms", help="Also try every form of Direct Get and pull requests by the virtual name.")
    ] = False,
    each_server: Annotated[
        bool, typer.Option("--each-server", help="Probe through every server in turn, not one of each region.")
    ] = False,
    is_beacon: Annotated[
        bool,
        typer.Option(
            "--beacons", help="Instead: publish messages that stay, and show how old the newest of each region is."
        ),
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(help="With --beacons: seconds between two rounds, until Ctrl-C.", min=0.2, max=86_400),
    ] = None,
    lab: options.LabName = None,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = None,
) -> None:
    """
    Prove that each virtual stream works in each region: who answers, and how long a message takes to get everywhere.

    Publishes only on the `canary` subjects of the topology, and deletes what it published. It does not see what a
    stream refuses of other messages or subjects: `vstream status` does.
    `--forms` creates a consumer of its own in each region, and deletes it.
    `--each-server` finds a single server that does not work, for example after a reload that it missed.
    Exits with 1 if a check fails, and with 3 where nothing failed and not everything passed, or no region can be reached.

    A beacon is an empty message that stays in the stream until the stream's limits remove it. It goes on the `canary`
    subject of each stream whose canary has a `*`, which stands for the region. With `--beacons --every 10`, an age of
    much more than 10 s is a lag that was measured from end to end.

    Examples: `vstream probe`, `vstream probe --forms`, `vstream probe --each-server`, `vstream probe -s foo --format junit > probe.xml`,
    `vstream probe --beacons --every 10`
    """
    console.set_log(log_format, is_quiet=is_quiet)
    if is_beacon:
        other_modes = {"--stream": stream, "--region": region, "--forms": forms, "--each-server": each_server}
        options.refuse_options(
            "has no effect with --beacons", {**other_modes, "--format junit": output_format == "junit"}
        )
        send_beacons(file, lab, every=every, is_json=output_format == "json")
        return
    options.refuse_options("needs --beacons", {"--every": every})
    topology = options.check_topology_file(file).require()
    streams, regions = options.choose_streams(topology, stream), options.choose_regions(topology, region)
    if not any(set(regions) & set(virtual.regions) for virtual in topology.streams if virtual.name in streams):
        raise typer.BadParameter("no chosen stream is in any of these regions", param_hint="--region")
    servers = find_and_trust_servers(topology, lab)
    endpoints = endpoints_as_user(topology, servers, PROBE_USER)
    with progress_bar() as progress:
        task = progress.add_task("probing", total=None)
        chosen = ProbeOptions(
            streams=stream,
            regions=region,
            timeout=timeout,
            on_progress=lambda step: progress.update(task, completed=step.done, total=step.total),
            all_forms=forms,
        )
        report = run((probe_each_server if each_server else probe_regions)(topology, endpoints, chosen))
    if output_format == "json":
        print_json("probe", report.as_dict())
    elif output_format == "junit":
        typer.echo(view.to_junit(report))
    else:
        console.print_note(servers.describe_with(topology))
        console.print_lines(view.render_report(report, width=console.stdout().width))
    exit_unless_yes(is_no=report.is_fail, is_unknown=not report.is_pass)


def send_beacons(file: Path, lab: str | None, *, every: float | None, is_json: bool) -> None:
    """
    Show how old the newest beacon of each region is in each other region, then publish new ones.

    *every*: seconds between two rounds, until Ctrl-C; None for one round. Exits with 1 if a beacon could not be
    published. Raises VstreamError where no stream of the topology in *file* takes beacons.
    """
    followed = options.FollowedTopology(
        file, lambda newest: BeaconSender(newest, find_and_trust_servers(newest, lab).endpoints)
    )
    if every is not None:
        run(_repeat(followed, every, is_json=is_json))
        return
    sent = run(followed.latest().send())
    _show(sent, is_json=is_json)
    exit_unless_yes(is_no=bool(sent.problems))


async def _repeat(followed: options.FollowedTopology[BeaconSender], every: float, *, is_json: bool) -> NoReturn:
    """Rounds without end: an outage is what beacons are there to show."""
    while True:
        try:
            _show(await followed.latest().send(), is_json=is_json)
        except NotReachableError as error:
            console.print_problem(f"not published: {error.message}")
        await asyncio.sleep(every)


def _show(sent: BeaconRound, *, is_json: bool) -> None:
    if is_json:
        document = {
            "topology": sent.topology.name,
            "beacons": [sighting.as_dict() for sighting in sent.seen],
            "problems": list(sent.problems),
        }
        print_json("probe-beacons", document, layout=JsonLayout.LINE)
        return
    console.stdout().print(
        status_view.render_beacon_matrix([region.name for region in sent.topology.regions], sent.seen)
    )
    for problem in sent.problems:
        console.print_problem(f"not published: {problem}")
