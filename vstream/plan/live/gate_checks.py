"""
Whether the gates of a plan hold.

What counts is how far a reader has come in a write stream, compared with that stream's last sequence.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from vstream.errors import NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.formatting import quote_names
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.plan.live.reader_positions import BEACON_HINT, TIMEOUT, LivePositionReader, LiveStream
from vstream.plan.model import Gate, GateKind
from vstream.plan.transitions import seed_region
from vstream.plan.transitions.pause_publishers import require_still_paused
from vstream.timing import BEHIND_AFTER_SECONDS, EXPIRY_SKEW_SECONDS, MAX_CLOCK_SKEW_SECONDS, MOVE_START_SECONDS
from vstream.topology.stream_config import MOVED_KEY, parse_metadata, parse_noted_messages
from vstream.topology.stream_limits import MAX_AGE, MAX_MESSAGES, MESSAGE_TTL, read_limit, read_limits
from vstream.value_class import value_class

STEADY_SECONDS = 2.0
"""Seconds that a gate's condition must hold: by then, accepted messages are stored."""
_HINT = "let the topology have the region again, apply it, and take it out once more"
_MAX_SAMPLES = 64
"""Messages of a copy that are compared with its origin's, and of a stream with those before it moved."""
_LATE_SECONDS = 5.0
"""Seconds until a replica that begins after its leader lacks messages, and one that is not known is not waited for."""
ReadReplicas = Callable[[str, str], Awaitable[Mapping[str, int]]]
"""For a stream and when it was created, the first sequence of each replica that is known, by server: 0 if it is empty."""
_Check = Callable[[Gate], Awaitable[str | None]]
"""What a gate lacks; None if nothing."""


class MoveRecorder(Protocol):
    """Knows which servers have recorded what they hold, and makes them do so. Each method may raise VstreamError."""

    async def find_unrecorded(self, stream: str, servers: Sequence[str]) -> str | None:
        """Which of *servers*, which hold *stream*, are not known to have recorded that; None if all have."""

    async def push(self, stream: str, servers: Sequence[str]) -> None:
        """Make the first of *servers* that has not recorded that it holds *stream* do so."""


@value_class
class _BeforeMove:
    """A stream before it moves."""

    stored_at: Mapping[int, str]
    """When some of its messages were stored, by their sequences."""
    servers: frozenset[str]


