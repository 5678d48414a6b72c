"""
Whether a region is dead, so that it may be given up.

Before a failover, everybody who would know is asked (`ask_witnesses`). The region's own addresses are dialled. Every server of
the other regions that can be monitored says whether it has a gateway connection to it. And the system account of any region
is asked which servers answer. A region that is cut off from all of them looks like one that is dead: no server can tell the
two apart. `DeathReport.permits_giving_up` says what is enough.

Each plan without a region, be it after a failover or with `--lost`, asks only the region itself (`require_silent_and_unused`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from urllib.parse import urlsplit

from vstream.errors import NoRespondersError, NotReachableError, RefusedError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.answers import convert_malformed_errors, decode_object, require_text
from vstream.jetstream.connection import Reply, connect_to_system, open_connection
from vstream.jetstream.endpoints import resolve_context
from vstream.plan.context import Observed
from vstream.plan.topology_edit import require_region
from vstream.topology import physical
from vstream.topology.model import Endpoint, Region, Role, Topology
from vstream.topology.profiles import profile_of
from vstream.value_class import value_class

_PING_SUBJECT = "$SYS.REQ.SERVER.PING"
ANSWER_TIMEOUT = 3.0
"""Seconds that servers get to answer. They take milliseconds, and the slowest round trip."""
DIAL_TIMEOUT = 3.0
_ALIVE_HINT = "it is alive: `vstream region failback` brings it back; without `--lost`, `apply` waits until the others have all of it"


class DeathVerdict(Enum):
    """What follows from the answers about regions."""

    ALIVE = "alive"
    """Somebody sees one of them."""
    UNKNOWN = "unknown"
    """Nobody sees them, and not everybody could be asked."""
    DEAD = "dead"


@value_class
class DeathReport:
    """The answers about regions, one sentence each."""

    regions: tuple[str, ...]
    alive: tuple[str, ...] = ()
    """What answers there, or is connected to it."""
    silent: tuple[str, ...] = ()
    """Witnesses that do not see it."""
    unknown: tuple[str, ...] = ()
    """Witnesses that could not be asked."""

    @property
    def verdict(self) -> DeathVerdict:
        """Whether they are dead."""
        if self.alive:
            return DeathVerdict.ALIVE
        return DeathVerdict.UNKNOWN if self.unknown else DeathVerdict.DEAD

    def permits_giving_up(self, *, is_declared_dead: bool) -> bool:
        """Whether they are dead. With *is_declared_dead*, somebody knows that they are where not everybody could be asked."""
        enough = {DeathVerdict.DEAD, DeathVerdict.UNKNOWN} if is_declared_dead else {DeathVerdict.DEAD}
        return self.verdict in enough


async def ask_witnesses(
    topology: Topology,
    regions: Sequence[str],
    endpoints: Mapping[str, Endpoint],
    witnesses: Collection[str],
    system: Mapping[str, Endpoint],
) -> DeathReport:
    """
    What *regions* say, and the *witnesses*, other regions, over *endpoints* and the *system* account, both by region.

    A region counts as asked if one of its servers has said what it is connected to, or has answered on the system account.
    """
    clusters, problem = await _ask_system(system)
    reports = [await _ask_about(topology, region, endpoints, witnesses, clusters, problem) for region in regions]
    return DeathReport(
        regions=tuple(regions),
        alive=tuple(dict.fromkeys(sentence for report in reports for sentence in report.alive)),
        silent=tuple(dict.fromkeys(sentence for report in reports for sentence in report.silent)),
        unknown=tuple(dict.fromkeys(sentence for report in reports for sentence in report.unknown)),
    )


async def _ask_about(
    topology: Topology,
    name: str,
    endpoints: Mapping[str, Endpoint],
    witnesses: Collection[str],
    clusters: Mapping[str, str],
    problem: str | None,
) -> DeathReport:
    """What everybody says of region *name*. *clusters* are those of the servers that answer on the system account, by name."""
    region = require_region(topology, name)
    itself = await ask_region(region.name, endpoints.get(region.name))
    names = _select_servers(topology, region, clusters)
    alive = [*itself.alive, *(f"server `{server}` answers on the system account" for server in names)]
    silent, unknown = [*itself.silent], [*itself.unknown]
    linked = f"has a gateway connection to `{region.name}`"
    for witness in witnesses:
        connected, asked = await _ask_gateways(region.cluster, endpoints.get(witness))
        alive += [f"server `{server}` in `{witness}` {linked}" for server in connected]
        heard = _select_servers(topology, require_region(topology, witness), clusters)
        if asked and not connected:
            silent.append(f"`{witness}`: none of its {len(asked)} servers {linked}")
        elif heard and not names:
            silent.append(
                f"`{witness}`: {len(heard)} of its servers answer on the system account, and none of `{region.name}`"
            )
        elif not connected and not names:
            reason = f"no monitoring address answers, and the system account {problem or 'has none of its servers'}"
            unknown.append(f"`{witness}`: {reason}")
    return DeathReport(regions=(region.name,), alive=tuple(alive), silent=tuple(silent), unknown=tuple(unknown))


def _select_servers(topology: Topology, region: Region, clusters: Mapping[str, str]) -> list[str]:
    """Those of the servers heard, each with its cluster, that are in *region*."""
    members = topology.server_names_in(region.name)
    return sorted(server for server, cluster in clusters.items() if cluster == region.cluster or server in members)


async def ask_region(region: str, endpoint: Endpoint | None) -> DeathReport:
    """What the addresses of *region* itself say."""
    report = DeathReport(regions=(region,))
    if endpoint is None:
        return replace(report, silent=(f"`{region}`: no address of it is known any more",))
    endpoint = resolve_context(endpoint) if endpoint.context else endpoint
    names = await asyncio.gather(*(read_server_name(url) for url in endpoint.monitor))
    report = replace(
        report, alive=tuple(f"server `{name}` answers at its monitoring address" for name in names if name)
    )
    try:
        connection = await open_connection(endpoint, region)
    except NotReachableError as error:
        # Whoever refuses us, or answers something else, may be alive and serve others.
        if any(await asyncio.gather(*map(is_listening, (*endpoint.urls, *endpoint.monitor)))):
            return replace(report, unknown=(f"{error.message}, and something listens there",))
        return replace(report, silent=(error.message,))
    except VstreamError as error:  # a password that is missing says nothing about the servers
        return replace(report, unknown=(f"`{region}`: {error.message}",))
    await connection.close()
    return replace(report, alive=(*report.alive, f"server `{connection.server_name}` takes connections"))


async def require_silent_and_unused(
    topology: Topology, regions: Sequence[str], endpoints: Mapping[str, Endpoint], observed: Observed
) -> None:
    """
    Raises RefusedError if anything in *regions* still answers, or if the topology wants streams there.

    Each plan without them asks only themselves: whether they are dead was asked of all, or declared, before they were given up.
    """
    if regions and not profile_of(topology).has_every_operation:
        raise RefusedError(f"a region cannot be given up with `routing: {topology.routing.value}` yet")
    for region in regions:
        used = [stream.name for stream in topology.streams if region in stream.regions]
        if used:
            raise RefusedError(
                f"the topology still has `{used[0]}` in region `{region}`",
                hint="take the region out of the streams' `regions`, or out of the topology, first",
            )
        report = await ask_region(region, endpoints.get(region))
        if report.verdict is DeathVerdict.ALIVE:
            raise RefusedError(f"region `{region}` is not dead: {report.alive[0]}", hint=_ALIVE_HINT)
        for stream in topology.streams:
            for role in (Role.WRITE, Role.READ):
                if (name := physical.physical_name(stream, role, region)) in observed.streams:
                    raise RefusedError(f"region `{region}` is not dead: stream `{name}` answers", hint=_ALIVE_HINT)


async def is_listening(url: str) -> bool:
    """Whether somebody takes connections there: a server that does not answer, or not us, is alive."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        async with asyncio.timeout(DIAL_TIMEOUT):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    return True


