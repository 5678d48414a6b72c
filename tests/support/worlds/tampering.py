"""What is done to worlds behind the back of vstream, and what is true afterwards; and what only looks like that."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from tests.support.worlds.settings import REGIONS, Setting, Version
from tests.support.worlds.world import PATIENCE, Message, StoredRecord, World, by_origin

_CHUNK = 64 * 1024
_IN_USE = 10130
"""The error code of a restore while a server has not heard yet that the stream was deleted."""
_NEWEST = 24
"""Of a read stream that keeps 40 messages, those that no later ones remove: 15 come, at most."""
_NEWEST_WRITTEN = 5
"""Of a write stream that keeps 10: 5 come, at most."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Of an event."""

    name: str
    act: Callable[[World], Awaitable[None]]
    fits: Callable[[Setting], bool]
    since: Version = (2, 10)
    is_alone: bool = False
    """Whether nothing else is done to its world."""


async def list_deletable(world: World, region: str) -> list[StoredRecord]:
    """Messages of a read stream of which it is certain that they have to be there until the audit."""
    held = await world.read_held(region)
    if world.setting.name == "count":
        # Those in front go for what is still to come. What is the oldest of its origin cannot be told from these.
        groups = by_origin(held[-_NEWEST:])
        held = sorted((stored for group in groups.values() for stored in group[1:]), key=lambda stored: stored.at)
    held = [stored for stored in held if _is_usable(world, stored)]
    if world.setting.rolls_up:
        elsewhere = [
            {(s.origin, s.seq) for s in await world.read_held(reader)} for reader in REGIONS if reader != region
        ]
        held = [stored for stored in held if all((stored.origin, stored.seq) in numbers for numbers in elsewhere)]
    return held


def _is_usable(world: World, stored: StoredRecord) -> bool:
    message = world.message(stored)
    is_traffic = message.key.rpartition(".")[2].startswith("k")
    return is_traffic and not message.has_ttl and (stored.origin, stored.seq) not in world.untouchable


def sample(world: World, stored: Sequence[StoredRecord], most: int) -> list[StoredRecord]:
    number = min(len(stored), world.random.randrange(1, most + 1))
    return sorted(world.random.sample(list(stored), number), key=lambda message: message.at)


async def delete_in_read(world: World) -> None:
    region = world.random.choice(REGIONS)
    before = await world.read_held(region)
    at = {stored.at: stored for stored in before}
    gone = [at[stored.at] for stored in sample(world, await list_deletable(world, region), 4)]
    await world.delete(region, world.read(region), [stored.at for stored in gone])
    world.claim_missing(region, gone, before)


async def purge_subject(world: World) -> None:
    region = world.random.choice(REGIONS)
    deletable = await list_deletable(world, region)
    if not deletable:
        return
    subject = world.random.choice(deletable).subject
    before = await world.read_held(region)
    gone = [stored for stored in before if stored.subject == subject]
    if any(not _is_usable(world, stored) for stored in gone):
        return
    await world.api(region, f"STREAM.PURGE.{world.read(region)}", {"filter": subject})
    world.claim_missing(region, gone, before)


async def purge_read(world: World) -> None:
    region = world.random.choice(REGIONS)
    before = await world.read_held(region)
    await world.api(region, f"STREAM.PURGE.{world.read(region)}")
    # Another message comes to these subjects, which replaces the oldest.
    ends = {f"{world.lead}{origin}.end" for origin in REGIONS}
    newest: dict[str, list[StoredRecord]] = defaultdict(list)
    for stored in before:
        newest[stored.subject].append(stored)
    lost = []
    for subject, group in newest.items():
        is_replaced = world.setting.keeps is not None and subject in ends and len(group) >= world.setting.keeps
        lost += group[1:] if is_replaced else group
    world.claim_missing(region, lost, before, written_again=ends)


