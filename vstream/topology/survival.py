"""
What survives what: for each virtual stream, which failures its writes and reads survive, from the topology alone.

A failure stands for several incidents (any server, any region): each is played through for the clients of each region
that it leaves, and the worst answer counts. What is said here was measured on real servers, see docs/survival.md;
`vstream.scenario.survival` makes a scenario of it that shows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from itertools import combinations, product
from typing import Final

from vstream.topology.model import Consistency, Role, Seat, Topology, VirtualStream
from vstream.topology.profiles import profile_of
from vstream.topology.replication import PhysicalStream, physical_streams
from vstream.value_class import value_class


class Failure(Enum):
    """What fails. Of each kind the worst one counts."""

    SERVER = "server"
    """Any one server."""
    ZONE = "zone"
    """All servers of a region that have the same tag, such as `az:a`."""
    REGION = "region"
    """All servers of a region, its member of the stretch cluster among them."""
    TWO_REGIONS = "two_regions"
    PARTITION = "partition"
    """A region is cut off from all others: what clients of the others can do."""
    CUT_OFF = "cut_off"
    """The same for the clients in that region."""
    POWER = "power"
    """All servers of a region lose power at once, and come back."""


class Ability(Enum):
    """What clients do."""

    WRITES = "writes"
    """A publish is acknowledged; after a loss of power also: what was acknowledged is still there."""
    READS = "reads"
    """Direct Get by the virtual name is answered."""
    OWN_READS = "own_reads"
    """What a client writes meanwhile can be read in its region, a moment later."""
    CONSUMERS = "consumers"
    """A consumer can be created on the region's copy, and delivers."""
    ORDER = "order"
    """All regions read the same messages in one order."""


class Survival(Enum):
    """Whether clients can continue, from the best to the worst."""

    YES = "yes"
    PAUSE = "pause"
    """Yes, after an election, or a retry of a source: seconds, and at worst a minute."""
    UNKNOWN = "unknown"
    NO = "no"
    NEVER = "never"
    """The consistency model does not promise it on any day."""

    @property
    def is_survival(self) -> bool:
        """Whether it meets a demand of `survive`."""
        return self in {Survival.YES, Survival.PAUSE}


_RANK: Final = {answer: rank for rank, answer in enumerate(Survival)}


@value_class
class Ruling:
    """An answer and why. *is_certain* is False where it depends on which servers hold the replicas, or on timing."""

    answer: Survival
    reason: str
    is_certain: bool = True


@value_class
class Incident:
    """One thing that can happen. *clients* are the regions whose clients are asked."""

    failure: Failure
    name: str
    """Such as `west`, or `west and east`."""
    down: frozenset[str] = frozenset()
    """Servers."""
    regions: tuple[str, ...] = ()
    """The regions that are down or cut off."""
    clients: tuple[str, ...] = ()


@value_class
class SurvivalCell:
    """One cell of the table: the worst that can happen, and where; *incident* is None where nothing of the kind can."""

    stream: str
    failure: Failure
    ability: Ability
    ruling: Ruling
    incident: Incident | None = None


def survival_table(topology: Topology) -> tuple[SurvivalCell, ...]:
    """Every cell, stream by stream, failure by failure."""
    questions = product(topology.streams, Failure, Ability)
    return tuple(find_worst_cell(topology, stream, failure, ability) for stream, failure, ability in questions)


def find_worst_cell(topology: Topology, stream: VirtualStream, failure: Failure, ability: Ability) -> SurvivalCell:
    """The worst that *failure* does to *ability*, for a client of *stream* in any region that it leaves."""
    worst: SurvivalCell | None = None
    for incident in list_incidents(topology, failure):
        for ruling in judge_by_region(topology, stream, ability, incident).values():
            if worst is None or _RANK[ruling.answer] > _RANK[worst.ruling.answer]:
                worst = SurvivalCell(
                    stream=stream.name, failure=failure, ability=ability, ruling=ruling, incident=incident
                )
    if worst is None:
        worst = SurvivalCell(
            stream=stream.name, failure=failure, ability=ability, ruling=_rule_nothing_can_fail(failure)
        )
    return worst


def list_incidents(topology: Topology, failure: Failure) -> tuple[Incident, ...]:
    """Everything of the kind *failure* that can happen to *topology*; empty where nothing can."""
    return tuple(_OUTAGES[failure](topology))