class LiveGateChecker:
    """Checks gates over one connection; the account's streams of all clusters answer on it."""

    def __init__(
        self,
        connection: Connection,
        recorder: MoveRecorder | None = None,
        read_replicas: ReadReplicas | None = None,
    ) -> None:
        self._connection = connection
        self._read_replicas = read_replicas
        self._first_seqs: dict[str, tuple[float, dict[str, int]]] = {}
        self._recorder = recorder
        self._before_move: dict[str, _BeforeMove] = {}
        self._admin = JetStreamAdmin(connection)
        self._positions = LivePositionReader(connection)
        self._steady: dict[Gate, tuple[object, float]] = {}
        self._last_seqs_read: dict[str, int] = {}
        self._origins: dict[Gate, tuple[float, Sequence[LiveStream]]] = {}
        self._checks: Mapping[GateKind, Sequence[_Check]] = {
            GateKind.MOVE_IS_OVER: (self._check_replicas,),
            GateKind.PUBLISHES_ARE_STORED: (self._require_paused, self._check_replicas, self._check_stored),
            GateKind.QUORUM_IS_CURRENT: (self._check_quorum,),
            GateKind.REPLICAS_ARE_CURRENT: (self._check_replicas,),
            GateKind.COPIES_HOLD_NO_MORE: (self._check_replicas, self._compare_copies),
            GateKind.MOVE_IS_RECORDED: (self._check_recorded,),
            GateKind.REPLICAS_ARE_COMPLETE: (self._check_replicas, self._compare_replicas),
            GateKind.COPY_IS_COMPLETE: (self._check_copy,),
            GateKind.SOURCED_MESSAGES_ARE_STORED: (self._check_stored,),
            GateKind.HAS_ALL_OF_SOURCES: (self._check_sources,),
            GateKind.HAS_ALL_OF_FORMER: (self._check_former, self._check_sources),
            GateKind.FORMER_READERS_HAVE_ALL: (self._check_readers,),
            GateKind.READERS_HAVE_ALL: (self._check_readers,),
            GateKind.NOTHING_HAS_ARRIVED_SINCE: (self._check_nothing_arrived,),
        }
        """In order: what a gate lacks is what the first of them says that is not None."""

    async def find_missing(self, gate: Gate) -> str | None:
        """See GateChecker."""
        try:
            for check in self._checks[gate.kind]:
                if (missing := await check(gate)) is not None:
                    return missing
        except (NotReachableError, ServerError, NoRespondersError) as error:
            self._steady.pop(gate, None)
            return error.message
        return None

    async def push(self, gate: Gate) -> None:
        """See GateChecker."""
        if gate.kind is not GateKind.MOVE_IS_RECORDED or self._recorder is None:
            return
        with suppress(NotReachableError, ServerError, NoRespondersError):
            await self._recorder.push(gate.stream, await self._list_coming(gate.stream))

    async def leader(self, stream: str) -> str | None:
        """See GateChecker."""
        try:
            info = await self._admin.info(stream, timeout=TIMEOUT)
        except (NotReachableError, ServerError, NoRespondersError):
            return None
        return (info.get("cluster") or {}).get("leader")

    async def note_before_move(self, stream: str) -> Mapping[int, str]:
        """See GateChecker."""
        stored_at: Mapping[int, str] = {}
        with suppress(NotReachableError, ServerError, NoRespondersError):
            state = await self._positions.read_stream(stream)
            seqs = _choose_samples(state.first_seq, state.last_seq) if state.messages else ()
            servers = frozenset(await self._list_servers(stream))
            stored_at = await self._read_times(stream, seqs)
            self._before_move[stream] = _BeforeMove(stored_at=stored_at, servers=servers)
        return {seq: stored_at[seq] for seq in sorted({min(stored_at), max(stored_at)})} if stored_at else {}

    async def _check_replicas(self, gate: Gate) -> str | None:
        name = gate.stream
        info = await self._admin.info(name, timeout=TIMEOUT)
        cluster = info.get("cluster") or {}
        replicas = cluster.get("replicas") or ()
        number, target = len(replicas) + 1, int(info["config"].get("num_replicas") or 1)
        if (misplaced := _find_misplacement(info, name)) is not None:
            return misplaced
        if number != target:
            return f"`{name}` has {number} replicas on its way to {target}"
        if not all(replica.get("current") for replica in replicas):
            return f"not all replicas of `{name}` are current"
        return None

    async def _require_paused(self, gate: Gate) -> None:
        require_still_paused((await self._positions.read_stream(gate.stream)).config)

    async def _check_quorum(self, gate: Gate) -> str | None:
        """
        What new servers of a paused stream lack: they hold anything once they have the snapshot of all of it.

        The snapshot is in the log of the group once most of it follows: one that is down may catch up later, or never.
        """
        name = gate.stream
        info = await self._admin.info(name, timeout=TIMEOUT)
        if (lack := find_missing_quorum(info, name)) is not None:
            return lack
        leader, before = info["cluster"]["leader"], self._before_move.get(name)
        if (before is None or leader in before.servers) and was_just_moved(info, time.time()):
            return f"`{name}` has just been told to move, and is on {leader}"
        replicas = info["cluster"].get("replicas") or ()
        followers = [str(replica.get("name")) for replica in replicas if not replica.get("offline")]
        if not followers or not info["state"]["messages"] or self._read_replicas is None:
            return None
        since, _ = self._first_seqs.setdefault(name, (time.monotonic(), {}))
        firsts = await self._read_replicas(info["config"]["name"], info["created"])
        empty = [server for server in followers if firsts.get(server) == 0]
        unknown = [server for server in followers if server not in firsts]
        if empty:
            return _describe_empty(empty, name)
        if unknown and time.monotonic() < since + _LATE_SECONDS:
            return f"whether {', '.join(unknown)} holds anything of `{name}` is not known"
        return None

    async def _check_recorded(self, gate: Gate) -> str | None:
        """Raises VstreamError if the stream has lost messages since `note_before_move`, in this run or an earlier one."""
        name, unrecorded = gate.stream, None
        if self._recorder is not None:
            # While they still take the stream over, nothing is lost if one of them dies: that is the time to record it.
            unrecorded = await self._recorder.find_unrecorded(name, await self._list_coming(name))
        missing = await self._check_replicas(gate) or unrecorded
        if missing is None:
            await self._require_contents(name)
        return missing

    async def _compare_replicas(self, gate: Gate) -> str | None:
        """
        Which replicas of the stream are not known, or begin after its leader, for some seconds; None if there is none.

        Raises VstreamError if one goes on lacking messages: the leader, whom everybody asks, lacks none.
        """
        if self._read_replicas is None:
            return None
        name = gate.stream
        info = await self._admin.info(name, timeout=TIMEOUT)
        since, firsts = self._first_seqs.setdefault(name, (time.monotonic(), {}))
        read = await self._read_replicas(info["config"]["name"], info["created"])
        for server, first in read.items():
            if first:
                firsts[server] = min(first, firsts.get(server, first))
        # The leader is asked afterwards: what limits remove from each replica, they have removed from it, too, by then.
        servers, stream = await self._list_servers(name), await self._positions.read_stream(name)
        leader, *followers = servers
        late = [server for server in followers if firsts.get(server, 0) > stream.first_seq]
        unknown = [server for server in followers if server not in firsts]
        if not stream.messages or not (late or unknown):
            return None
        if empty := [server for server in followers if read.get(server) == 0]:
            return _describe_empty(empty, name)
        if time.monotonic() < since + _LATE_SECONDS:
            return f"where `{name}` begins on {', '.join(late or unknown)} is not known yet, or not as on {leader}"
        for server in late:
            first = firsts[server]
            if not await self._may_have_expired(stream, first - 1):
                raise VstreamError(
                    f"`{name}`: the replica on `{server}` begins at {first:,}, the leader on `{leader}` at {stream.first_seq:,}: it lacks messages",
                    hint=f"do not let `{server}` lead: scale `{name}` back to one replica, which keeps what the leader has, and up again",
                )
        return None

    async def _may_have_expired(self, stream: LiveStream, seq: int) -> bool:
        """Whether servers may have removed the message at *seq* by their own clocks, some of them before others."""
        if read_limit(stream.config.fields, MESSAGE_TTL):
            return True
        if not read_limit(stream.config.fields, MAX_AGE):
            return False
        message = await direct.get_by_seq_from_leader(self._connection, stream.name, seq)
        return message is None or _has_expired(stream, message.stored_at)

    async def _list_servers(self, stream: str) -> Sequence[str]:
        """The servers that hold *stream*, or are about to."""
        cluster = (await self._admin.info(stream, timeout=TIMEOUT)).get("cluster") or {}
        names = [cluster.get("leader"), *(replica.get("name") for replica in cluster.get("replicas") or ())]
        return [str(name) for name in names if name]

    async def _list_coming(self, stream: str) -> Sequence[str]:
        """The servers that hold *stream*, or are about to, and did not before it moved, as far as that was noted."""
        before = self._before_move.get(stream)
        servers = await self._list_servers(stream)
        return [server for server in servers if before is None or server not in before.servers]

    async def _require_contents(self, name: str) -> None:
        before = self._before_move.get(name)
        noted = (
            before.stored_at
            if before is not None
            else parse_noted_messages((await self._positions.read_stream(name)).config)
        )
        stored = await self._read_times(name, list(noted))
        stream = await self._positions.read_stream(name)
        changed = [seq for seq, time_before in noted.items() if stored.get(seq) != time_before]
        lost = [seq for seq in changed if seq in stored or not _may_be_removed(stream, seq, noted[seq])]
        if lost:
            held = f"it held {min(noted):,} to {max(noted):,}, and now {stream.first_seq:,} to {stream.last_seq:,}"
            raise VstreamError(
                f"`{name}` has lost messages while it moved: {held}, and {len(lost):,} of {len(noted):,} compared are gone",
                hint=f"if somebody purged it, run this again after a minute; else keep copies of `{name}` and stop who publishes: `vstream repair messages` says what they can bring back",
            )

    async def _read_times(self, stream: str, seqs: Sequence[int]) -> Mapping[int, str]:
        """When the messages at *seqs* were stored, without those that are not there."""
        messages = await asyncio.gather(*(direct.get_by_seq_from_leader(self._connection, stream, seq) for seq in seqs))
        return {message.seq: message.stored_at for message in messages if message is not None}

    async def _compare_copies(self, gate: Gate) -> str | None:
        """What the stream lacks of its copies, which have its very sequences and times; None if nothing is seen."""
        stream = gate.stream
        get = partial(direct.get_by_seq_from_leader, self._connection)
        for name in gate.counterparts:
            copy, origin = await self._positions.read_stream(name), await self._positions.read_stream(stream)
            if copy.last_seq > origin.last_seq:
                ends = f"`{stream}` ends at {origin.last_seq:,}, and its copy `{name}` at {copy.last_seq:,}"
                return f"{ends}: it has lost messages that the copy holds"
            gone = {seq: time for seq, time in parse_noted_messages(origin.config).items() if seq < origin.first_seq}
            copied_at = await self._read_times(name, list(gone))
            lost = [
                seq for seq in copied_at if copied_at[seq] == gone[seq] and not _may_be_removed(origin, seq, gone[seq])
            ]
            if lost:
                begins = f"`{stream}` begins at {origin.first_seq:,}, and held {max(lost):,} before it moved"
                return f"{begins}: it has lost messages that its copy `{name}` holds; if it was purged, purge that, too"
            seqs = _choose_samples(max(copy.first_seq, origin.first_seq, 1), copy.last_seq)  # none of an empty one
            copied = await asyncio.gather(*(get(name, seq) for seq in seqs))
            stored = await asyncio.gather(*(get(stream, seq) for seq in seqs))
            for seq, copied_message, message in zip(seqs, copied, stored, strict=True):
                if copied_message and message and copied_message.stored_at != message.stored_at:
                    differ = f"`{stream}` has another message at {seq:,} than its copy `{name}`"
                    return f"{differ}: it may have lost messages that the copy holds"
        return None

    async def _check_copy(self, gate: Gate) -> str | None:
        donor = await self._positions.read_stream(gate.counterparts[0])
        copy = await self._positions.read_stream(gate.stream)
        # Of messages that were deleted from the donor's end, such as canaries, a mirror hears with the next message.
        after = copy.last_seq + 1
        if after <= donor.last_seq and await direct.get_next_from_leader(self._connection, donor.name, ">", after):
            return f"`{copy.name}` is at {copy.last_seq:,} of {donor.last_seq:,}"
        is_whole = seed_region.COPY_KEY in copy.config.metadata  # a mirror that was one before has limits of its own
        if is_whole and (
            copy.messages < donor.messages or (copy.messages and copy.first_seq > max(donor.first_seq, 1))
        ):
            return f"`{copy.name}` holds {copy.messages:,} messages, `{donor.name}` {donor.messages:,}"
        for origin in donor.config.source_names:
            position = await self._positions.find_position(donor, origin)
            if position.seq is None:
                return f"{position.explain_unknown()}; {BEACON_HINT}"
        return None

    async def _check_stored(self, gate: Gate) -> str | None:
        copy = await self._positions.read_stream(gate.stream)
        if not copy.is_settled:
            self._steady.pop(gate, None)
            return f"not all replicas of `{copy.name}` are current"
        return self._wait_for_steady(gate, copy.last_seq, f"`{copy.name}` is at {copy.last_seq:,}")

    async def _check_sources(self, gate: Gate) -> str | None:
        # The reader is asked last: what clients publish meanwhile is not what it lacks.
        origins = [await self._positions.read_stream(origin) for origin in gate.counterparts]
        reader = await self._positions.read_stream(gate.stream)
        for origin in origins:
            missing = await self._describe_lag(reader, origin)
            if missing is not None:
                return missing
        return None

    async def _check_former(self, gate: Gate) -> str | None:
        (name,) = gate.counterparts
        former = await self._positions.read_stream(name)
        # What clients have published since is on its way: it never has all of that.
        asked_at, origins = self._origins.get(gate, (-math.inf, ()))
        if time.monotonic() > asked_at + BEHIND_AFTER_SECONDS:
            origins = [await self._positions.read_stream(origin) for origin in former.config.source_names]
            self._origins[gate] = (time.monotonic(), origins)
            former = await self._positions.read_stream(name)
        for origin in origins:
            missing = await self._describe_lag(former, origin)
            if missing is not None:
                return missing
        return None

    async def _check_readers(self, gate: Gate) -> str | None:
        origin = await self._positions.read_stream(gate.stream)
        for reader in gate.counterparts:
            missing = await self._describe_lag(await self._positions.read_stream(reader), origin)
            if missing is not None:
                self._steady.pop(gate, None)
                return missing
        self._last_seqs_read[origin.name] = origin.last_seq
        return self._wait_for_steady(gate, origin.last_seq, f"the last message of `{origin.name}` has just been taken")

    async def _check_nothing_arrived(self, gate: Gate) -> str | None:
        origin = await self._positions.read_stream(gate.stream)
        before = self._last_seqs_read.get(origin.name)
        if before is not None:
            more = origin.last_seq - before
            text = f"{more:,} messages have come into `{origin.name}`, which no stream sources any more: {_HINT}"
            return text if more else None
        # An earlier run has drained it, and nobody sources it now: what it holds must be in the readers.
        for name in gate.counterparts:
            missing = await self._describe_lag(await self._positions.read_stream(name), origin)
            if missing is not None:
                return f"{missing}, which no stream sources any more: {_HINT}"
        return None

    def _wait_for_steady(self, gate: Gate, state: object, reason: str) -> str | None:
        """*reason* until *state* has been the same for long enough."""
        before, since = self._steady.get(gate, (None, 0.0))
        if before != state:
            self._steady[gate] = (state, time.monotonic())
            return reason
        return None if time.monotonic() - since >= STEADY_SECONDS else reason

    async def _describe_lag(self, reader: LiveStream, origin: LiveStream) -> str | None:
        """How far *reader* is behind *origin*; None if it has taken everything that *origin* holds."""
        if not origin.messages:
            return None  # nothing is left in it that could be taken
        if reader.config.start_seq_of(origin.name) > origin.last_seq:
            return None  # it began with what comes after
        position = await self._positions.find_position_quickly(reader, origin)
        if position.seq is None:
            # Those that it listens on, also where no client is mapped to it any more.
            subjects = quote_names(origin.config.subjects) or f"`{origin.name}`"
            return f"{position.explain_unknown()}; one more message on {subjects} will tell"
        if position.seq < origin.last_seq:
            return f"`{reader.name}` is at {position.seq:,} of {origin.last_seq:,} in `{origin.name}`"
        return None