async def delete_in_all_reads(world: World) -> None:
    deletable = await list_deletable(world, "west")
    if not world.setting.writes_keep_all:
        # What the write stream removes, too, nobody has any more, and nobody can miss.
        deletable = [stored for stored in deletable if stored.seq > len(world.sent[stored.origin]) - _NEWEST_WRITTEN]
    chosen = {(stored.origin, stored.seq) for stored in sample(world, deletable, 3)}
    for region in REGIONS:
        before = await world.read_held(region)
        gone = [stored for stored in before if (stored.origin, stored.seq) in chosen]
        await world.delete(region, world.read(region), [stored.at for stored in gone])
        world.claim_missing(region, gone, before)


async def delete_in_write(world: World) -> None:
    gone = sample(world, await list_deletable(world, "west"), 4)
    for stored in gone:
        await world.delete(world.region_of(stored.origin), stored.origin, [stored.seq])
        world.truth.claims["not-at-origin", stored.origin, stored.origin] += 1
    world.untouchable |= {(stored.origin, stored.seq) for stored in gone}


async def purge_write(world: World) -> None:
    """The oldest messages of a write stream, which all regions have."""
    origin = world.write(world.random.choice(REGIONS))
    messages = world.sent[origin]
    number = world.random.randrange(1, max(2, len(messages)))
    gone = [message for message in messages if message.seq <= number]
    await world.api(world.region_of(origin), f"STREAM.PURGE.{origin}", {"seq": number + 1})
    world.truth.claims["not-at-origin", origin, origin] += len(gone)


async def delete_everywhere(world: World) -> None:
    """Messages with others before and behind them, in their write stream and in all read streams."""
    deletable = by_origin(await list_deletable(world, "west"))
    if not deletable:
        return
    origin = world.random.choice(sorted(deletable))
    chosen = {stored.seq for stored in sample(world, deletable[origin], 3) if stored.seq > 1}
    for region in REGIONS:
        gone = [stored for stored in await world.read_held(region) if stored.origin == origin and stored.seq in chosen]
        await world.delete(region, world.read(region), [stored.at for stored in gone])
    await world.delete(world.region_of(origin), origin, sorted(chosen))
    world.truth.claims["deleted-everywhere", origin, origin] += len(chosen)
    world.untouchable |= {(origin, seq) for seq in chosen}


async def inject(world: World, region: str, origin: str, seq: int, key: str, payload: bytes) -> None:
    """Put a message into a read stream as one of *origin*, as only servers can: by a source that is there for a moment."""
    # As a repair does: of other streams, servers since 2.15 say which of that name it was.
    token = "Rpl" + "".join(world.random.choices(ascii_uppercase, k=5))
    name, subjects, reader = f"{origin}:{token}", f"_forged.{token}", world.read(region)
    info = await world.api(region, f"STREAM.INFO.{reader}")
    source = next(source for source in info["config"]["sources"] if source["name"] == origin)
    lead = source["subject_transforms"][0]["src"].removesuffix(">")
    config = {
        "name": name, "subjects": [f"{subjects}.>"], "first_seq": seq, "storage": "memory",
        "subject_transform": {"src": f"{subjects}.>", "dest": ">"},
    }  # fmt: skip
    await world.api(region, f"STREAM.CREATE.{name}", config)
    published = lead + key if lead.endswith(f".{world.lead}") else f"{lead}{world.lead}{key}"
    await world.connections[region].request(f"{subjects}.{published}", payload, timeout=30)
    forged = {field: value for field, value in source.items() if not field.startswith("opt_start")} | {"name": name}
    sources = [*info["config"]["sources"], forged]
    await world.api(region, f"STREAM.UPDATE.{reader}", info["config"] | {"sources": sources})
    deadline, before = time.monotonic() + PATIENCE, info["state"]["last_seq"]
    while (await world.api(region, f"STREAM.INFO.{reader}"))["state"]["last_seq"] <= before:
        assert time.monotonic() < deadline, (world.name, name)
        await asyncio.sleep(0.1)
    await world.api(region, f"STREAM.UPDATE.{reader}", info["config"])
    await world.api(region, f"STREAM.DELETE.{name}")


def suffix_of(world: World, stored: StoredRecord) -> str:
    return stored.subject.removeprefix(world.lead)


