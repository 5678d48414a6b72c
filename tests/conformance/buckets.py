"""What nats.py can do with a key-value bucket and an object store, which are streams called `KV_<name>` and `OBJ_<name>`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import nats.js.errors
from nats.js.api import ObjectMeta
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from tests.conformance.operations import Operation
from tests.conformance.place import SOON, DiffersError, Place, eventually, must

LARGE = 300_000
"""Bytes: more than one chunk of an object store."""


async def write_seed(place: Place) -> None:
    """Write the key that other regions look at."""
    await (await _bucket(place)).put(place.region, b"seed")


async def put_and_get(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    await bucket.put(key, b"1")
    await _holds(bucket, key, b"1")


async def get_of_another_region(place: Place) -> None:
    await _holds(await _bucket(place), place.other_regions[0], b"seed")


async def get_revision(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    revision = await bucket.put(key, b"1")
    await _holds(bucket, key, b"1")
    must((await bucket.get(key, revision=revision)).value == b"1", "another value")


async def create(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    await bucket.create(key, b"1")
    await _holds(bucket, key, b"1")  # the library looks at what is there once it is refused
    with contextlib.suppress(nats.js.errors.KeyWrongLastSequenceError):
        await bucket.create(key, b"2")
        raise DiffersError("created twice")


async def create_what_was_deleted(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    await bucket.create(key, b"1")
    await _holds(bucket, key, b"1")
    await bucket.delete(key)
    await _holds(bucket, key, None)
    await bucket.create(key, b"2")
    await _holds(bucket, key, b"2")


async def create_of_another_region(place: Place) -> None:
    bucket, key = await _bucket(place), place.other_regions[0]
    await _holds(bucket, key, b"seed")
    with contextlib.suppress(nats.js.errors.KeyWrongLastSequenceError):
        await bucket.create(key, b"seed")
        raise DiffersError("created twice")


async def update(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    await bucket.update(key, b"2", last=await bucket.put(key, b"1"))
    await _holds(bucket, key, b"2")


async def update_what_was_read(place: Place) -> None:
    bucket, key = await _entry(place)
    await bucket.update(key, b"2", last=(await bucket.get(key)).revision)


async def delete(place: Place) -> None:
    bucket, key = await _entry(place)
    await bucket.delete(key)
    await _holds(bucket, key, None)


async def purge(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    for value in (b"1", b"2"):
        await bucket.put(key, value)
    await _holds(bucket, key, b"2")
    await bucket.purge(key)
    await _holds(bucket, key, None)


async def purge_deletes(place: Place) -> None:
    bucket, key = await _entry(place)
    await bucket.delete(key)
    await _holds(bucket, key, None)
    await bucket.purge_deletes(olderthan=-1)

    async def forgotten() -> bool:
        try:
            await place.js.get_last_msg(f"KV_{place.stream}", f"$KV.{place.stream}.{key}", direct=True)
        except nats.js.errors.NotFoundError:
            return True
        return False

    await eventually(forgotten, "copies keep it", within=SOON)


async def keys(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    await bucket.put(key, b"1")

    async def is_listed() -> bool:
        return key in await bucket.keys()

    await eventually(is_listed, "not listed")


async def watch(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    async with _until_told(await bucket.watch(key), lambda entry: entry.value == b"1"):
        await bucket.put(key, b"1")


async def watch_all(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    async with _until_told(await bucket.watchall(), lambda entry: entry.key == key):
        await bucket.put(key, b"1")


async def history(place: Place) -> None:
    bucket, key = await _bucket(place), place.fresh()
    for value in (b"1", b"2"):
        await bucket.put(key, value)

    async def both() -> bool:
        with contextlib.suppress(nats.js.errors.NoKeysError):
            return [entry.value for entry in await bucket.history(key)] == [b"1", b"2"]
        return False

    await eventually(both, "not both")


async def status(place: Place) -> None:
    must((await (await _bucket(place)).status()).values > 0, "no values")


async def object_put(place: Place) -> None:
    must((await (await _store(place)).put(place.fresh(), b"x" * LARGE)).size == LARGE, "another size")


async def object_get(place: Place) -> None:
    store, name = await _object(place)
    must((await store.get(name)).data == b"x" * LARGE, "other bytes")


async def object_info(place: Place) -> None:
    store, name = await _object(place)
    must((await store.get_info(name)).size == LARGE, "another size")


async def object_list(place: Place) -> None:
    store, name = await _object(place)

    async def is_listed() -> bool:
        return name in {info.name for info in await store.list()}

    await eventually(is_listed, "not listed", within=SOON)


async def object_status(place: Place) -> None:
    await _object(place)
    must((await (await _store(place)).status()).size > 0, "no bytes")


async def object_update(place: Place) -> None:
    store, name = await _object(place)
    await store.update_meta(name, ObjectMeta(name=name, description="changed"))

    async def is_changed() -> bool:
        return (await store.get_info(name)).description == "changed"

    await eventually(is_changed, "not changed")


async def object_watch(place: Place) -> None:
    store, name = await _store(place), place.fresh()
    async with _until_told(await store.watch(updates_only=True), lambda update: update.name == name):
        await store.put(name, b"x")


async def object_delete(place: Place) -> None:
    store, name = await _object(place)
    await store.delete(name)

    async def is_gone() -> bool:
        with contextlib.suppress(nats.js.errors.ObjectNotFoundError):
            await store.get_info(name)
            return False
        return True

    await eventually(is_gone, "still there")


async def _bucket(place: Place) -> KeyValue:
    return await place.js.key_value(place.stream)


async def _store(place: Place) -> ObjectStore:
    return await place.js.object_store(place.stream)


@contextlib.asynccontextmanager
async def _until_told(watcher: Any, is_wanted: Callable[[Any], bool]) -> AsyncIterator[None]:
    """Do what *watcher* looks at, and wait until it tells of an update that *is_wanted*."""

    async def is_seen() -> bool:
        update = await watcher.updates(timeout=5)
        return update is not None and is_wanted(update)

    try:
        yield
        await eventually(is_seen, "not seen")
    finally:
        await watcher.stop()


async def _holds(bucket: KeyValue, key: str, value: bytes | None) -> None:
    async def is_shown() -> bool:
        try:
            return (await bucket.get(key)).value == value
        except nats.js.errors.KeyNotFoundError:
            return value is None

    await eventually(is_shown, "not read")


async def _entry(place: Place) -> tuple[KeyValue, str]:
    """A bucket, and a key that holds `1` in it."""
    bucket, key = await _bucket(place), place.fresh()
    await bucket.put(key, b"1")
    await _holds(bucket, key, b"1")
    return bucket, key


async def _object(place: Place) -> tuple[ObjectStore, str]:
    store, name = await _store(place), place.fresh()
    await store.put(name, b"x" * LARGE)

    async def is_shown() -> bool:
        with contextlib.suppress(nats.js.errors.ObjectNotFoundError):
            return (await store.get_info(name)).size == LARGE
        return False

    await eventually(is_shown, "not read")
    return store, name


OPERATIONS: dict[str, dict[str, Operation]] = {
    "key-value": {
        "put, get": put_and_get,
        "get what another region put": get_of_another_region,
        "get by the revision of a put": get_revision,
        "create, and not twice": create,
        "create what was deleted": create_what_was_deleted,
        "create what another region has is refused": create_of_another_region,
        "update with the revision of a put": update,
        "update with the revision of a get": update_what_was_read,
        "delete": delete,
        "purge": purge,
        "purge what was deleted": purge_deletes,
        "keys": keys,
        "watch": watch,
        "watch all keys": watch_all,
        "history": history,
        "status": status,
    },
    "objects": {
        "put": object_put,
        "get": object_get,
        "info": object_info,
        "list": object_list,
        "status": object_status,
        "update what is said of it": object_update,
        "watch": object_watch,
        "delete": object_delete,
    },
}
"""By group and name, in the order of the table."""
