"""The status of a whole topology, as values: what works, how far each pair of regions is behind, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from enum import Enum

from vstream.health.snapshot import BeaconSighting, ServerSnapshot
from vstream.syntax.document import Json
from vstream.timing import STUCK_SECONDS
from vstream.value_class import value_class


class PairState(Enum):
    """The state of a reader with one of its origins, from good to bad."""

    OK = "ok"
    """Everything has arrived, or is in transit."""
    BEHIND = "behind"
    """A message has been waiting for longer than it should."""
    SILENT = "silent"
    """It has not heard its origin for longer than a working source is silent, even if nothing waits."""
    UNKNOWN = "unknown"
    """One of the two does not answer, or does not say how far it is."""
    ROLLED_BACK = "rolled-back"
    """The origin ends before what the reader has taken: what is published next is skipped."""
    LOSSY = "lossy"
    """The origin has dropped messages that the reader had not taken."""


_BADNESS = {state: badness for badness, state in enumerate(PairState)}


@value_class
class AssessedPair:
    """One origin and one reader of it, and how far that is behind. Ages and times are in seconds."""

    virtual: str
    origin: str
    origin_place: str
    reader: str
    reader_place: str
    state: PairState
    detail: str
    cursor: int | None = None
    """The last sequence that the reader has taken, None where that is not known."""
    last: int | None = None
    """The origin's last sequence."""
    pending: int | None = None
    """Upper bound of messages that have not arrived; None if not known."""
    age: float | None = None
    """Age of the oldest of them; None if there is none."""
    lossy_in: float | None = None
    """Time until the origin drops a message that the reader has not taken; None if it keeps all, or nothing waits."""
    retention: float | None = None
    """How long the origin keeps a message at present; None for ever."""

    @property
    def margin(self) -> float | None:
        """How long an outage between the two may last, or continue, before messages are lost; None for ever."""
        if self.retention is None:
            return None
        return 0.0 if self.state is PairState.LOSSY else max(0.0, self.retention - (self.age or 0.0))

    @property
    def is_stuck(self) -> bool:
        """Whether a message waits for so long that its source, which is active, skips it or is stuck."""
        return self.state is PairState.BEHIND and self.age is not None and self.age > STUCK_SECONDS

    @property
    def badness(self) -> tuple[int, float, float, int]:
        """A key to find the worst of several."""
        lossy_in = -self.lossy_in if self.lossy_in is not None else float("-inf")
        return _BADNESS[self.state], lossy_in, self.age or 0.0, self.pending or 0

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "stream": self.virtual,
            "origin": self.origin,
            "origin_place": self.origin_place,
            "reader": self.reader,
            "reader_place": self.reader_place,
            "state": self.state.value,
            "detail": self.detail,
            "last_seq": self.last,
            "cursor": self.cursor,
            "pending": self.pending,
            "oldest_pending_age_s": None if self.age is None else round(self.age, 3),
            "lossy_in_s": None if self.lossy_in is None else round(self.lossy_in, 3),
            "kept_s": None if self.retention is None else round(self.retention, 3),
            "margin_s": None if self.margin is None else round(self.margin, 3),
        }


class StatusVerdict(Enum):
    """What a status comes to."""

    OK = "ok"
    DEGRADED = "degraded"
    """Something is wrong."""
    UNKNOWN = "unknown"
    """No problem was found, but not everything could be checked."""


@value_class
class Share:
    """The number of a region's virtual streams for which something works."""

    works: int
    of: int
    unknown: int = 0
    """The number for which that is not known: what a server has loaded could not be read."""

    @property
    def is_full(self) -> bool:
        """Whether it works for all."""
        return self.works == self.of

    @property
    def fails(self) -> int:
        """The number for which it is known to fail."""
        return self.of - self.works - self.unknown

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {"works": self.works, "of": self.of, "unknown": self.unknown}