async def _choose_one(world: World) -> tuple[str, StoredRecord | None, list[StoredRecord]]:
    region = world.random.choice(REGIONS)
    deletable = await list_deletable(world, region)
    return region, world.random.choice(deletable) if deletable else None, await world.read_held(region)


def claim_reordered(world: World, region: str, stored: StoredRecord, held: Sequence[StoredRecord]) -> None:
    """A message was put behind all that was there: later ones of its origin stand in front of it now."""
    if any(message.origin == stored.origin and message.seq > stored.seq for message in held):
        world.truth.warnings.add("VA303")


async def put_in_twice(world: World) -> None:
    region, stored, _ = await _choose_one(world)
    if stored is None:
        return
    await inject(world, region, stored.origin, stored.seq, suffix_of(world, stored), stored.payload)
    world.truth.claims["duplicated", world.read(region), stored.origin] += 1
    # The copy has no headers: it is not the same as one that had an id.
    (world.truth.differing if stored.has_id else world.truth.copies)[world.read(region)] += 1
    world.note_touched([stored])


async def move_to_the_end(world: World) -> None:
    await _put_in_anew(world)


async def _put_in_anew(world: World, *, subject_end: str = "", payload_end: bytes = b"", claim: str = "") -> None:
    """Take a message out, and put it in behind all others, with a longer subject or payload: then with a *claim*."""
    region, stored, held = await _choose_one(world)
    if stored is None:
        return
    reader, subject = world.read(region), suffix_of(world, stored) + subject_end
    await world.delete(region, reader, [stored.at])
    await inject(world, region, stored.origin, stored.seq, subject, stored.payload + payload_end)
    if claim:
        world.truth.claims[claim, reader, stored.origin] += 1
    claim_reordered(world, region, stored, held)
    world.note_touched([stored])


async def alter_payload(world: World) -> None:
    await _put_in_anew(world, payload_end=b"!", claim="payload-changed")


async def alter_subject(world: World) -> None:
    await _put_in_anew(world, subject_end="x", claim="subject-changed")


async def add_foreign(world: World) -> None:
    """Messages of a stream that is no write stream."""
    region = world.random.choice(REGIONS)
    name, reader = f"foreign-{world.name}", world.read(region)
    info = await world.api(region, f"STREAM.INFO.{reader}")
    number = world.random.randrange(1, 4)
    await world.api(region, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"_foreign.{world.name}.>"]})
    for index in range(number):
        await world.connections[region].request(f"_foreign.{world.name}.f{index}", b"foreign", timeout=30)
    transforms = [{"src": f"_foreign.{world.name}.>", "dest": f"{world.lead}foreign.>"}]
    sources = [*info["config"]["sources"], {"name": name, "subject_transforms": transforms}]
    await world.api(region, f"STREAM.UPDATE.{reader}", info["config"] | {"sources": sources})
    deadline = time.monotonic() + PATIENCE
    while (await world.api(region, f"STREAM.INFO.{reader}"))["state"]["last_seq"] < info["state"]["last_seq"] + number:
        assert time.monotonic() < deadline, (world.name, name)
        await asyncio.sleep(0.1)
    await world.api(region, f"STREAM.UPDATE.{reader}", info["config"])
    await world.api(region, f"STREAM.DELETE.{name}")
    world.truth.claims["unexpected", reader, None] += number


async def remove_source(world: World) -> None:
    """What is written from now on does not arrive."""
    region, origin = world.random.choice(REGIONS), world.write(world.random.choice(REGIONS))
    reader = world.read(region)
    info = await world.api(region, f"STREAM.INFO.{reader}")
    sources = [source for source in info["config"]["sources"] if source["name"] != origin]
    await world.api(region, f"STREAM.UPDATE.{reader}", info["config"] | {"sources": sources})
    world.unfed.add((reader, origin))
    world.truth.doctor |= {"VD202"}


