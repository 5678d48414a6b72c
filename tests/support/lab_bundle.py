"""
The smallest bundle that makes a super-cluster: for tests of the lab that must not depend on our templates.

As a program, `python -m tests.support.lab_bundle REGIONS SERVERS`, it brings lab `killed` up and reports on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from vstream.cli.asyncio_runner import run
from vstream.lab import binaries, lifecycle, ports, server_records
from vstream.lab.binaries import Program
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.start import LabSetup
from vstream.lab.state import LabDirectory, LabRecord
from vstream.servers.target_servers import TargetServers
from vstream.topology.bundle import Artifact, Bundle
from vstream.topology.model import JetStreamLimits, Naming, Ports, Region, Server, Topology
from vstream.topology.server_address import ServerAddress

NO_MAPPINGS = "# none\n"


def topology(regions: int, servers: int, name: str = "test") -> Topology:
    """*regions* regions r0, r1, … of *servers* servers each."""
    return Topology(
        name=name,
        server_version=(2, 10),
        naming=Naming.ISOLATED,
        regions=tuple(
            Region(
                name=f"r{r}",
                cluster=f"c{r}",
                servers=tuple(Server(name=f"r{r}-{s}", host=None) for s in range(servers)),
                ports=Ports(client=4222, monitor=8222, cluster=6222, gateway=7222),
                jetstream=JetStreamLimits(max_file=1 << 30, max_memory=1 << 28, store_dir=None, sync_interval=None),
            )
            for r in range(regions)
        ),
        streams=(),
    )


def stopped_lab(directory: Path) -> TargetServers:
    """A lab of three servers of which none runs."""
    place = LabDirectory("a", directory)
    place.create()
    addresses = ports.allocate(topology(3, 1).seats, 14000, place)
    programs = {address.server.name: Program(Path("nats-server"), "2.15.1") for address in addresses}
    record = LabRecord(topology="test", servers=addresses, programs=programs)
    return TargetServers(
        servers={address.server.name: address.region for address in addresses},
        clusters={address.server.name: address.cluster_name for address in addresses},
        endpoints={},
        system=None,
        lab=(place, record),
    )


def render(addresses: Sequence[ServerAddress], mappings: str = NO_MAPPINGS, extra: str = "") -> Bundle:
    """Server configurations for *addresses*, each with *extra*, and the included *mappings*."""
    configs = [
        Artifact(path=f"servers/{address.server.name}.conf", text=_config(address, addresses, extra))
        for address in addresses
    ]
    return Bundle(
        artifacts=(Artifact(path="mappings.cfg", text=mappings), *configs),
        streams=(),
        mappings=(),
        accounts=(),
        servers=tuple(addresses),
    )


def _config(address: ServerAddress, everyone: Sequence[ServerAddress], extra: str) -> str:
    lines = [
        f"server_name: {address.server.name}",
        f'listen: "{address.host}:{address.client}"',
        f'http: "{address.host}:{address.monitor}"',
        f'jetstream: {{store_dir: "{address.store_dir}", max_file_store: 1G, max_memory_store: 256M}}',
        f'log_file: "{address.log_file}"',
    ]
    cluster = address.region.replace("r", "c")
    if len(everyone) == 1:
        lines.append(f"cluster: {{name: {cluster}}}")
    else:
        routes = [a.route_url for a in everyone if a.region == address.region]
        listen = f"{address.host}:{address.cluster}"
        lines.append(f'cluster: {{name: {cluster}, listen: "{listen}", routes: {json.dumps(routes)}}}')
    regions = sorted({a.region for a in everyone})
    if len(regions) > 1:
        gateways = ", ".join(
            f"{{name: {region.replace('r', 'c')}, urls: "
            f"{json.dumps([a.gateway_url for a in everyone if a.region == region])}}}"
            for region in regions
        )
        advertise = f'advertise: "{address.host}:{address.gateway_front}", ' if address.gateway_front else ""
        lines.append(
            f'gateway: {{name: {cluster}, listen: "{address.host}:{address.gateway}", {advertise}'
            f"gateways: [{gateways}]}}"
        )
    return "\n".join([*lines, extra, 'include "../mappings.cfg"', ""])


def die_before_completing_a_record() -> None:
    """Make this process end as by kill -9 after it has spawned its first server, before it has written down which."""
    write = server_records.write

    def deadly(directory: LabDirectory, record: server_records.ServerRecord) -> None:
        if record.state == server_records.RUNNING:
            os.kill(os.getpid(), signal.SIGKILL)
        write(directory, record)

    server_records.write = deadly


async def main(regions: str, servers: str, when: str = "") -> None:
    if when == "die-before-record":
        die_before_completing_a_record()

    def report(progress: ReadinessProgress) -> None:
        print(progress.stage.name, progress.done, flush=True)  # noqa: T201

    await lifecycle.up(
        "killed",
        topology(int(regions), int(servers)),
        render,
        LabSetup(binary=binaries.find_or_fetch()),
        on_progress=report,
    )
    print("UP", flush=True)  # noqa: T201


if __name__ == "__main__":
    # As commands do: asyncio's own handler ends the loop, cleaning up included, at the second signal.
    try:
        run(main(*sys.argv[1:]))
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
