"""`vstream chaos`: faults on purpose, and their end."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos import common, links

app = typer.Typer(
    help="Faults on purpose, in a lab: each is said first, confirmed, and undone by name. "
    "On servers that are not a lab only leaders can be moved.",
    no_args_is_help=True,
)

Region = Annotated[str | None, typer.Option("--region", "-r", help="Where a virtual stream is meant.")]
System = Annotated[
    str | None, typer.Option("--system-context", help="A nats CLI context of the system account; a lab needs none.")
]
Rolled = Annotated[
    str | None, typer.Argument(help="Only this region, or this server; all, if left out.", metavar="[REGION|SERVER]")
]
LameDuck = Annotated[
    bool, typer.Option("--lame-duck", help="Send clients away before each server ends, which takes longer.")
]
RollTimeout = Annotated[float, typer.Option(help="Seconds until all must be healthy, for each server.", min=1)]
ROLL_TIMEOUT = 120.0


@app.command("kill-region")
def kill_region(
    region: Annotated[str, typer.Argument(help="The region.")],
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Kill every server of a region, as `kill -9`. Their files stay.

    Examples: `vstream chaos kill-region west`, `vstream chaos kill-region west --for 20s`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.faults import Kill  # noqa: PLC0415

    job = common.job(topology, lab, f"kill-region {region}", output, force=force)
    job.take(Kill(servers=select.servers_of_region(job.site, region)), hold, timeout)


@app.command("restart-region")
def restart_region(
    region: Annotated[str, typer.Argument(help="The region.")],
    topology: common.TopologyFile = options.DEFAULT_FILE,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Kill every server of a region and start them again at once.

    Example: `vstream chaos restart-region west`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.faults import Kill  # noqa: PLC0415

    job = common.job(topology, lab, f"restart-region {region}", output, force=force)
    job.take(Kill(servers=select.servers_of_region(job.site, region)), "0s", timeout)


@app.command("kill-server")
def kill_server(
    server: Annotated[str, typer.Argument(help="The server, such as west-1.")],
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Kill one server, as `kill -9`.

    Example: `vstream chaos kill-server west-1 --for 20s`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.faults import Kill  # noqa: PLC0415

    job = common.job(topology, lab, f"kill-server {server}", output, force=force)
    job.take(Kill(servers=select.server(job.site, server)), hold, timeout)


@app.command("kill-leader")
def kill_leader(
    stream: Annotated[str, typer.Argument(help="A physical stream, or a virtual one with --region: its write stream.")],
    region: Region = None,
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Kill the server that leads a stream, and see who leads it next.

    Examples: `vstream chaos kill-leader foo --region west`, `vstream chaos kill-leader foo-read-east --for 20s`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.faults import Kill  # noqa: PLC0415

    job = common.job(topology, lab, f"kill-leader {stream}", output, force=force)
    name = select.stream(job.topology, stream, region)
    _ = job.site.directory  # servers that are no lab are refused before anything is asked of them
    role, leader = run(select.led_stream(job.site, name))
    job = job.called(f"kill-leader {name}", select.new_stream_leader(job.site, role, leader))
    job.take(Kill(servers=select.server(job.site, leader)), hold, timeout)


@app.command("kill-meta-leader")
def kill_meta_leader(
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Kill the server that leads the JetStream meta group, and see who leads it next.

    Example: `vstream chaos kill-meta-leader --for 20s`
    """
    from vstream.chaos import (  # noqa: PLC0415
        leaders,
        select,
    )
    from vstream.chaos.faults import Kill  # noqa: PLC0415

    job = common.job(topology, lab, "kill-meta-leader", output, force=force)
    _ = job.site.directory  # servers that are no lab are refused before anything is asked of them
    leader = run(leaders.require_meta_leader(job.site))
    job = job.called(job.asked, select.new_meta_leader(job.site, leader))
    job.take(Kill(servers=select.server(job.site, leader)), hold, timeout)