async def delete_read_stream(world: World) -> None:
    region = world.random.choice(REGIONS)
    await world.api(region, f"STREAM.DELETE.{world.read(region)}")
    world.unfed |= {(world.read(region), world.write(origin)) for origin in REGIONS}
    world.truth.claims["no-such-stream", world.read(region), None] += 1
    world.truth.doctor |= {"VD502"}


async def make_read_stream_again(world: World) -> None:
    """It takes everything once more: nothing is wrong."""
    region = world.random.choice(REGIONS)
    await _make_again(world, region, world.read(region))


async def make_write_stream_again(world: World) -> None:
    """Servers since 2.15 tell the messages of the new stream from those of the old one."""
    region = world.random.choice(REGIONS)
    await _make_again(world, region, world.write(region))


async def _make_again(world: World, region: str, name: str) -> None:
    info = await world.api(region, f"STREAM.INFO.{name}")
    await world.api(region, f"STREAM.DELETE.{name}")
    await world.api(region, f"STREAM.CREATE.{name}", info["config"])


async def roll_back(world: World) -> None:
    """A write stream is restored from a backup: what was acknowledged since is only in read streams."""
    region = world.random.choice(REGIONS)
    origin = world.write(region)
    config, state, chunks = await _back_up(world, region, origin)
    before = sum(
        [(await world.api(reader, f"STREAM.INFO.{world.read(reader)}"))["state"]["last_seq"] for reader in REGIONS]
    )
    messages = [await world.publish(region, f"{region}.k{index}") for index in range(world.random.randrange(1, 6))]
    await _until_everywhere(world, messages[-1])
    await world.api(region, f"STREAM.DELETE.{origin}")
    await _restore(world, region, config, state, chunks)
    for reader in REGIONS:
        world.truth.claims["rolled-back", world.read(reader), origin] += len(messages)
    world.is_frozen = True
    if world.version < (2, 15):
        world.truth.doctor.add("VD301")
        world.truth.refilled.add(origin)
        return
    # For these servers it is another stream, and they take everything once more.
    await _until_taken_again(world, before + 3 * state["messages"] + 3 * len(messages))
    for reader in REGIONS:
        world.truth.claims["duplicated", world.read(reader), origin] += state["messages"]
        world.truth.differing[world.read(reader)] += state["messages"]
    world.truth.warnings |= {"VA406", "VA402", "VA401"}
    world.truth.doctor_may |= {"VD205", "VD301"}


async def _until_everywhere(world: World, message: Message) -> None:
    deadline = time.monotonic() + PATIENCE
    for region in REGIONS:
        while not await world._has_come(region, message):
            assert time.monotonic() < deadline, (world.name, message)
            await asyncio.sleep(0.1)


async def _until_taken_again(world: World, total: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (
        sum([(await world.api(name, f"STREAM.INFO.{world.read(name)}"))["state"]["last_seq"] for name in REGIONS])
        < total
    ):
        assert time.monotonic() < deadline, (world.name, total)
        await asyncio.sleep(0.2)


async def _back_up(world: World, region: str, stream: str) -> tuple[dict[str, Any], dict[str, Any], list[bytes]]:
    client = world.connections[region]._client
    inbox, chunks = client.new_inbox(), list[bytes]()
    subscription = await client.subscribe(inbox)
    asked = await world.api(region, f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, "no_consumers": True})
    while (message := await subscription.next_msg(timeout=30)).data:
        chunks.append(message.data)
        if message.reply:
            await client.publish(message.reply)
    await subscription.unsubscribe()
    return asked["config"], asked["state"], chunks


async def _restore(
    world: World, region: str, config: dict[str, Any], state: dict[str, Any], chunks: Sequence[bytes]
) -> None:
    subject, deadline = f"$JS.API.STREAM.RESTORE.{config['name']}", time.monotonic() + PATIENCE
    body = {"config": config, "state": state}
    asked = await world.connections[region].request_json(subject, body, timeout=30)
    while asked.get("error", {}).get("err_code") == _IN_USE and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        asked = await world.connections[region].request_json(subject, body, timeout=30)
    assert "error" not in asked, (world.name, asked)
    content = b"".join(chunks)
    for start in range(0, len(content), _CHUNK):
        await world.connections[region].request(asked["deliver_subject"], content[start : start + _CHUNK], timeout=30)
    await world.connections[region].request(asked["deliver_subject"], b"", timeout=30)