def find_missing_quorum(info: Mapping[str, Any], name: str) -> str | None:
    """What the stream *name* lacks until most of its replicas are where it is placed, and current."""
    if (misplaced := _find_misplacement(info, name)) is not None:
        return misplaced
    replicas, target = info["cluster"].get("replicas") or (), int(info["config"].get("num_replicas") or 1)
    if len(replicas) + 1 > target:
        return f"`{name}` has {len(replicas) + 1} replicas on its way to {target}"
    current = 1 + sum(bool(replica.get("current")) and not replica.get("offline") for replica in replicas)
    return None if current > target // 2 else f"{current} of {target} replicas of `{name}` are current"


def was_just_moved(info: Mapping[str, Any], now: float) -> bool:
    """Whether a stream was told to move so shortly before *now* that it may not have begun to."""
    moved_at = parse_metadata(info["config"]).get(MOVED_KEY, "")
    # The clock of whoever has noted it may be ahead.
    return moved_at.isdecimal() and -MAX_CLOCK_SKEW_SECONDS <= now - int(moved_at) < MOVE_START_SECONDS


def _find_misplacement(info: Mapping[str, Any], name: str) -> str | None:
    """Why the stream *name* is not led in the cluster where it is placed, or None."""
    cluster, place = info.get("cluster") or {}, (info["config"].get("placement") or {}).get("cluster")
    if not cluster.get("leader"):
        return f"`{name}` has no leader"
    return None if place in {None, cluster.get("name")} else f"`{name}` is still in cluster `{cluster.get('name')}`"