@value_class
class RegionStatus:
    """What clients in a region can do."""

    name: str
    servers: int
    reached: int
    unknown: int
    """Servers of which nobody knows whether they run: no monitoring address leads to them."""
    problem: str | None
    """Why a client cannot connect there, None if it can."""
    publish: Share
    direct_get: Share
    consumers: Share
    """Existing consumers."""
    led: int
    """The number of streams whose write stream or origin has a leader, whatever the mapping rules are."""
    control: bool | None
    """Whether consumers and streams can be created or changed: the meta leader answers from here. None if not known."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "name": self.name,
            "servers": self.servers,
            "servers_reached": self.reached,
            "servers_unknown": self.unknown,
            "problem": self.problem,
            "publish": self.publish.as_dict(),
            "direct_get": self.direct_get.as_dict(),
            "existing_consumers": self.consumers.as_dict(),
            "new_consumers": self.control,
            "applies": self.control,
        }


@value_class
class Problem:
    """A problem, or something that is not known, and what follows from it."""

    about: str
    text: str
    code: str | None = None
    """The finding of `vstream doctor` that explains it."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {"about": self.about, "text": self.text, "code": self.code}


@value_class
class StreamStatus:
    """One physical stream."""

    virtual: str
    name: str
    place: str
    role: str
    leader: str | None
    current: int
    replicas: int
    messages: int | None
    bytes: int | None
    last: int | None

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "stream": self.virtual,
            "name": self.name,
            "place": self.place,
            "role": self.role,
            "leader": self.leader,
            "replicas": self.replicas,
            "replicas_current": self.current,
            "messages": self.messages,
            "bytes": self.bytes,
            "last_seq": self.last,
        }