def judge_by_region(
    topology: Topology, stream: VirtualStream, ability: Ability, incident: Incident
) -> Mapping[str, Ruling]:
    """By region, what clients of *stream* there can do while *incident* lasts."""
    clients = [region for region in incident.clients if region in stream.regions]
    if not clients:
        alone = Ruling(answer=Survival.NO, reason=f"the stream is in no region that {incident.name} leaves")
        return {region: alone for region in stream.regions[:1] if incident.failure is not Failure.CUT_OFF}
    return {region: _Judge(topology, stream, incident, region).judge(ability) for region in clients}


def _rule_nothing_can_fail(failure: Failure) -> Ruling:
    if failure is Failure.ZONE:
        return Ruling(answer=Survival.UNKNOWN, reason="no zones: servers have no tags that begin with a `unique_tag`")
    if failure in {Failure.REGION, Failure.TWO_REGIONS}:
        return Ruling(answer=Survival.NO, reason="no region would be left")
    return Ruling(answer=Survival.UNKNOWN, reason="there is one region: nothing can be cut off")


def _list_names(seats: Iterable[Seat]) -> frozenset[str]:
    return frozenset(seat.server.name for seat in seats)


def _list_regions(topology: Topology) -> tuple[str, ...]:
    return tuple(region.name for region in topology.regions)


def _list_servers(topology: Topology) -> Iterator[Incident]:
    for seat in topology.all_seats:
        yield Incident(
            failure=Failure.SERVER,
            name=seat.server.name,
            down=frozenset({seat.server.name}),
            clients=_list_regions(topology),
        )


def index_zone_tags(topology: Topology, region: str) -> Mapping[str, str]:
    """By server of *region*, the tag by which replicas of a stream are kept apart; servers that have none are left out."""
    prefix = topology.server_options.unique_tag
    tags: dict[str, str] = {}
    for server in topology.region(region).servers if prefix else ():
        for tag in server.tags:
            if tag.startswith(str(prefix)):
                tags[server.name] = tag
    return tags


def _list_zones(topology: Topology) -> Iterator[Incident]:
    for region in topology.regions:
        tags = index_zone_tags(topology, region.name)
        for zone in dict.fromkeys(tags.values()):
            down = frozenset(server for server, tag in tags.items() if tag == zone)
            yield Incident(
                failure=Failure.ZONE, name=f"{zone} in {region.name}", down=down, clients=_list_regions(topology)
            )


def _list_losses(topology: Topology, failure: Failure, number: int) -> Iterator[Incident]:
    regions = _list_regions(topology)
    for lost in combinations(regions, number):
        clients = tuple(region for region in regions if region not in lost)
        if clients:
            down = _list_names(seat for seat in topology.all_seats if seat.region in lost)
            yield Incident(failure=failure, name=" and ".join(lost), down=down, regions=lost, clients=clients)


def _list_cuts(topology: Topology, failure: Failure) -> Iterator[Incident]:
    regions = _list_regions(topology)
    for region in regions if len(regions) > 1 else ():
        rest = tuple(name for name in regions if name != region)
        clients = (region,) if failure is Failure.CUT_OFF else rest
        yield Incident(failure=failure, name=region, regions=(region,), clients=clients)


def _list_power_cuts(topology: Topology) -> Iterator[Incident]:
    for region in _list_regions(topology):
        down = _list_names(seat for seat in topology.all_seats if seat.region == region)
        yield Incident(
            failure=Failure.POWER, name=region, down=down, regions=(region,), clients=_list_regions(topology)
        )


_OUTAGES: Final = {
    Failure.SERVER: _list_servers,
    Failure.ZONE: _list_zones,
    Failure.REGION: lambda topology: _list_losses(topology, Failure.REGION, 1),
    Failure.TWO_REGIONS: lambda topology: _list_losses(topology, Failure.TWO_REGIONS, 2),
    Failure.PARTITION: lambda topology: _list_cuts(topology, Failure.PARTITION),
    Failure.CUT_OFF: lambda topology: _list_cuts(topology, Failure.CUT_OFF),
    Failure.POWER: _list_power_cuts,
}


