"""One virtual stream on real servers: what its clients were told, what it holds, and what is true of it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.worlds.settings import REGIONS, Setting, Version
from vstream.health.snapshot import to_unix_seconds
from vstream.jetstream.connection import Connection

SOURCE = re.compile(
    rb"^Nats-Stream-Source: *(?:\$JS\.ACK\.)?([^ :\r]+)(?::[^ \r]*)? (\d+)", re.MULTILINE | re.IGNORECASE
)
"""Where a message came from: of every server's form, the stream and its sequence there."""
TTL = 3
"""Seconds that a message with a time to live has."""
_AT_ONCE = 32
PATIENCE = 90.0

Claim = tuple[str, str, str | None]
"""What is wrong, the physical stream that it is true of, and the origin."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One that was acknowledged."""

    origin: str
    seq: int
    key: str
    """What comes behind the virtual stream's own subjects."""
    has_ttl: bool = False
    is_special: bool = False
    """Whether it removes others, or is an addition: `repair` does not put in such messages."""


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A message of a read stream."""

    at: int
    origin: str
    seq: int
    subject: str
    payload: bytes
    has_id: bool


@dataclass
class Truth:
    """What has to be said of a world: no less and no more."""

    claims: Counter[Claim] = field(default_factory=Counter)
    """What `audit` finds, as errors, and how often."""
    is_wrong: bool = False
    """Whether `audit` finds errors that depend on the version too much to be counted here."""
    warnings: set[str] = field(default_factory=set)
    """Codes that may be found besides."""
    doctor: set[str] = field(default_factory=set)
    """Codes of which `doctor` has to find one, if there are any; else it must not find an error."""
    doctor_may: set[str] = field(default_factory=set)
    replayed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By read stream and origin, what `repair` can put in."""
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What is missing there and cannot be put in."""
    copies: Counter[str] = field(default_factory=Counter)
    """By read stream, copies that `repair` deletes."""
    differing: Counter[str] = field(default_factory=Counter)
    """By read stream, copies that `repair` leaves, since they are not the same as the first."""
    refilled: set[str] = field(default_factory=set)
    """Write streams whose end `repair` publishes again."""


class World:
    """*physical* are its streams by role and region."""

    def __init__(
        self,
        name: str,
        setting: Setting,
        kinds: Sequence[str],
        *,
        seed: int,
        version: Version,
        connections: Mapping[str, Connection],
        physical: Mapping[tuple[str, str], str],
    ) -> None:
        self.name = name
        self.setting = setting
        self.kinds = kinds
        self.random = Random(seed)
        self.version = version
        self.connections = connections
        self.physical = physical
        self.truth = Truth()
        self.sent: dict[str, list[Message]] = {self.write(region): [] for region in REGIONS}
        self.untouchable: set[tuple[str, int]] = set()
        """Messages that something was done to, by origin and sequence."""
        self.unfed: set[tuple[str, str]] = set()
        """Read streams and origins between which nothing flows any more."""
        self.virtual = f"KV_{name}" if setting.is_bucket else name
        self.lead = f"$KV.{name}." if setting.is_bucket else f"{name}."
        self.is_frozen = False
        """Whether nobody may publish any more."""
        self.contested: set[str] = set()
        """Keys that several regions write."""
        self._numbers = 0

    def write(self, region: str) -> str:
        return self.physical["write", region]

    def read(self, region: str) -> str:
        return self.physical["read", region]

    def region_of(self, stream: str) -> str:
        return next(region for (_, region), name in self.physical.items() if name == stream)

    async def api(self, region: str, verb: str, body: Any = None) -> dict[str, Any]:
        answer = await self.connections[region].request_json(f"$JS.API.{verb}", body, timeout=30)
        assert "error" not in answer, (verb, body, answer["error"])
        return answer

    async def publish(self, region: str, key: str, *, headers: Mapping[str, str] | None = None) -> Message:
        """Publish one message and remember what the servers say to it."""
        self._numbers += 1
        is_special = self.setting.is_counter or "Nats-Rollup" in (headers or {})
        if self.setting.is_counter:
            payload, headers = b"", {"Nats-Incr": f"+{self.random.randrange(1, 5)}"}
        else:
            payload = b"%s %d " % (region.encode(), self._numbers) + self.random.randbytes(
                self.random.choice((0, 9, 300))
            )
        reply = await self.connections[region].request(f"{self.lead}{key}", payload, headers=headers, timeout=30)
        answer = json.loads(reply.data)
        assert answer.get("stream") == self.write(region), (self.name, region, key, answer)
        message = Message(
            origin=answer["stream"], seq=answer["seq"], key=key, has_ttl="Nats-TTL" in (headers or {}),
            is_special=is_special,
        )  # fmt: skip
        if not answer.get("duplicate"):
            self.sent[message.origin].append(message)
        return message

    async def traffic(self, number: int, keys: str) -> None:
        """*number* messages in each region, or somewhat more or less; each region writes *keys* of its own."""
        await asyncio.gather(*(self._traffic_in(region, number, keys) for region in REGIONS))

    async def _traffic_in(self, region: str, number: int, letter: str) -> None:
        random = Random(f"{self.name} {region} {number} {self.random.random()}")
        keys = [f"{region}.{letter}{index}" for index in range(random.choice((1, 2, 5)))]
        for index in range(random.randrange(max(1, number // 2), number + 1)):
            key, headers = random.choice(keys), {}
            if random.random() < 0.3:
                headers["Nats-Msg-Id"] = f"{region}-{index}-{random.random()}"
            if self.setting.has_ttls and random.random() < 0.3:
                headers["Nats-TTL"] = f"{TTL}s"
            if self.setting.rolls_up and random.random() < 0.15:
                headers |= {"Nats-Rollup": "sub"} | ({"KV-Operation": "PURGE"} if self.setting.is_bucket else {})
            await self.publish(region, key, headers=headers)
            if "Nats-Msg-Id" in headers and random.random() < 0.2 and not self.setting.is_counter:
                # The client has not heard the answer, and asks again.
                await self.publish(region, key, headers=headers)

    async def settle(self) -> None:
        """Return once every read stream has everything: a message that each region sends now arrives everywhere."""
        last = {region: await self.publish(region, f"{region}.end") for region in REGIONS}
        deadline = time.monotonic() + PATIENCE
        for reader in REGIONS:
            for region in REGIONS:
                if (self.read(reader), self.write(region)) in self.unfed:
                    continue
                while not await self._has_come(reader, last[region]):
                    assert time.monotonic() < deadline, (self.name, self.kinds, reader, last[region])
                    await asyncio.sleep(0.1)

    async def _has_come(self, reader: str, message: Message) -> bool:
        if self.setting.name == "short-age":
            state = (await self.api(reader, f"STREAM.INFO.{self.read(reader)}"))["state"]
            return bool(state["last_seq"] >= sum(map(len, self.sent.values())))
        body = {"last_by_subj": f"{self.lead}{message.key}"}
        answer = await self.connections[reader].request_json(
            f"$JS.API.STREAM.MSG.GET.{self.read(reader)}", body, timeout=30
        )
        if "error" in answer:
            return False
        stored = as_stored(answer["message"])
        return (stored.origin, stored.seq) == (message.origin, message.seq)

    async def read_held(self, region: str) -> list[StoredRecord]:
        """All that the read stream of *region* holds of write streams, in order."""
        stream = self.read(region)
        state = (await self.api(region, f"STREAM.INFO.{stream}"))["state"]
        slots = asyncio.Semaphore(_AT_ONCE)

        async def get(seq: int) -> dict[str, Any]:
            async with slots:
                return await self.connections[region].request_json(
                    f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": seq}, timeout=30
                )

        first = max(1, state["first_seq"])
        answers = await asyncio.gather(*(get(seq) for seq in range(first, state["last_seq"] + 1)))
        stored = [as_stored(answer["message"]) for answer in answers if "message" in answer]
        return [message for message in stored if message.origin in self.sent]

    async def delete(self, region: str, stream: str, seqs: Sequence[int]) -> None:
        for seq in seqs:
            await self.api(region, f"STREAM.MSG.DELETE.{stream}", {"seq": seq})

    def message(self, stored: StoredRecord) -> Message:
        """What clients were told of a message that is stored somewhere."""
        return next(message for message in self.sent[stored.origin] if message.seq == stored.seq)

    def claim_missing(
        self,
        region: str,
        gone: Sequence[StoredRecord],
        before: Sequence[StoredRecord],
        written_again: Collection[str] = (),
    ) -> None:
        """
        Messages of a read stream are gone, which *before* held them: they are lost, and some can be put in again.

        Others come later to the subjects *written_again*.
        """
        reader = self.read(region)
        last = {stored.subject: stored for stored in before}
        for stored in gone:
            message = self.message(stored)
            self.truth.claims["lost", reader, stored.origin] += 1
            # Where the last of a subject counts, only that comes back.
            is_newest = last[stored.subject] is stored and stored.subject not in written_again
            is_wanted = self.setting.keeps is None or is_newest
            can_return = not message.is_special and not message.has_ttl and is_wanted
            (self.truth.replayed if can_return else self.truth.left)[reader, stored.origin] += 1
        self.note_touched(gone)

    def note_touched(self, stored: Sequence[StoredRecord]) -> None:
        """What was done to these messages is not done again."""
        self.untouchable |= {(message.origin, message.seq) for message in stored}

    def claim_repeated_sequences(self) -> None:
        """A write stream that was made again counts from 1: read streams hold two messages of the same origin and sequence."""
        for messages in self.sent.values():
            repeated = len(messages) - len({message.seq for message in messages})
            self.truth.differing.update({self.read(region): repeated for region in REGIONS})

    async def claim_disputes(self) -> None:
        """
        Of keys that several regions write, servers say which value each region has come to have.

        `repair` puts the one that was written last behind any other.
        """
        for key in sorted(self.contested):
            values = {}
            for region in REGIONS:
                body = {"last_by_subj": f"{self.lead}{key}"}
                answer = await self.api(region, f"STREAM.MSG.GET.{self.read(region)}", body)
                values[region] = as_stored(answer["message"])
            if len({stored.payload for stored in values.values()}) == 1:
                self.truth.warnings.discard("VA401")
            elif self.setting.keeps == 1:
                self.truth.claims["last-value", "", None] += 1
                origin, seq = await self._written_last(key)
                behind = [region for region, stored in values.items() if (stored.origin, stored.seq) != (origin, seq)]
                self.truth.replayed.update({(self.read(region), origin): 1 for region in behind})

    async def _written_last(self, key: str) -> tuple[str, int]:
        """The origin of the last message on *key*, and its sequence there."""
        written = []
        for region in REGIONS:
            origin = self.write(region)
            seq = max(message.seq for message in self.sent[origin] if message.key == key)
            answer = await self.api(region, f"STREAM.MSG.GET.{origin}", {"seq": seq})
            written.append((to_unix_seconds(answer["message"]["time"]), origin, seq))
        return max(written)[1:]


def as_stored(message: Mapping[str, Any]) -> StoredRecord:
    headers = base64.b64decode(message.get("hdrs", ""))
    match = SOURCE.search(headers)
    assert match, (message, headers)
    return StoredRecord(
        at=message["seq"], origin=match[1].decode(), seq=int(match[2]), subject=message["subject"],
        payload=base64.b64decode(message.get("data", "")), has_id=b"\r\nNats-Msg-Id:" in headers,
    )  # fmt: skip


def by_origin(stored: Sequence[StoredRecord]) -> dict[str, list[StoredRecord]]:
    groups: dict[str, list[StoredRecord]] = defaultdict(list)
    for message in stored:
        groups[message.origin].append(message)
    return groups