async def use_an_id_in_two_regions(world: World) -> None:
    """More than the windows of read streams apart: both are stored, and nothing is lost."""
    headers = {"Nats-Msg-Id": f"shared-{world.name}"}
    first = await world.publish("west", "west.k0", headers=headers)
    await _until_everywhere(world, first)
    await asyncio.sleep(0.3)
    await _until_everywhere(world, await world.publish("east", "east.k0", headers=headers))
    world.truth.warnings |= {"VA405"}


async def write_a_key_in_two_regions(world: World) -> None:
    """Which value wins is asked of the servers."""
    key = "contested"
    for _ in range(5):
        await asyncio.gather(*(world.publish(region, key) for region in REGIONS))
    world.truth.warnings.add("VA401")
    world.contested.add(key)


async def nothing(_: World) -> None:
    """Only clients."""


def _holds(setting: Setting) -> bool:
    return setting.reads_keep_all


def _is_plain(setting: Setting) -> bool:
    return setting.reads_keep_all and setting.writes_keep_all and not setting.has_ttls and not setting.is_counter


KINDS = (
    Kind(name="nothing", act=nothing, fits=lambda _: True, is_alone=True),
    Kind(
        name="delete-in-read", act=delete_in_read,
        fits=lambda setting: not setting.is_bucket and setting.name != "short-age",
    ),
    Kind(
        name="purge-subject", act=purge_subject,
        fits=lambda setting: setting.name not in {"short-age", "count"},
    ),
    Kind(
        name="purge-read", act=purge_read, is_alone=True,
        fits=lambda setting: setting.name not in {"short-age", "count"} and not setting.has_ttls and not setting.rolls_up,
    ),
    Kind(name="delete-in-all-reads", act=delete_in_all_reads, fits=_holds),
    Kind(name="delete-in-write", act=delete_in_write, fits=lambda setting: _holds(setting) and setting.writes_keep_all),
    Kind(
        name="purge-write", act=purge_write, is_alone=True,
        fits=lambda setting: _holds(setting) and setting.writes_keep_all and not setting.has_ttls,
    ),
    Kind(
        name="delete-everywhere", act=delete_everywhere,
        fits=lambda setting: _holds(setting) and setting.writes_keep_all and not setting.has_ttls,
    ),
    Kind(name="put-in-twice", act=put_in_twice, fits=_is_plain),
    Kind(name="move-to-the-end", act=move_to_the_end, fits=_is_plain, is_alone=True),
    Kind(name="alter-payload", act=alter_payload, fits=_is_plain, is_alone=True),
    Kind(name="alter-subject", act=alter_subject, fits=_is_plain, is_alone=True),
    Kind(name="add-foreign", act=add_foreign, fits=_is_plain),
    Kind(
        name="remove-source", act=remove_source, is_alone=True,
        fits=lambda setting: _holds(setting) and setting.writes_keep_all and not setting.has_ttls,
    ),
    Kind(name="delete-read-stream", act=delete_read_stream, fits=lambda _: True, is_alone=True),
    Kind(
        name="make-read-again", act=make_read_stream_again, is_alone=True,
        fits=lambda setting: _holds(setting) and setting.writes_keep_all and not setting.has_ttls and not setting.is_counter,
    ),
    Kind(name="make-write-again", act=make_write_stream_again, fits=_is_plain, since=(2, 15), is_alone=True),
    Kind(
        name="roll-back", act=roll_back, is_alone=True,
        fits=lambda setting: _is_plain(setting) and setting.name != "in-memory",
    ),
    Kind(name="one-id-two-regions", act=use_an_id_in_two_regions, fits=_is_plain),
    Kind(
        name="one-key-two-regions", act=write_a_key_in_two_regions, is_alone=True,
        fits=lambda setting: not setting.is_counter and not setting.has_ttls and setting.name != "short-age",
    ),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