def _describe_empty(servers: Sequence[str], stream: str) -> str:
    return f"{', '.join(servers)} {'holds' if len(servers) == 1 else 'hold'} nothing of `{stream}` yet"


def _may_be_removed(stream: LiveStream, seq: int, stored_at: str) -> bool:
    """Whether limits of *stream* may have removed a message at *seq*."""
    if seq > stream.last_seq:
        return False
    if _has_expired(stream, stored_at):
        return True
    limits = read_limits(stream.config.fields)
    if 0 < limits.pop(MAX_MESSAGES, 0) <= stream.last_seq - seq:
        return True
    # Of what the others remove, nothing but its age tells by number.
    return bool(limits.keys() - {MAX_AGE})


def _has_expired(stream: LiveStream, stored_at: str) -> bool:
    """Whether what was stored then is too old for *stream*, or nearly."""
    age = read_limit(stream.config.fields, MAX_AGE)
    expires = datetime.fromisoformat(stored_at) + timedelta(microseconds=age / 1000)
    return age > 0 and expires < stream.asked_at + timedelta(seconds=EXPIRY_SKEW_SECONDS)


def _choose_samples(first: int, last: int) -> Sequence[int]:
    """Some of the sequences *first* to *last*: evenly spread, and more and more towards the end, where most is lost."""
    spread = range(first, last + 1, max(1, (last - first) // _MAX_SAMPLES))
    return sorted({*spread, *(last + 1 - 2**power for power in range((last - first + 1).bit_length()))})
