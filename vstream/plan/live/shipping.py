"""Bring rendered files to real servers: the user's command ships them, and a reload loads them."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vstream.errors import VstreamError
from vstream.plan.live.reload import RemoteReload, ShippedMappings
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.plan.plan import ACCOUNT, Plan
from vstream.plan.port import MappingAdmin
from vstream.render.write_bundle import write_bundle
from vstream.topology.bundle import ServerAddress, loaded_path
from vstream.topology.model import Endpoint
from vstream.topology.profiles import profile_of
from vstream.value_class import value_class

_SHIPPING = 300.0
"""Seconds that the command gets for one server."""


@value_class
class Shipping:
    """What `apply` was told about files."""

    command: str | None
    """Run for each server, with `{server}`, `{host}`, `{region}` and `{directory}` filled in."""
    loaded_timeout: float | None
    """Seconds to wait until rules are loaded that somebody else has servers load."""


def shipped_mappings(request: PlanRequest, plan: Plan, shipping: Shipping) -> MappingAdmin | None:
    """How servers come to load what is planned; None where only whoever runs them can make them. Raises VstreamError."""
    servers = [server for server in request.bundle.servers if server.region not in request.lost]
    living = {region: endpoint for region, endpoint in request.endpoints.items() if region not in request.lost}
    system = {region: endpoint.system for region, endpoint in living.items() if endpoint.system is not None}
    if shipping.command is not None:
        fill_in(
            shipping.command, servers[0], Path("directory")
        )  # what is wrong with it is said before anything is done
    names = {server.server.name for server in servers if not server.is_hub}
    if shipping.command is not None and names <= {*plan.unknown_servers}:
        raise VstreamError(
            "nobody could read what servers have loaded, so nothing would be shipped",
            hint="list the `monitor` of every server under `connect`, or apply without `--ship-with`",
        )
    if not system and shipping.loaded_timeout is None:
        if shipping.command is not None:
            raise VstreamError(
                "files would be shipped, but no server would load them",
                hint="name a user of the system account (`system` under `connect`), or pass `--wait-loaded SECONDS`",
            )
        return None
    times = 2 if any(rule.kind == ACCOUNT and rule.before is None for rule in plan.rules) else 1
    return ShippedMappings(
        ship=_make_shipper(request, servers, shipping.command) if shipping.command is not None else None,
        reloads=_plan_reloads(request, servers, system, times) if system else (),
        missing=lambda: _read_missing(request),
        patience=shipping.loaded_timeout,
    )


def _plan_reloads(
    request: PlanRequest, servers: Sequence[ServerAddress], system: Mapping[str, Endpoint], times: int
) -> tuple[RemoteReload, ...]:
    """One for all servers, or one for each region where regions are systems of their own. Hubs are not reloaded."""
    names: dict[str, list[str]] = defaultdict(list)
    is_apart = profile_of(request.topology).has_domains
    for server in servers:
        if not server.is_hub:
            names[server.region if is_apart else ""].append(server.server.name)
    if missing := [region for region in names if region and region not in system]:
        raise VstreamError(
            f"`connect.{missing[0]}` has no `system`: with this `routing` each region has a system account of its own",
            hint="name a user of the system account in every region, or in none",
        )
    reloads = []
    for region, members in names.items():
        reloads.append(RemoteReload({region: system[region]} if region else system, members, times=times))
    return tuple(reloads)


async def _read_missing(request: PlanRequest) -> dict[str, list[str]]:
    """The sources of rules and account entries that each server has not loaded as planned, by its name."""
    missing: dict[str, list[str]] = defaultdict(list)
    plan = await make_plan(request)
    for rule in plan.rules:
        for server in rule.servers:
            missing[server].append(rule.source)
    for server in plan.unread_servers:
        missing[server] = []
    return missing


def _make_shipper(request: PlanRequest, servers: Sequence[ServerAddress], command: str) -> Callable[[], None]:
    def ship() -> None:
        with tempfile.TemporaryDirectory(prefix="vstream-ship-") as name:
            directory = Path(name) / "bundle"
            # Nothing else: servers refuse to reload other gateways, and a new region is in the configuration of all.
            loaded = loaded_path(request.topology)
            write_bundle([artifact for artifact in request.bundle.artifacts if artifact.path == loaded], directory)
            for server in servers:
                _run(fill_in(command, server, directory), server.server.name)

    return ship


def fill_in(command: str, server: ServerAddress, directory: Path) -> list[str]:
    """The words of *command* for one server. Raises VstreamError for what it does not know."""
    values = {
        "server": server.server.name,
        "host": server.host,
        "region": server.region,
        "directory": str(directory),
    }
    try:
        words = [word.format_map(values) for word in shlex.split(command)]
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        raise VstreamError(
            f"`--ship-with` cannot be read: {error}", hint="it knows {server}, {host}, {region} and {directory}"
        ) from None
    if not words:
        raise VstreamError("`--ship-with` has no command", hint="such as 'rsync -r {directory}/ {host}:/etc/nats/'")
    return words


def _run(words: Sequence[str], server: str) -> None:
    try:
        ran = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SHIPPING, check=False
        )
    except subprocess.TimeoutExpired:
        raise VstreamError(f"`{words[0]}` for server `{server}` did not end within {_SHIPPING:g} s") from None
    except OSError as error:
        raise VstreamError(f"`{words[0]}` cannot be run: {error.strerror}", hint="check `--ship-with`") from None
    if ran.returncode:
        lines = (ran.stderr or ran.stdout).strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        raise VstreamError(
            f"shipping to server `{server}` failed with {ran.returncode}{reason}",
            hint="nothing was reloaded; fix it and apply again",
        )
