"""
What is wrong in a snapshot, one line for each cause; and what could not be seen.

The doctor's checks decide whether something is wrong, and have its code: here it is said for all streams at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vstream.formatting import format_duration, summarize_names
from vstream.health.doctor import CHECKS, servers, sourcing, streams
from vstream.health.doctor.check import DoctorCheck, LiveSystem
from vstream.health.loaded_mappings import LoadedMappings, list_serving
from vstream.health.pairs import is_unmeasured
from vstream.health.snapshot import RegionSnapshot, Snapshot
from vstream.health.status import AssessedPair, PairState, Problem, RegionStatus
from vstream.topology.model import Topology
from vstream.topology.replication import PhysicalStream, list_physical_streams

_PAIR_CHECKS = {
    PairState.BEHIND: sourcing.stuck_source,  # which waits longer: a busy link is behind for some seconds
    PairState.SILENT: sourcing.dead_source,
    PairState.ROLLED_BACK: sourcing.rolled_back,
    PairState.LOSSY: sourcing.lost_to_retention,
}
"""The check that explains each state of a pair."""


def find_problems(system: LiveSystem, regions: Sequence[RegionStatus]) -> Iterator[Problem]:
    """Everything that is wrong. What follows from a region being down is not reported again."""
    topology, snapshot, loaded, pairs = system.topology, system.snapshot, system.loaded, system.pairs
    physical = list_physical_streams(topology)
    down = {region.name for region in regions if _is_down(region)}
    for region, seen in zip(regions, snapshot.regions, strict=True):
        if region.name in down:
            yield _describe_down(region, [pair for pair in pairs if pair.reader_place == region.name])
        else:
            yield from _list_region_problems(snapshot, region, seen)
    for difference in loaded.differences():
        differs = servers.half_reloaded if difference.is_partial else servers.other_rules
        yield Problem(about=", ".join(difference.servers), text=difference.evidence, code=differs.code)
    for token in loaded.foreign_tokens:
        yield Problem(about=", ".join(token.accounts), text=token.evidence, code=servers.foreign_account.code)
    for check in CHECKS:
        if check.is_in_status:
            for issue in check.find_issues(system):
                yield Problem(about=issue.about, text=issue.evidence, code=check.code)
    yield from _list_stream_problems([stream for stream in physical if stream.place not in down], snapshot)
    yield from _list_fragile(topology, physical, snapshot)
    yield from _list_pair_problems(snapshot, pairs, down)
    yield from _list_consumer_problems(system)


def find_unknown(system: LiveSystem, regions: Sequence[RegionStatus]) -> Iterator[Problem]:
    """What could not be checked: regions without a connection, how far readers are, and what servers have loaded."""
    topology, snapshot = system.topology, system.snapshot
    for region in regions:
        if region.problem is not None and not _is_down(region) and not _list_silent_servers(snapshot, region):
            yield Problem(about=region.name, text=region.problem, code=servers.unreachable_region.code)
    unmeasured = [pair for pair in system.pairs if is_unmeasured(pair, snapshot)]
    if unmeasured:
        more = f" (and {len(unmeasured) - 1:,} more)" if len(unmeasured) > 1 else ""
        yield Problem(about=topology.name, text=f"{unmeasured[0].detail}{more}", code=sourcing.unmeasured_lag.code)
    yield from _list_unknown_mappings(topology, snapshot, system.loaded)


def _list_unknown_mappings(topology: Topology, snapshot: Snapshot, loaded: LoadedMappings) -> Iterator[Problem]:
    if loaded.problem is not None:
        yield Problem(about=topology.name, text=f"the loaded mapping rules are not known: {loaded.problem}")
        return
    for region in topology.regions:
        serving = list_serving(topology, region.name, snapshot.servers)
        unknown = [server for server in serving if server.may_serve and loaded.is_ok(server.name) is None]
        if unknown:
            why = next((server.rules_problem for server in unknown if server.rules_problem), None)
            names = summarize_names([server.name for server in unknown])
            yield Problem(
                about=region.name,
                text=f"the mapping rules that {names} loaded are not known: "
                + (why or "no address under `monitor` leads there (`vstream probe` tries whether publishing works)"),
                code=servers.unread_server.code,
            )


def _is_down(region: RegionStatus) -> bool:
    """Whether nothing in the region answers: no client port, no monitoring port, and no stream has a leader."""
    return region.problem is not None and not region.reached and not region.led


def _describe_down(region: RegionStatus, pairs: Sequence[AssessedPair]) -> Problem:
    """One line for a region that does not answer at all."""
    worst = min((pair.lossy_in for pair in pairs if pair.lossy_in is not None), default=None)
    left = "" if worst is None else f"; messages are lost in {format_duration(worst)}"
    silent = "its server does not answer" if region.servers == 1 else f"none of its {region.servers} servers answers"
    text = f"{region.problem}; {silent}{left}"
    return Problem(about=f"{region.name} is down", text=text, code=servers.unreachable_region.code)


def _list_region_problems(snapshot: Snapshot, region: RegionStatus, seen: RegionSnapshot) -> Iterator[Problem]:
    if silent := _list_silent_servers(snapshot, region):
        texts = [] if region.problem is None else [region.problem]
        texts.append(f"{len(silent)} of {region.servers} servers do not answer: {summarize_names(silent)}")
        fails = servers.unreachable_region if region.problem else servers.server_away
        yield Problem(about=region.name, text="; ".join(texts), code=fails.code)
    if region.problem is None and seen.control is not None:
        yield Problem(
            about=region.name,
            text=f"JetStream API unavailable ({seen.control}): no new consumers, streams or changes from there; "
            "publishing, Direct Get and existing consumers work without it",
            code=servers.no_meta_leader.code,
        )


def _list_silent_servers(snapshot: Snapshot, region: RegionStatus) -> list[str]:
    return [server.name for server in snapshot.silent_servers if server.region == region.name]


def _list_stream_problems(physical: Sequence[PhysicalStream], snapshot: Snapshot) -> Iterator[Problem]:
    absent, leaderless = streams.list_absent(physical, snapshot), streams.list_leaderless(physical, snapshot)
    yield from _say_once(absent, "stream does not exist", "streams do not exist", streams.no_stream)
    yield from _say_once(leaderless, "stream has no leader", "streams have no leader", streams.no_leader)
    silent = streams.list_silent(physical, snapshot)
    yield from _say_once(silent, "stream does not answer", "streams do not answer", streams.no_leader)


def _say_once(names: Sequence[str], singular: str, plural: str, check: DoctorCheck) -> Iterator[Problem]:
    """One problem for all *names*; none if there are none."""
    if names:
        about = f"1 {singular}" if len(names) == 1 else f"{len(names):,} {plural}"
        yield Problem(about=about, text=summarize_names(names), code=check.code)


def _list_fragile(topology: Topology, physical: Sequence[PhysicalStream], snapshot: Snapshot) -> Iterator[Problem]:
    """Streams that work, but survive fewer failures than in the topology."""
    few: dict[str, list[str]] = {}
    for stream, observed, planned in streams.list_made_smaller(physical, snapshot):
        few.setdefault(f"{observed.replicas} of {planned} replicas", []).append(stream.name)
    silent = {server.name for server in snapshot.silent_servers}
    hurt = {seat.cluster for seat in topology.seats if seat.server.name in silent}
    for stream, observed in streams.list_outdated(physical, snapshot):
        # A server that does not answer is told already, and so is a stream without a leader.
        if observed.leader is not None and topology.cluster_at(stream.place) not in hurt:
            few.setdefault(f"{observed.current} of {observed.replicas} replicas up to date", []).append(stream.name)
    for share, names in few.items():
        yield from _say_once(names, f"stream has {share}", f"streams have {share}", streams.few_replicas)


def _list_pair_problems(snapshot: Snapshot, pairs: Sequence[AssessedPair], down: set[str]) -> Iterator[Problem]:
    """One problem per state and pair of places, for the worst pair."""
    groups: dict[tuple[str, str, PairState], list[AssessedPair]] = {}
    for pair in pairs:
        if pair.state is PairState.OK or down & {pair.origin_place, pair.reader_place}:
            continue
        if is_unmeasured(pair, snapshot):
            continue  # it is not known whether anything is wrong
        # Streams that do not answer are a problem of their own, and one is enough.
        is_told = pair.origin not in snapshot.streams or (pair.reader not in snapshot.streams and pair.lossy_in is None)
        if not is_told:
            groups.setdefault((pair.origin_place, pair.reader_place, pair.state), []).append(pair)
    for (origin, reader, state), group in groups.items():
        worst = max(group, key=lambda pair: pair.badness)
        times = f" ({len(group):,} streams)" if len(group) > 1 else ""
        left = "" if worst.lossy_in is None else f"; messages are lost in {format_duration(worst.lossy_in)}"
        check = sourcing.no_source if sourcing.lacks_source(worst, snapshot) else _PAIR_CHECKS.get(state)
        yield Problem(
            about=f"{origin} → {reader} {state.value}",
            text=f"{worst.detail}{times}{left}",
            code=None if check is None else check.code,
        )


def _list_consumer_problems(system: LiveSystem) -> Iterator[Problem]:
    for check, singular, plural in (
        (streams.no_consumer, "consumer does not exist", "consumers do not exist"),
        (streams.silent_consumer, "consumer does not answer", "consumers do not answer"),
        (streams.paused_consumer, "consumer is paused", "consumers are paused"),
    ):
        yield from _say_once([issue.about for issue in check.find_issues(system)], singular, plural, check)
