"""All operations in all models and regions of one lab: what worked, and what the others said."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from nats.aio.client import Client

from tests.conformance import buckets, operations
from tests.conformance.operations import Operation
from tests.conformance.place import Place, reason
from tests.support.command import vstream
from vstream.lab.endpoints import list_endpoints
from vstream.topology.model import Routing

MODELS = ("virtual", "ordered", "stretch", "homed")
_OTHER_MODELS = {"mapped": ("virtual", "ordered", "named", "stretch", "homed"), "domains": ("virtual",)}
PROFILES: Mapping[str, tuple[str, ...]] = {
    routing.value: _OTHER_MODELS.get(routing.value, MODELS) for routing in Routing
}
"""Each with the models that it has; `named` is `ordered`, whose ordering stream carries the virtual name."""
SIGNED = tuple(profile for profile in PROFILES if profile != "mapped")
"""Those that are tried again in operator mode, where nothing shall differ (docs/security.md)."""
REGIONS = ("west", "central", "east")
WORKS = "works"

Cells = dict[tuple[str, str, str, str], str]
"""By model, region, group and operation: WORKS, or why not."""

_LAB = "conformance-"
_SEEDS = 3
_LIMIT = 60.0
_TIMEOUT = 10.0
_DENIED = 3.0
"""Seconds of a request; of one that most users may not send, which is then never answered."""
_SETTINGS = {
    "virtual": "consistency: virtual",
    "ordered": "consistency: ordered",
    "named": "consistency: ordered, virtual_name: order",
    "stretch": "consistency: stretch",
    "homed": "consistency: homed, home: east",
}


def name_signed(profile: str) -> str:
    """What *profile* is called where an operator signs its accounts."""
    return f"{profile}, signed"


def topology(profile: str, models: Sequence[str], *, is_signed: bool = False) -> str:
    """Each of *models* with a stream, a bucket and an object store."""
    # What is not refused is what this is about, so these are streams where buckets would be.
    plain = [model for model in models if profile == "mapped" and model in {"virtual", "ordered"}]
    buckets = [model for model in models if model not in plain]
    heard = ", core_subscribers: true" if profile == "accounts" else ""
    lines = [
        "version: 1",
        f"name: conformance-{profile}",
        f'server_version: "{"2.12" if is_signed else "2.11"}"',
        f"routing: {profile}",
        *(["security: {mode: operator}"] if is_signed else []),
        "regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}",
        *(["stretch: {members: all}"] if {"ordered", "named", "stretch"} & {*models} else []),
        "defaults: {write: {max_age: 1h}}",
        "streams:",
    ]
    for model in models:
        write = ", write: {max_age: unlimited}" if model in {"stretch", "homed"} else ""
        lines.append(
            f"  {model}: {{subjects: [{model}.>], canary: {model}._canary.*, {_SETTINGS[model]}{write}{heard}}}"
        )
    keeps = "read: {max_msgs_per_subject: 5}"
    lines += [
        f"  {heard_in(profile, model)}: {{subjects: [{heard_in(profile, model)}.>], {_SETTINGS[model]}, "
        "core_subscribers: true}"
        for model in models
        if heard_in(profile, model) != model
    ]
    for model in plain:
        lines += [
            "  # vstream: ignore[VS125] what does not work here is what this is for",
            f"  KV_{model}: {{subjects: [$KV.{model}.>], allow_rollup: true, {keeps}, {_SETTINGS[model]}}}",
            "  # vstream: ignore[VS125] what does not work here is what this is for",
            f"  OBJ_{model}: {{subjects: [$O.{model}.>], allow_rollup: true, {_SETTINGS[model]}}}",
        ]
    for section, more in (("kv", "history: 5, "), ("objects", "")):
        lines.append(f"{section}:")
        for model in buckets:
            writers = ", writers: one-per-key" if model in {"virtual", "ordered", "named"} else ""
            lines.append(f"  {model}: {{{more}{_SETTINGS[model]}{writers}}}")
    return "\n".join(lines) + "\n"


def profile_of(name: str) -> str:
    """The profile of the lab *name*."""
    return name.removeprefix(_LAB)


def heard_in(profile: str, model: str) -> str:
    """
    The stream of *model* that core subscribers can hear, or that of all other operations where there is none.

    With some profiles it is found by its subjects no more, so it is another one there.
    """
    return f"heard-{model}" if profile in {"domains", "regional"} and model in {"virtual", "ordered"} else model


def all_operations() -> Mapping[str, Mapping[str, Operation]]:
    """Of streams and of buckets, by group and name."""
    return {**operations.OPERATIONS, **buckets.OPERATIONS}


@contextmanager
def running(profile: str, version: str, models: Sequence[str], *, is_signed: bool = False) -> Iterator[str]:
    """A lab of *profile* with streams of *models*, as a user starts it. Its name; it is gone afterwards."""
    name = f"{_LAB}{profile}"
    with tempfile.TemporaryDirectory(prefix="vstream-conformance-") as directory:
        file = Path(directory) / f"{name}.yaml"
        file.write_text(topology(profile, models, is_signed=is_signed), encoding="utf-8")
        try:
            for command in (("lab", "up", file, "--server-version", version), ("apply", file, "--yes")):
                ran = vstream(*command, timeout=300)
                assert ran.code == 0, ran.out + ran.err
            yield name
        finally:
            vstream("lab", "down", name, "--purge")


async def run(name: str, places: Sequence[tuple[str, str]], only: Sequence[str] = ()) -> Cells:
    """Every operation, or *only* some, in the lab *name*, in each of *places* (a model and a region), beside each other."""
    cells: Cells = {}
    async with AsyncExitStack() as stack:
        opened_places = [await stack.enter_async_context(_place(name, model, region)) for model, region in places]
        everywhere = {(place.stream, place.region): place for place in opened_places}
        for model in dict.fromkeys(model for model, _ in places):
            for region in REGIONS:
                if (model, region) not in everywhere:
                    everywhere[model, region] = await stack.enter_async_context(_place(name, model, region))
        # Reads have other sequences than publishes from here on, where they can have.
        seeds = await asyncio.gather(*(_seed(place) for place in everywhere.values()))
        for (model, _), seed in zip(everywhere, seeds, strict=True):
            same = (place for place in everywhere.values() if place.stream == model)
            await asyncio.gather(*(place.visible(seed, _SEEDS, within=_LIMIT) for place in same))
        async with asyncio.TaskGroup() as tasks:
            for place in opened_places:
                for part in (operations.OPERATIONS, buckets.OPERATIONS):
                    tasks.create_task(_all(place, part, cells, only))
    return cells


async def _seed(place: Place) -> str:
    await buckets.write_seed(place)
    return await place.store(_SEEDS)


async def _all(place: Place, part: Mapping[str, Mapping[str, Operation]], cells: Cells, only: Sequence[str]) -> None:
    for group, named in part.items():
        place.js._timeout = _DENIED if group == "changing" else _TIMEOUT
        for name, operation in named.items():
            if not only or name in only:
                cells[place.stream, place.region, group, name] = await _outcome(place, operation)


async def _outcome(place: Place, operation: Operation) -> str:
    try:
        async with asyncio.timeout(_LIMIT):
            await operation(place)
    except Exception as error:  # noqa: BLE001 - whatever a client raises is the outcome
        return reason(error)
    return WORKS


@asynccontextmanager
async def _place(name: str, model: str, region: str) -> AsyncIterator[Place]:
    endpoint = list_endpoints(name, "app")[region]

    async def silent(_: Exception) -> None:
        """What servers refuse to take is a request without an answer, and found as one."""

    client = Client()
    await client.connect(
        list(endpoint.urls),
        error_cb=silent,
        user=endpoint.user,
        password=endpoint.password,
        user_credentials=endpoint.creds,
    )
    try:
        yield Place(
            client=client,
            js=client.jetstream(timeout=_TIMEOUT),
            region=region,
            stream=model,
            heard=heard_in(profile_of(name), model),
            other_regions=tuple(other_region for other_region in REGIONS if other_region != region),
        )
    finally:
        await client.close()
