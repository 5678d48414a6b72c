"""
Find messages that a stream holds twice, and delete the copies by sequence.

One pass over the headers finds them, as runs of sequences. Then both copies are read, some thousands at a time, and
compared byte by byte: a copy that differs in anything stays.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from vstream.errors import ServerError
from vstream.health.repair.contents import DuplicatePair, Duplicates, DuplicateTally
from vstream.health.repair.live.missing import Contents
from vstream.health.repair.live.scan import TIMEOUT, Scan, Tick, read_provenances
from vstream.jetstream import direct, error_codes
from vstream.jetstream.connection import ask_api
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.source_header import STREAM_SOURCE
from vstream.topology import naming

_MAX_PARALLEL_READS = 32
_CHUNK_MESSAGES = 50_000
"""Number of messages whose sequences are kept in memory at once."""
_IDENTITY_FIELD = 5
"""Where a sourced message's header holds what tells an origin from one created again under its name."""
_GONE = "one of the two is gone"


async def find_duplicates(contents: Contents, tick: Tick) -> list[Duplicates]:
    """What streams of *contents* hold more than once; of counters nothing, each message of which is a sum."""
    duplicates: list[Duplicates] = []
    for scan in contents.scans:
        if scan.holds_counters:
            continue
        tally = DuplicateTally()
        async for block in iterate_duplicates(scan, tick):
            for pair in block:
                if pair.difference != _GONE:
                    tally.add(pair)
        duplicates.append(tally.make_duplicates(contents.stream.name, scan.name, scan.place))
    return [doubled for doubled in duplicates if doubled.count or doubled.differing]


async def iterate_duplicates(scan: Scan, tick: Tick) -> AsyncIterator[list[DuplicatePair]]:
    """The duplicates, a few dozen at a time, each compared."""
    keys = ((origin, seq) for origin, held in scan.held.items() for seq in held.duplicated)
    total, done = sum(len(held.duplicated) for held in scan.held.values()), 0
    while chunk := set(islice(keys, _CHUNK_MESSAGES)):
        places: dict[tuple[str, int], list[int]] = defaultdict(list)
        async for message, provenance in read_provenances(scan.connection, scan.name, 1, tick):
            if provenance is not None and (provenance.origin, provenance.seq) in chunk:
                places[provenance.origin, provenance.seq].append(message.seq)
        pairs = [pair for key in sorted(places) for pair in _list_pairs(scan, key, places[key])]
        for start in range(0, len(pairs), _MAX_PARALLEL_READS):
            block = pairs[start : start + _MAX_PARALLEL_READS]
            yield list(await asyncio.gather(*(_compare(scan, *pair) for pair in block)))
            done += len(block)
            tick(done, max(total, done))


def _list_pairs(scan: Scan, key: tuple[str, int], places: Sequence[int]) -> list[tuple[str, int, int, int]]:
    """The copy of *places* that stays, with each one to delete."""
    origin, seq = key
    stays = scan.held[origin].choose_copy_to_keep(places)
    return [(origin, seq, stays, goes) for goes in places if goes != stays]


async def _compare(scan: Scan, origin: str, seq: int, stays: int, goes: int) -> DuplicatePair:
    stored, copy = await asyncio.gather(
        *(direct.get_by_seq_from_leader(scan.connection, scan.name, place, timeout=TIMEOUT) for place in (stays, goes))
    )
    difference = _difference(stored, copy, seq)
    return DuplicatePair(origin=origin, origin_seq=seq, kept_seq=stays, deleted_seq=goes, difference=difference)


async def delete_duplicates(scan: Scan, tick: Tick) -> tuple[int, int]:
    """
    Find the copies again, and delete each after comparing both once more. Returns how many were deleted, and how many stay.

    They may be millions, so the plan names only the first. Copies that differ stay. Raises as requests do. If it is stopped anywhere, the next run finds the rest.
    """
    gone = stayed = 0
    subject = naming.api_subject("STREAM.MSG.DELETE", scan.name)

    async def remove(twin: DuplicatePair) -> None:
        try:
            await ask_api(scan.connection, subject, {"seq": twin.deleted_seq, "no_erase": True}, timeout=TIMEOUT)
        except ServerError as error:
            if error.err_code != error_codes.MESSAGE_NOT_FOUND:
                raise

    async for block in iterate_duplicates(scan, tick):
        same = [pair for pair in block if pair.difference is None]
        await asyncio.gather(*map(remove, same))
        gone += len(same)
        stayed += sum(pair.difference not in {None, _GONE} for pair in block)
    return gone, stayed


def _difference(stored: DirectMessage | None, copy: DirectMessage | None, seq: int) -> str | None:
    """How two messages that claim to be the same differ; None if they do not."""
    if stored is None or copy is None:
        return _GONE
    (source, headers), (copy_source, copy_headers) = _split(stored.header_block), _split(copy.header_block)
    if stored.subject != copy.subject:
        return "their subjects differ"
    if stored.data != copy.data:
        return "their payloads differ"
    if headers != copy_headers:
        return "their headers differ"
    if source[1:2] != [str(seq)] or copy_source[1:2] != [str(seq)]:
        return _GONE  # others are at these sequences by now
    plain = [words for words in (source, copy_source) if len(words) > _IDENTITY_FIELD and ":" not in words[0]]
    identities = {words[_IDENTITY_FIELD] for words in plain}
    return "the write stream was made again or restored between them" if len(identities) > 1 else None


def _split(block: bytes) -> tuple[list[str], list[bytes]]:
    """The words of `Nats-Stream-Source`, and all other headers, sorted."""
    source: list[str] = []
    lines = []
    for line in block.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.decode(errors="replace").lower() == STREAM_SOURCE.lower():
            source = value.decode(errors="replace").strip().split(" ")
        elif line:
            lines.append(line)
    return source, sorted(lines)