async def read_server_name(url: str) -> str | None:
    """The name of the server that answers at a monitoring address."""
    try:
        return (await monitoring.read_varz(url)).server_name
    except VstreamError:
        return None


async def _ask_gateways(cluster: str, endpoint: Endpoint | None) -> tuple[list[str], list[str]]:
    """The servers that are connected to *cluster*, and all that have said what they are connected to."""

    async def ask(url: str) -> tuple[str, bool] | None:
        try:
            varz, gateways = await asyncio.gather(monitoring.read_varz(url), monitoring.read_gateway_bytes(url))
        except VstreamError:
            return None
        return varz.server_name, cluster in gateways

    answers = await asyncio.gather(*(ask(url) for url in (endpoint.monitor if endpoint else ())))
    asked = [answer for answer in answers if answer is not None]
    return [server for server, is_connected in asked if is_connected], [server for server, _ in asked]


async def _ask_system(system: Mapping[str, Endpoint]) -> tuple[dict[str, str], str | None]:
    """The cluster of each server that answers, by name; and why it is not known, or nobody is asked."""
    if not system:
        return {}, "has no user under `connect`"
    clusters: dict[str, str] = {}

    def note(answer: Reply) -> bool:
        with convert_malformed_errors(_PING_SUBJECT):
            server = decode_object(answer.data, _PING_SUBJECT)["server"]
            clusters[require_text(server["name"])] = require_text(server.get("cluster") or "")
        return False

    try:
        connection = await connect_to_system(system)
    except VstreamError as error:
        return {}, f"cannot be asked ({error.message})"
    try:
        await connection.request_many(_PING_SUBJECT, is_last=note, timeout=ANSWER_TIMEOUT)
    except NoRespondersError:
        return {}, "is not that of the user under `connect.….system`"
    except NotReachableError:
        pass  # nobody says which answer is the last
    finally:
        await connection.close()
    return clusters, None
