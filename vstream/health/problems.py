"""What is wrong in a snapshot, one line for each cause; and what could not be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vstream.formatting import format_duration, summarize_names
from vstream.health.doctor import CHECKS
from vstream.health.doctor.check import LiveSystem
from vstream.health.loaded_mappings import LoadedMappings, list_serving
from vstream.health.pairs import is_unmeasured
from vstream.health.snapshot import RegionSnapshot, Snapshot
from vstream.health.status import AssessedPair, PairState, Problem, RegionStatus
from vstream.topology.model import Topology
from vstream.topology.replication import PhysicalStream, list_durables

_PAIR_CODES = {
    PairState.BEHIND: "VD203",
    PairState.SILENT: "VD201",
    PairState.ROLLED_BACK: "VD301",
    PairState.LOSSY: "VD302",
}
"""The finding that explains each state of a pair."""


def find_problems(
    system: LiveSystem, physical: Sequence[PhysicalStream], regions: Sequence[RegionStatus]
) -> Iterator[Problem]:
    """Everything that is wrong. What follows from a region being down is not reported again."""
    topology, snapshot, loaded, pairs = system.topology, system.snapshot, system.loaded, system.pairs
    down = {region.name for region in regions if _is_down(region)}
    for region, seen in zip(regions, snapshot.regions, strict=True):
        if region.name in down:
            yield _describe_down(region, [pair for pair in pairs if pair.reader_place == region.name])
        else:
            yield from _list_region_problems(snapshot, region, seen)
    for difference in loaded.differences():
        yield Problem(about=", ".join(difference.servers), text=difference.evidence, code=difference.code)
    for token in loaded.foreign_tokens:
        yield Problem(about=", ".join(token.accounts), text=token.evidence, code="VD507")
    for check in CHECKS:
        if check.is_in_status:
            for issue in check.find_issues(system):
                yield Problem(about=issue.about, text=issue.evidence, code=check.code)
    yield from _list_stream_problems([stream for stream in physical if stream.place not in down], snapshot)
    yield from _list_fragile(physical, snapshot)
    yield from _list_pair_problems(snapshot, pairs, down)
    yield from _list_consumer_problems(topology, snapshot)


def find_unknown(system: LiveSystem, regions: Sequence[RegionStatus]) -> Iterator[Problem]:
    """What could not be checked: regions without a connection, how far readers are, and what servers have loaded."""
    topology, snapshot = system.topology, system.snapshot
    for region in regions:
        if region.problem is not None and not _is_down(region) and not _list_silent_servers(snapshot, region):
            yield Problem(about=region.name, text=region.problem, code="VD415")
    unmeasured = [pair for pair in system.pairs if is_unmeasured(pair, snapshot)]
    if unmeasured:
        more = f" (and {len(unmeasured) - 1:,} more)" if len(unmeasured) > 1 else ""
        yield Problem(about=topology.name, text=f"{unmeasured[0].detail}{more}", code="VD206")
    yield from _list_unknown_mappings(topology, snapshot, system.loaded)


def _list_unknown_mappings(topology: Topology, snapshot: Snapshot, loaded: LoadedMappings) -> Iterator[Problem]:
    if loaded.problem is not None:
        yield Problem(about=topology.name, text=f"the loaded mapping rules are not known: {loaded.problem}")
        return
    for region in topology.regions:
        servers = list_serving(topology, region.name, snapshot.servers)
        unknown = [server for server in servers if server.may_serve and loaded.is_ok(server.name) is None]
        if unknown:
            why = next((server.rules_problem for server in unknown if server.rules_problem), None)
            names = summarize_names([server.name for server in unknown])
            yield Problem(
                about=region.name,
                text=f"the mapping rules that {names} loaded are not known: "
                + (why or "no address under `monitor` leads there (`vstream probe` tries whether publishing works)"),
                code="VD409",
            )


def _is_down(region: RegionStatus) -> bool:
    """Whether nothing in the region answers: no client port, no monitoring port, and no stream has a leader."""
    return region.problem is not None and not region.reached and not region.led


def _describe_down(region: RegionStatus, pairs: Sequence[AssessedPair]) -> Problem:
    """One line for a region that does not answer at all."""
    worst = min((pair.left for pair in pairs if pair.left is not None), default=None)
    left = "" if worst is None else f"; messages are lost in {format_duration(worst)}"
    servers = "its server does not answer" if region.servers == 1 else f"none of its {region.servers} servers answers"
    return Problem(about=f"{region.name} is down", text=f"{region.problem}; {servers}{left}", code="VD415")


def _list_region_problems(snapshot: Snapshot, region: RegionStatus, seen: RegionSnapshot) -> Iterator[Problem]:
    if silent := _list_silent_servers(snapshot, region):
        texts = [] if region.problem is None else [region.problem]
        texts.append(f"{len(silent)} of {region.servers} servers do not answer: {summarize_names(silent)}")
        yield Problem(about=region.name, text="; ".join(texts), code="VD415" if region.problem else "VD404")
    if region.problem is None and seen.control is not None:
        yield Problem(
            about=region.name,
            text=f"JetStream API unavailable ({seen.control}): no new consumers, streams or changes from there; "
            "publishing, Direct Get and existing consumers work without it",
            code="VD406",
        )


def _list_silent_servers(snapshot: Snapshot, region: RegionStatus) -> list[str]:
    servers = [server for server in snapshot.servers if server.region == region.name]
    return [server.name for server in servers if server.url is not None and not server.is_reached]


def _list_stream_problems(physical: Sequence[PhysicalStream], snapshot: Snapshot) -> Iterator[Problem]:
    absent, leaderless, silent = [], [], []
    for stream in physical:
        observed = snapshot.streams.get(stream.name)
        if stream.name in snapshot.absent:
            absent.append(stream.name)
        elif observed is None:
            # Where vstream could connect to no region, it is that which is said.
            silent += [stream.name] if snapshot.was_connected else []
        elif observed.leader is None:
            leaderless.append(stream.name)
    for about, names, code in (
        ("streams do not exist", absent, "VD502"),
        ("streams have no leader", leaderless, "VD503"),
        ("streams do not answer", silent, "VD503"),
    ):
        if names:
            yield Problem(about=f"{len(names):,} {about}", text=summarize_names(names), code=code)


def _list_fragile(physical: Sequence[PhysicalStream], snapshot: Snapshot) -> Iterator[Problem]:
    """Streams that work, but survive fewer failures than in the topology."""
    few: dict[str, list[str]] = {}
    for stream in physical:
        observed, planned = snapshot.streams.get(stream.name), stream.fields.get("num_replicas")
        if observed is not None and isinstance(planned, int) and observed.replicas < planned:
            few.setdefault(f"{observed.replicas} of {planned} replicas", []).append(stream.name)
    for share, names in few.items():
        yield Problem(about=f"{len(names):,} streams have {share}", text=summarize_names(names), code="VD504")


def _list_pair_problems(snapshot: Snapshot, pairs: Sequence[AssessedPair], down: set[str]) -> Iterator[Problem]:
    """One problem per state and pair of places, for the worst pair."""
    groups: dict[tuple[str, str, PairState], list[AssessedPair]] = {}
    for pair in pairs:
        if pair.state is PairState.OK or down & {pair.origin_place, pair.reader_place}:
            continue
        if is_unmeasured(pair, snapshot):
            continue  # it is not known whether anything is wrong
        # Streams that do not answer are a problem of their own, and one is enough.
        is_told = pair.origin not in snapshot.streams or (pair.reader not in snapshot.streams and pair.left is None)
        if not is_told:
            groups.setdefault((pair.origin_place, pair.reader_place, pair.state), []).append(pair)
    for (origin, reader, state), group in groups.items():
        worst = max(group, key=lambda pair: pair.badness)
        times = f" ({len(group):,} streams)" if len(group) > 1 else ""
        left = "" if worst.left is None else f"; messages are lost in {format_duration(worst.left)}"
        yield Problem(
            about=f"{origin} → {reader} {state.value}", text=f"{worst.detail}{times}{left}", code=_PAIR_CODES.get(state)
        )


def _list_consumer_problems(topology: Topology, snapshot: Snapshot) -> Iterator[Problem]:
    """Problems of consumers whose streams work."""
    absent, silent, paused = [], [], []
    for durable in list_durables(topology):
        stream = snapshot.streams.get(durable.stream)
        if stream is None or stream.leader is None:
            continue
        key = durable.stream, durable.name
        name, observed = f"{durable.stream} > {durable.name}", snapshot.consumers.get(key)
        if key not in snapshot.consumers:
            silent += [name] if snapshot.was_connected else []
        elif observed is None:
            absent.append(name)
        elif observed.is_paused:
            paused.append(name)
    for names, singular, plural, code in (
        (absent, "consumer does not exist", "consumers do not exist", "VD505"),
        (silent, "consumer does not answer", "consumers do not answer", "VD506"),
        (paused, "consumer is paused", "consumers are paused", "VD510"),
    ):
        if names:
            subject = f"1 {singular}" if len(names) == 1 else f"{len(names):,} {plural}"
            yield Problem(about=subject, text=summarize_names(names), code=code)
