"""A complete probe: every hop of the selected streams and regions, with as many parallel requests as servers like."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, TypeVar

from vstream.errors import LoginRefusedError, NotReachableError, VstreamError
from vstream.jetstream.connection import REQUEST_TIMEOUT, Connection
from vstream.jetstream.endpoints import resolve_context
from vstream.jetstream.region_connections import connect_all
from vstream.probe import direct_get_forms, hops, pull_requests
from vstream.probe.canaries import CanaryFlight
from vstream.probe.cleanup import Cleanup
from vstream.probe.read_your_writes import METHODS
from vstream.probe.report import Check, CheckKind, CheckStatus, ProbeReport, Progress, join_reports, name_servers
from vstream.probe.retry import Budget
from vstream.probe.stream_info import read_stream_names
from vstream.probe.target import ProbeTarget
from vstream.topology import naming
from vstream.topology.model import Endpoint, Role, Topology, VirtualStream
from vstream.topology.physical import physical_name
from vstream.topology.profiles import profile_of
from vstream.topology.replication import list_physical_streams, physical_streams
from vstream.value_class import value_class

_Result = TypeVar("_Result")

_MAX_PARALLEL_REQUESTS = 32
"""Number of parallel requests: more make servers slower, not faster."""
_FORMS_TIMEOUT = 15.0
"""Seconds for all forms of one stream, whatever is left until the deadline. They need 2 s."""
_NO_CANARY = "no canary: the topology names no canary subject for it"


@value_class
class ProbeOptions:
    """What is probed, of the names in the topology or all of them, and for how long."""

    timeout: float
    """Seconds from now. What has no answer by then is unknown; forms have 15 s in any case."""
    on_progress: Callable[[Progress], None] = lambda _progress: None
    """Called as each check ends."""
    streams: Sequence[str] | None = None
    regions: Sequence[str] | None = None
    all_forms: bool = False
    """Whether to try every form of Direct Get and of pull requests too, while the canaries are there."""


async def probe_regions(topology: Topology, endpoints: Mapping[str, Endpoint], options: ProbeOptions) -> ProbeReport:
    """Connect to *endpoints*, by region, and probe."""
    async with connect_all(topology, endpoints) as connections:
        return await run_probe(topology, connections, options)


async def probe_each_server(
    topology: Topology, endpoints: Mapping[str, Endpoint], options: ProbeOptions
) -> ProbeReport:
    """As `probe_regions`, once through every address. Each check names its server, or the address that does not answer."""
    reports = []
    for alone in _split_by_server(endpoints):
        async with connect_all(topology, alone) as connections:
            asked = {region: _name_server(connections.get(region), endpoint) for region, endpoint in alone.items()}
            reports.append(name_servers(await run_probe(topology, connections, options), asked))
    return join_reports(reports)


def _split_by_server(endpoints: Mapping[str, Endpoint]) -> list[dict[str, Endpoint]]:
    """*endpoints* with one address for each region, as often as it takes to have had every address."""
    reachable = {region: resolve_context(at) if at.context else at for region, at in endpoints.items()}
    reachable = {region: at for region, at in reachable.items() if at.urls}
    number = max((len(endpoint.urls) for endpoint in reachable.values()), default=1)
    rounds = []
    for turn in range(number):
        rounds.append({region: replace(at, urls=(at.urls[turn % len(at.urls)],)) for region, at in reachable.items()})
    return rounds


def _name_server(connection: Connection | NotReachableError | None, endpoint: Endpoint) -> str:
    return connection.server_name if isinstance(connection, Connection) else ", ".join(endpoint.urls)


async def run_probe(
    topology: Topology, connections: Mapping[str, Connection | NotReachableError], options: ProbeOptions
) -> ProbeReport:
    """
    Probe what *options* say, and report every check in the order of the topology.

    *connections* are by region; where one could not be made, its error stands in its place and is reported. Cleaning up
    canaries may take `cleanup.CLEANUP_TIMEOUT` seconds more for each batch of streams. Where the task is cancelled, canaries are
    removed first: the checks of that cleanup are told, too.

    Raises VstreamError for a stream or region that the topology does not have.
    What goes wrong on servers is in the report, never raised.
    """
    chosen_streams = _select("stream", options.streams, {stream.name: stream for stream in topology.streams})
    chosen_regions = _select("region", options.regions, {region.name: region.name for region in topology.regions})
    probe = _Probe(topology, connections, chosen_regions, options)
    checks = await probe.run(chosen_streams)
    return ProbeReport(topology=topology.name, regions=tuple(chosen_regions), checks=checks)


class _Probe:
    def __init__(
        self,
        topology: Topology,
        connections: Mapping[str, Connection | NotReachableError],
        regions: Sequence[str],
        options: ProbeOptions,
    ) -> None:
        self._topology = topology
        self._options = options
        self._reached: dict[str, Connection] = {}
        self._unreached: dict[str, NotReachableError] = {}
        for region, connection in connections.items():
            if isinstance(connection, NotReachableError):
                self._unreached[region] = connection
            else:
                self._reached[region] = connection
        self._regions = regions
        self._deadline = time.monotonic() + options.timeout
        self._run_id = secrets.token_hex(8)
        self._checks: list[Check] = []
        self._total = 0
        self._names: asyncio.Task[list[str]] | None = None
        # By region: one that answers slowly must not keep others from being asked.
        each = max(1, _MAX_PARALLEL_REQUESTS // max(1, len(regions)))
        self._slots = {region: asyncio.Semaphore(each) for region in regions}
        streams = max(1, _MAX_PARALLEL_REQUESTS // max(1, len(regions)) ** 2)
        self._canary_slots, self._cleanup_slots = asyncio.Semaphore(streams), asyncio.Semaphore(streams)

    async def run(self, streams: Sequence[VirtualStream]) -> tuple[Check, ...]:
        self._total = sum(self._count_checks(stream) for stream in streams)
        async with asyncio.TaskGroup() as tasks:
            asking = [
                tasks.create_task(self._walk(stream, region)) for stream in streams for region in self._pick(stream)
            ]
            if asking:
                # Canaries are timed, so they fly when it is quiet; but no region that hangs may keep them for ever.
                await asyncio.wait(asking, timeout=max(0.0, self._deadline - time.monotonic()) / 2)
            for stream in streams:
                tasks.create_task(self._send_canaries(stream))
        return self._sort_checks(streams)

    def _pick(self, stream: VirtualStream) -> list[str]:
        """The chosen regions of *stream*."""
        return [region for region in self._regions if region in stream.regions]

    def _count_checks(self, stream: VirtualStream) -> int:
        """The number of checks to expect."""
        regions = self._pick(stream)
        reached = [region for region in regions if region in self._reached]
        tried = (direct_get_forms.NUMBER + len(pull_requests.NAMES)) if self._options.all_forms else 0
        checks = len(regions) - len(reached) + len(reached) * (len(stream.subjects) + 2 + tried)
        if _explain_lack_of_canary(stream) is not None:
            return checks + 1
        # Every pair; and for what is reached a publish and its removal, if anything is, and each copy's.
        copies = sum(part.role in {Role.READ, Role.ORDER} for part in physical_streams(stream))
        return checks + len(regions) ** 2 + (2 + len(METHODS)) * len(reached) + (copies if reached else 0)

    def _report(self, checks: Iterable[Check]) -> None:
        for check in checks:
            self._checks.append(check)
            done = len(self._checks)
            self._options.on_progress(Progress(check=check, done=done, total=max(self._total, done)))

    async def _walk(self, stream: VirtualStream, region: str) -> None:
        target = self._target(stream, region)
        if target is None:
            error = self._unreached.get(region)
            detail = error.message if error else f"region `{region}`: there is no connection to it"
            hint = error.hint if error else "`connect` in the topology says how a region is reached"
            is_refused = isinstance(error, LoginRefusedError)
            check = Check(
                stream=stream.name,
                region=region,
                kind=CheckKind.CONNECTION,
                status=CheckStatus.UNKNOWN if is_refused else CheckStatus.FAILED,
                detail=detail,
                hint=hint,
            )
            self._report([check])
            return
        async with self._slots[region]:
            for pattern in stream.subjects:
                self._report([await hops.probe_mapping(target, pattern)])
            check, facts = await hops.probe_stream_info(target)
            self._report([check])
            self._report([await hops.probe_direct_get(target, facts)])

    async def _send_canaries(self, stream: VirtualStream) -> None:
        reason = _explain_lack_of_canary(stream)
        if reason is not None:
            detail, hint = reason
            check = Check(
                stream=stream.name,
                region=None,
                kind=CheckKind.CANARY,
                status=CheckStatus.SKIPPED,
                detail=detail,
                hint=hint,
            )
            self._report([check])
            if self._options.all_forms:
                await self._ask_all(self._targets(stream), None)
            return
        regions = self._pick(stream)
        targets = self._targets(stream)
        if not targets:
            self._report(_skip_unpaired(stream, regions, targets))
            return
        flight = CanaryFlight(targets, self._run_id)
        cleanup = Cleanup(self._topology, stream, flight, self._reached, partial(self._list_left_out, stream))
        try:
            await flight.publish_and_follow(self._canary_slots)
            if self._options.all_forms:
                await self._ask_all(targets, flight)
        except BaseException:
            cleaned, _ = await _run_shielded(cleanup.run(self._cleanup_slots))
            self._report(cleaned)
            raise
        cleaned, interruption = await _run_shielded(cleanup.run(self._cleanup_slots))
        self._report([*flight.checks(), *_skip_unpaired(stream, regions, targets), *cleaned])
        if interruption is not None:
            raise interruption

    async def _list_left_out(self, stream: VirtualStream) -> list[str]:
        """The regions in which *stream* has a read stream by its physical name, and which the topology does not have."""
        if not profile_of(stream).has_physical_names:
            return []
        if self._names is None:
            connection = next(iter(self._reached.values()))
            self._names = asyncio.create_task(read_stream_names(connection, REQUEST_TIMEOUT))
        prefix = physical_name(stream, Role.READ, "")
        strange = set(await self._names) - {part.name for part in list_physical_streams(self._topology)}
        return sorted(name.removeprefix(prefix) for name in strange if name.startswith(prefix))

    async def _ask_all(self, targets: Mapping[str, ProbeTarget], flight: CanaryFlight | None) -> None:
        """Every form in each region, of the canaries of *flight* where there are any: also after a canary that never came."""
        until = max(self._deadline, time.monotonic() + _FORMS_TIMEOUT)
        async with asyncio.TaskGroup() as tasks:
            for target in targets.values():
                tasks.create_task(self._ask(replace(target, deadline=until), flight))

    async def _ask(self, target: ProbeTarget, flight: CanaryFlight | None) -> None:
        async with self._slots[target.region]:
            reader = flight.readers[target.region] if flight else None
            facts = reader.facts if reader else None
            canary = flight.canaries[target.region] if reader and flight and target.region in reader.seen else None
            budget = Budget()
            self._report(
                await direct_get_forms.probe_direct_get_forms(target, facts, canary.subject if canary else None, budget)
            )
            subject, from_seq = target.stream.canary or direct_get_forms.NOWHERE, facts.last_seq + 1 if facts else 1
            arrived = len(reader.seen) if reader else 0
            self._report(
                await pull_requests.probe_pull_requests(target, subject, from_seq, arrived, self._run_id, budget)
            )

    def _targets(self, stream: VirtualStream) -> dict[str, ProbeTarget]:
        """By region, those of the chosen regions of *stream* that are reached."""
        return {region: target for region in self._pick(stream) if (target := self._target(stream, region)) is not None}

    def _target(self, stream: VirtualStream, region: str) -> ProbeTarget | None:
        connection = self._reached.get(region)
        if connection is None:
            return None
        return ProbeTarget(
            topology=self._topology, stream=stream, region=region, connection=connection, deadline=self._deadline
        )

    def _sort_checks(self, streams: Sequence[VirtualStream]) -> tuple[Check, ...]:
        by_stream = {stream.name: index for index, stream in enumerate(streams)}
        by_region = {region.name: index for index, region in enumerate(self._topology.regions)}
        by_kind = {kind: index for index, kind in enumerate(CheckKind)}

        def key(check: Check) -> tuple[int, int, int, int]:
            # The sort is stable: several subjects of one stream keep their order.
            return (
                by_stream[check.stream],
                by_kind[check.kind],
                by_region.get(check.origin or "", -1),
                by_region.get(check.region or "", -1),
            )

        return tuple(sorted(self._checks, key=key))


def _explain_lack_of_canary(stream: VirtualStream) -> tuple[str, str] | None:
    """Why *stream* gets no canaries, and what to do about it; None if it does get some."""
    if stream.is_bucket:
        return "no canary: in a bucket it would be somebody's key or object", "a stream of its own for canaries"
    if any(part.fields.get("allow_msg_counter") for part in physical_streams(stream)):
        return "no canary: servers refuse messages that are not increments", "a stream of its own for canaries"
    if stream.canary is None:
        return _NO_CANARY, _suggest_canary(stream)
    if any(part.fields.get("deny_delete") for part in physical_streams(stream)):
        return (
            "no canary: it could never be removed from a stream with `deny_delete`",
            "a stream of its own for canaries",
        )
    return None


def _suggest_canary(stream: VirtualStream) -> str:
    for pattern in stream.subjects:
        if any(map(naming.is_wildcard, pattern.split("."))):
            subject = naming.probe_subject(pattern).replace("_vstream_probe", "_canary")
            example = f"{subject}.*" if pattern.endswith(">") else subject
            return (
                f"`canary: {example}` in the topology lets probes publish there; a `*` stands for the region of origin"
            )
    return "give the stream a subject for canaries, and name it as its `canary` in the topology"


def _skip_unpaired(stream: VirtualStream, regions: Sequence[str], targets: Mapping[str, ProbeTarget]) -> list[Check]:
    """The pairs of regions that no canary could be tried for."""
    checks: list[Check] = []
    for origin, reader in product(regions, regions):
        if origin in targets and reader in targets:
            continue
        unreached = origin if reader in targets else reader
        checks.append(
            Check(
                stream=stream.name,
                region=reader,
                kind=CheckKind.CANARY,
                origin=origin,
                status=CheckStatus.SKIPPED,
                detail=f"there is no connection to region `{unreached}`",
            )
        )
    return checks


def _select(kind: str, names: Sequence[str] | None, results: Mapping[str, _Result]) -> list[_Result]:
    """The values of *results* that *names* lists, or all, in the order of the topology."""
    unknown = [name for name in names or () if name not in results]
    if unknown:
        raise VstreamError(
            f"the topology has no {kind} `{unknown[0]}`", hint=f"its {kind}s: {', '.join(results) or 'none'}"
        )
    return [value for name, value in results.items() if names is None or name in names]


async def _run_shielded(work: Coroutine[Any, Any, _Result]) -> tuple[_Result, asyncio.CancelledError | None]:
    """Finish *work* even if this task is cancelled, repeatedly. Returns the cancellation, to be raised afterwards."""
    task = asyncio.ensure_future(work)
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            interruption = error
    return task.result(), interruption