@value_class
class ConsumerStatus:
    """One durable in one region. Numbers are None where it does not answer."""

    virtual: str
    name: str
    region: str
    stream: str
    exists: bool | None
    """None where that is not known."""
    pending: int | None = None
    """Messages that were not delivered yet."""
    unacknowledged: int | None = None
    redelivered: int | None = None
    waiting: int | None = None
    """Pull requests that wait for messages."""
    ack_floor: int | None = None
    """The sequence of its stream up to which everything was acknowledged."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        fields = asdict(self)
        return {"stream": fields.pop("virtual"), "on": fields.pop("stream"), **fields}


@value_class
class Status:
    """Everything. *at* is in seconds since 1970."""

    topology: str
    at: float
    took: float
    places: tuple[str, ...]
    servers: tuple[ServerSnapshot, ...]
    meta_leader: str | None
    """Also None where each region has a meta group of its own."""
    has_one_meta_group: bool
    regions: tuple[RegionStatus, ...]
    streams: tuple[StreamStatus, ...]
    pairs: tuple[AssessedPair, ...]
    problems: tuple[Problem, ...]
    unknown: tuple[Problem, ...] = ()
    """What could not be checked."""
    mappings_ok: Mapping[str, bool | None] = field(default_factory=dict)
    """By server: whether it has loaded the mapping rules of the topology; None where that is not known."""
    consumers: tuple[ConsumerStatus, ...] = ()
    beacons: tuple[BeaconSighting, ...] = ()

    @property
    def thinnest(self) -> AssessedPair | None:
        """The pair of different places whose margin is the smallest; None if no message is ever dropped."""
        apart = [pair for pair in self.pairs if pair.origin_place != pair.reader_place and pair.margin is not None]
        return min(apart, key=lambda pair: pair.margin or 0.0, default=None)

    @property
    def verdict(self) -> StatusVerdict:
        """Problems come before what is not known."""
        if self.problems:
            return StatusVerdict.DEGRADED
        return StatusVerdict.UNKNOWN if self.unknown else StatusVerdict.OK

    def worst(self, virtual: str | None = None) -> dict[tuple[str, str], AssessedPair]:
        """The worst pair from each place to each place, of one virtual stream or of all."""
        worst: dict[tuple[str, str], AssessedPair] = {}
        for pair in self.pairs:
            if virtual in {None, pair.virtual}:
                key = pair.origin_place, pair.reader_place
                worst[key] = max(worst.get(key, pair), pair, key=lambda candidate: candidate.badness)
        return worst

    def count_sent_bytes(self) -> dict[tuple[str, str], int | None]:
        """By region and cluster: the bytes sent there over gateways that are connected; None while not every server says it."""
        sent: dict[tuple[str, str], list[int | None]] = {}
        clusters = sorted({cluster for server in self.servers for cluster in server.gateways or ()})
        for server in self.servers:
            for cluster in clusters:
                if cluster not in {server.region, server.cluster}:
                    count = None if server.gateways is None else server.gateways.get(cluster, 0)
                    sent.setdefault((server.region, cluster), []).append(count)
        return {ends: sum_known(counts) for ends, counts in sent.items()}

    def sent_per_second(self, before: Status) -> dict[tuple[str, str], float | None]:
        """As `count_sent_bytes`, for each second since *before*; None, too, where a gateway was connected anew."""
        earlier = before.count_sent_bytes()
        rates = {}
        for ends, count in self.count_sent_bytes().items():
            sent = None if count is None or (first := earlier.get(ends)) is None else count - first
            rates[ends] = None if sent is None or sent < 0 else sent / (self.at - before.at)
        return rates

    def as_dict(self, before: Status | None = None) -> dict[str, Json]:
        """As JSON would have it; with the rates since the look *before*."""
        rates = {} if before is None else self.sent_per_second(before)
        return {
            "topology": self.topology,
            "at": round(self.at, 3),
            "took_s": round(self.took, 3),
            "verdict": self.verdict.value,
            "is_well": self.verdict is StatusVerdict.OK,
            "meta_leader": self.meta_leader,
            "margin": None if (thin := self.thinnest) is None else thin.as_dict(),
            "problems": [problem.as_dict() for problem in self.problems],
            "unknown": [problem.as_dict() for problem in self.unknown],
            "regions": [region.as_dict() for region in self.regions],
            "servers": [self._server_as_dict(server) for server in self.servers],
            "matrix": self.cells_as_dicts(),
            "streams": [stream.as_dict() for stream in self.streams],
            "pairs": [pair.as_dict() for pair in self.pairs],
            "traffic": [
                _traffic_as_dict(ends, sent, rates.get(ends)) for ends, sent in self.count_sent_bytes().items()
            ],
            "consumers": [consumer.as_dict() for consumer in self.consumers],
            "beacons": [sighting.as_dict() for sighting in self.beacons],
        }

    def _server_as_dict(self, server: ServerSnapshot) -> dict[str, Json]:
        return {
            "name": server.name,
            "region": server.region,
            "reached": server.is_reached,
            "version": server.version,
            "jetstream": server.has_jetstream,
            "meta_leader": server.meta_leader,
            "mapping_ok": self.mappings_ok.get(server.name),
            "problem": server.problem,
        }

    def cells_as_dicts(self) -> list[Json]:
        """From each place to each place: the worst pair, and what is to come in all of them."""
        pending: dict[tuple[str, str], list[int | None]] = {}
        for pair in self.pairs:
            pending.setdefault((pair.origin_place, pair.reader_place), []).append(pair.pending)
        return [_cell_as_dict(pair, sum_known(pending[places])) for places, pair in self.worst().items()]


def _cell_as_dict(worst: AssessedPair, pending: int | None) -> dict[str, Json]:
    return {
        "origin_place": worst.origin_place,
        "reader_place": worst.reader_place,
        "state": worst.state.value,
        "stream": worst.virtual,
        "pending": pending,
        "oldest_pending_age_s": None if worst.age is None else round(worst.age, 3),
        "lossy_in_s": None if worst.lossy_in is None else round(worst.lossy_in, 3),
    }


def _traffic_as_dict(ends: tuple[str, str], sent: int | None, rate: float | None) -> dict[str, Json]:
    return {"from": ends[0], "to": ends[1], "sent_bytes": sent, "bytes_per_s": rate}


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum, None if any of them is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