class _Judge:
    """One stream, one incident, the clients of one region."""

    def __init__(self, topology: Topology, stream: VirtualStream, incident: Incident, region: str) -> None:
        self._topology = topology
        self._stream = stream
        self._incident = incident
        self._region = region

    def judge(self, ability: Ability) -> Ruling:
        """What the clients can do."""
        if ability is Ability.ORDER and self._stream.consistency is Consistency.VIRTUAL:
            return Ruling(
                answer=Survival.NEVER, reason="each region has an order of its own; that of each origin is kept"
            )
        if self._incident.failure is Failure.POWER:
            return self._judge_after_power(ability)
        if ability is not Ability.ORDER and all(self._is_away(seat) for seat in self._seats_at(self._region)):
            return Ruling(answer=Survival.NO, reason=f"clients in {self._region} have no server left")
        rules: dict[Ability, Callable[[], Ruling]] = {
            Ability.WRITES: lambda: self._judge_quorum(self._writer, "take publishes"),
            Ability.READS: self._judge_reads,
            Ability.OWN_READS: self._judge_own_reads,
            Ability.CONSUMERS: self._judge_consumers,
            Ability.ORDER: self._judge_order,
        }
        return rules[ability]()

    # The streams that count

    def _part(self, *roles: Role) -> PhysicalStream | None:
        """Of these roles, the physical stream of the region, or else the only one."""
        parts = [part for part in physical_streams(self._stream) if part.role in roles]
        local = [part for part in parts if part.place == self._region]
        return next(iter(local or parts), None)

    @property
    def _writer(self) -> PhysicalStream:
        """The stream that takes publishes of the region."""
        part = self._part(Role.WRITE) or self._part(Role.ORIGIN)
        assert part is not None
        return part

    @property
    def _reader(self) -> PhysicalStream:
        """The stream that answers reads in the region: the home of a homed stream has no copy."""
        parts = [part for part in physical_streams(self._stream) if part.place == self._region]
        return next((part for part in parts if part.role is Role.READ), self._writer)

    @property
    def _decider(self) -> PhysicalStream:
        """The stream that everybody reads, in the end."""
        return self._part(Role.ORDER) or self._part(Role.ORIGIN) or self._reader

    # The servers that count

    def _seats_at(self, place: str) -> list[Seat]:
        cluster = self._topology.cluster_at(place)
        return [seat for seat in self._topology.seats if seat.cluster == cluster]

    def _is_cut(self, seat: Seat) -> bool:
        """Whether a link that is cut lies between the clients and *seat*."""
        if self._incident.failure not in {Failure.PARTITION, Failure.CUT_OFF}:
            return False
        return (seat.region in self._incident.regions) is not (self._region in self._incident.regions)

    def _is_away(self, seat: Seat) -> bool:
        return seat.server.name in self._incident.down or self._is_cut(seat)

    def _judge_quorum(self, part: PhysicalStream, purpose: str) -> Ruling:
        """Whether the clients reach a majority of the replicas of *part*."""
        seats, name = self._seats_at(part.place), f"`{part.name}`"
        away = [seat for seat in seats if self._is_away(seat)]
        replicas = _replicas(part)
        if not away:
            return Ruling(answer=Survival.YES, reason=f"{name} is not touched")
        lost = min(replicas, self._replicas_at_most(away))
        needed = replicas // 2 + 1
        if replicas - lost >= needed:
            return Ruling(
                answer=Survival.PAUSE,
                reason=f"{name} has {replicas - lost} of {replicas} replicas left: another leads it after an election",
            )
        if len(away) == len(seats):
            verb = "cannot be reached" if self._is_cut(away[0]) else "is gone"
            return Ruling(answer=Survival.NO, reason=f"{name}, without which nobody can {purpose}, {verb}")
        is_certain = min(replicas, len(seats) - len(away)) < needed
        return Ruling(
            answer=Survival.NO,
            reason=f"{name} {'has' if is_certain else 'may have'} {replicas - lost} of {replicas} replicas left: no "
            "majority",
            is_certain=is_certain,
        )

    def _replicas_at_most(self, away: list[Seat]) -> int:
        """How many replicas of one stream servers that are *away* hold at most: one in each zone, where there are any."""
        zones = index_zone_tags(self._topology, self._region_of(away))
        if away[0].is_stretch or not all(seat.server.name in zones for seat in away):
            return len(away)
        return len({zones[seat.server.name] for seat in away})

    @staticmethod
    def _region_of(seats: list[Seat]) -> str:
        return seats[0].region

    # What clients do

    def _judge_order(self) -> Ruling:
        return Ruling(answer=Survival.YES, reason=f"`{self._decider.name}` alone decides on it; the others wait for it")

    def _judge_reads(self) -> Ruling:
        local = self._judge_quorum(self._reader, "read here")
        if local.answer.is_survival:
            # Any replica that is left answers a Direct Get: nobody waits for an election.
            return Ruling(answer=Survival.YES, reason=f"`{self._reader.name}` answers{self._staleness()}")
        origin = self._decider
        if self._stream.has_namesake and profile_of(self._stream).has_physical_names and origin is not self._reader:
            elsewhere = self._judge_quorum(origin, "read")
            if elsewhere.answer.is_survival:
                return Ruling(answer=Survival.PAUSE, reason=f"`{origin.name}` answers instead of the region's copy")
        return local

    def _staleness(self) -> str:
        if self._stream.consistency.has_mirrors and not self._judge_quorum(self._decider, "").answer.is_survival:
            return ", as of before"
        if self._incident.failure is Failure.CUT_OFF and self._stream.consistency is Consistency.VIRTUAL:
            return " with what was published here"
        return ""

    def _judge_own_reads(self) -> Ruling:
        chain = [self._judge_quorum(self._writer, "take publishes"), self._judge_reads()]
        if self._decider.role is not Role.READ:
            chain.insert(1, self._judge_quorum(self._decider, "read what is new"))
        if self._incident.failure in {Failure.SERVER, Failure.ZONE}:
            chain.append(self._judge_quorum(self._reader, "read what is new"))
        worst = max(chain, key=lambda ruling: _RANK[ruling.answer])
        if worst.answer is Survival.PAUSE:
            return Ruling(
                answer=Survival.PAUSE,
                reason=f"{worst.reason}; a copy asks again within a minute, at once after `vstream repair sources`",
            )
        return (
            worst
            if worst.answer is not Survival.YES
            else Ruling(answer=Survival.YES, reason="nothing on its way is touched")
        )

    def _judge_consumers(self) -> Ruling:
        members = self._seats_at(self._region) if profile_of(self._topology).has_domains else list(self._topology.seats)
        away = [seat for seat in members if self._is_away(seat)]
        left = len(members) - len(away)
        if left <= len(members) // 2:
            return Ruling(
                answer=Survival.NO, reason=f"{left} of {len(members)} servers are in touch: no JetStream meta leader"
            )
        copy = self._judge_quorum(self._reader, "create a consumer here")
        if copy.answer is Survival.YES and away:
            return Ruling(
                answer=Survival.PAUSE,
                reason=f"{left} of {len(members)} servers elect a JetStream meta leader if it is lost",
            )
        if copy.answer is Survival.YES:
            return Ruling(answer=Survival.YES, reason="the JetStream meta group is not touched")
        return copy

    # What is left when the power is back

    def _judge_after_power(self, ability: Ability) -> Ruling:
        if ability in {Ability.READS, Ability.CONSUMERS}:
            return Ruling(answer=Survival.PAUSE, reason="again when the servers are back")
        if ability is Ability.ORDER:
            ruling = self._judge_storage(self._decider)
            # Copies that are ahead differ only if something is published before they are repaired.
            return replace(ruling, is_certain=ruling.answer.is_survival)
        written = [part for part in physical_streams(self._stream) if part.role in {Role.WRITE, Role.ORIGIN}]
        worst = max(map(self._judge_storage, written), key=lambda ruling: _RANK[ruling.answer])
        if ability is Ability.OWN_READS and worst.answer is Survival.NO:
            return Ruling(
                answer=Survival.NO,
                reason=f"{worst.reason}; its sequences are given out again, and readers that are ahead pass what is new "
                "until `vstream repair messages --kind refill`",
                is_certain=False,
            )
        return worst

    def _judge_storage(self, part: PhysicalStream) -> Ruling:
        """Whether *part* still has what it acknowledged."""
        seats, name = self._seats_at(part.place), f"`{part.name}`"
        dark = [seat for seat in seats if seat.server.name in self._incident.down]
        replicas = _replicas(part)
        if not dark:
            return Ruling(answer=Survival.YES, reason=f"{name} is elsewhere")
        if replicas - min(replicas, len(dark)) >= replicas // 2 + 1:
            return Ruling(answer=Survival.PAUSE, reason=f"the other replicas of {name} have what it acknowledged")
        is_certain = len(dark) == len(seats)
        if part.fields.get("storage") == "memory":
            return Ruling(answer=Survival.NO, reason=f"{name} is in memory: all of it is gone", is_certain=is_certain)
        if all(seat.jetstream.sync_interval == "always" for seat in dark):
            return Ruling(
                answer=Survival.PAUSE, reason=f"{name} is on disk before it acknowledges (`sync_interval: always`)"
            )
        interval = dark[0].jetstream.sync_interval or "2m"
        return Ruling(
            answer=Survival.NO,
            reason=f"{name} may lose what it acknowledged in the last {interval} (`sync_interval: always` prevents it)",
            is_certain=is_certain,
        )


def _replicas(part: PhysicalStream) -> int:
    number = part.fields.get("num_replicas")
    return number if isinstance(number, int) else 1