@app.command("pause")
def pause(
    target: Annotated[str, typer.Argument(help="A region or a server.", metavar="REGION|SERVER")],
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Stop a server's process, or a region's, without ending it: connections stay open, nothing answers.

    Example: `vstream chaos pause west-1 --for 20s`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.faults import Pause  # noqa: PLC0415

    job = common.job(topology, lab, f"pause {target}", output, force=force)
    job.take(Pause(servers=select.region_or_server(job.site, target)), hold, timeout)


@app.command("resume")
def resume(
    target: Annotated[str | None, typer.Argument(help="What was paused; all, if left out.")] = None,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Let paused servers go on, and wait until all are healthy.

    Examples: `vstream chaos resume west-1`, `vstream chaos resume`
    """
    common.resume(lab, target, timeout, output)


@app.command("disk-full")
def disk_full(
    target: Annotated[str, typer.Argument(help="A region or a server.", metavar="REGION|SERVER")],
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Let every write of some servers fail. Healing restarts them: until then they refuse what they could not write. Linux only.

    Example: `vstream chaos disk-full west --for 20s`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.disk_full import DiskFull  # noqa: PLC0415

    job = common.job(topology, lab, f"disk-full {target}", output, force=force)
    job.take(DiskFull(servers=select.region_or_server(job.site, target)), hold, timeout)


@app.command("power-loss")
def power_loss(
    target: Annotated[str, typer.Argument(help="A region or a server.", metavar="REGION|SERVER")],
    lose: Annotated[str, typer.Option("--lose", help="How long nothing has reached the disk, such as 5s.")],
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Kill servers so that what they have stored in the last seconds is lost. It takes data, so it needs --yes-really.

    Their stores are copied first; after the time to lose they are killed, and the copies put back.

    Example: `vstream chaos power-loss west --lose 5s --yes-really --for 10s`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.power_loss import PowerLoss  # noqa: PLC0415

    seconds = common.seconds(lose, "--lose")
    job = common.job(topology, lab, f"power-loss {target} --lose {lose}", output, force=force)
    servers = select.region_or_server(job.site, target)
    job.take(PowerLoss(servers=servers, seconds=seconds), hold, timeout)


app.command("partition")(links.partition)
app.command("isolate")(links.isolate)
app.command("link")(links.link)


@app.command("step-down")
def step_down(
    stream: Annotated[str, typer.Argument(help="A physical stream, or a virtual one with --region: its write stream.")],
    region: Region = None,
    topology: common.TopologyFile = options.DEFAULT_FILE,
    force: common.Force = False,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Make the leader of a stream hand over, by the API. Also on servers that are not a lab.

    Example: `vstream chaos step-down foo --region west`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.faults import StepDown  # noqa: PLC0415

    job = common.job(topology, lab, f"step-down {stream}", output, force=force)
    name = select.stream(job.topology, stream, region)
    role, leader = run(select.led_stream(job.site, name))
    if not force:
        select.require_elector(role)
    job.hand_over(StepDown(stream=name, leader=leader))


@app.command("step-down-meta")
def step_down_meta(
    topology: common.TopologyFile = options.DEFAULT_FILE,
    force: common.Force = False,
    lab: options.LabName = None,
    system: System = None,
    output: common.Format = "text",
) -> None:
    """
    Make the JetStream meta leader hand over, by the API. Also on servers that are not a lab.

    Examples: `vstream chaos step-down-meta`, `vstream chaos step-down-meta --system-context acme-sys`
    """
    from vstream.chaos import leaders  # noqa: PLC0415
    from vstream.chaos.faults import MetaStepDown  # noqa: PLC0415

    job = common.job(topology, lab, "step-down-meta", output, force=force, system_context=system)
    job.hand_over(MetaStepDown(leader=run(leaders.require_meta_leader(job.site))))


@app.command("rolling-restart")
def rolling_restart(
    target: Rolled = None,
    topology: common.TopologyFile = options.DEFAULT_FILE,
    lame_duck: LameDuck = False,
    force: common.Force = False,
    timeout: RollTimeout = ROLL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    End and start one server after the other; the next waits until all are healthy and every stream has caught up.

    Examples: `vstream chaos rolling-restart`, `vstream chaos rolling-restart west --lame-duck`
    """
    asked = "rolling-restart" if target is None else f"rolling-restart {target}"
    job = common.job(topology, lab, asked, output, force=force)
    job.roll(target, is_lame_duck=lame_duck, timeout=timeout)


@app.command("upgrade")
def upgrade(
    to: Annotated[str, typer.Option("--to", help="The nats-server version to go to, such as 2.15.1.")],
    target: Rolled = None,
    topology: common.TopologyFile = options.DEFAULT_FILE,
    lame_duck: LameDuck = False,
    force: common.Force = False,
    timeout: RollTimeout = ROLL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    A rolling restart in which each server is started with another nats-server. It stays: there is nothing to heal.

    Examples: `vstream chaos upgrade --to 2.15.1`, `vstream chaos upgrade west --to 2.15.1`
    """
    asked = f"upgrade --to {to}" if target is None else f"upgrade {target} --to {to}"
    job = common.job(topology, lab, asked, output, force=force)
    job.roll(target, is_lame_duck=lame_duck, timeout=timeout, version=to)


@app.command("status")
def status(lab: options.LabName = None, output: common.Format = "text") -> None:
    """
    List the open faults of a lab.

    Example: `vstream chaos status --format json`
    """
    common.status(lab, output)


@app.command("heal")
def heal(
    fault: Annotated[
        str | None, typer.Argument(help="The id of a fault; all, if left out.", metavar="FAULT-ID")
    ] = None,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Undo one open fault, or all, also of a vstream that was killed; and wait until all servers are healthy.

    Examples: `vstream chaos heal`, `vstream chaos heal f2`
    """
    common.heal(lab, None if fault is None else (fault,), timeout, output)
