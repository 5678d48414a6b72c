"""Labs that are broken in a known way: how each is broken, and the truth about it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chaos_lab import background, wait_until_copied
from tests.support.command import Ran, require_success, vstream
from tests.support.labs import processes_in
from tests.support.meta_leader import lead_meta_group_from
from tests.support.ports import free_port
from vstream.errors import VstreamError
from vstream.jetstream.connection import Connection, connect
from vstream.jetstream.snapshots import take_snapshot
from vstream.lab import lifecycle
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.state import lab_directory
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.timing import STUCK_SECONDS
from vstream.topology.model import Routing

LAB = "broken"
OTHER_VERSION = "2.14.6"
MAPPED = Routing.MAPPED.value
_RULES = re.compile(r"\n    mappings: \{\n.*?\n    \}", re.DOTALL)
MESSAGES = 4
"""Number of messages that each region publishes before anything breaks."""


class Truth(Enum):
    """What can be true of a topology and its servers; each command answers for some of it."""

    SERVES = "serves"
    """Clients of every region can publish and read by the names of the topology."""
    CONSUMES = "consumes"
    """The consumers of the topology are there, in every region, and deliver."""
    FLOWS = "flows"
    """What is published in one region arrives in every other."""
    COMPLETE = "complete"
    """Every region holds every message once."""
    SPARE = "spare"
    """Every server of the topology runs, in one meta group, with all replicas."""
    MATCHES = "matches"
    """Servers, streams and consumers are as the topology says."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a command is asked: it is never green where something of *asks* is false, nor red unless something of both is."""

    asks: frozenset[Truth]
    notices: frozenset[Truth] = frozenset()


_SERVICE = frozenset({Truth.SERVES, Truth.FLOWS})
_HEALTH = _SERVICE | {Truth.CONSUMES, Truth.SPARE}
QUESTIONS: Mapping[str, Question] = {
    "status": Question(_HEALTH, frozenset({Truth.COMPLETE})),
    "doctor": Question(_HEALTH, frozenset({Truth.COMPLETE})),
    "plan --drift": Question(frozenset({Truth.MATCHES})),
    "probe": Question(_SERVICE),
    "audit": Question(frozenset({Truth.COMPLETE}), frozenset({Truth.MATCHES})),
}


@dataclass(slots=True)
class BrokenLab:
    """A running lab, whose topology *file* reaches it by `connect`."""

    file: Path
    sizes: Mapping[str, int]
    routing: str = MAPPED
    endpoints: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self, **changes: Any) -> None:
        """The topology as it should be, but for *changes* of its endpoints, by region."""
        document = {
            "version": 1,
            "name": LAB,
            "server_version": "2.12",
            "routing": self.routing,
            "regions": {region: {"servers": size} for region, size in self.sizes.items()},
            "streams": {
                "foo": {
                    "subjects": ["foo.>"],
                    "canary": "foo._canary.*",
                    "write": {"max_age": "1h"},
                    "consumers": {"billing": {}},
                }
            },
        }
        if self.endpoints:
            document["connect"] = {**self.endpoints, **changes}
        self.file.write_text(yaml.safe_dump(document))

    def vstream(self, *arguments: str, timeout: float = 200) -> Ran:
        return vstream(*arguments, timeout=timeout)

    async def chaos(self, *arguments: str) -> None:
        require_success(
            await asyncio.to_thread(self.vstream, "chaos", *arguments, "--topology", str(self.file), "--lab", LAB)
        )

    async def api(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        async with self.connection() as connection:
            answer = await connection.request_json(f"$JS.API.{subject}", body)
        assert "error" not in answer, answer
        return answer

    @asynccontextmanager
    async def connection(self, region: str = "west") -> AsyncIterator[Connection]:
        async with connect(list_endpoints(LAB)[region], region) as connection:
            yield connection

    async def config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = (await self.api(f"STREAM.INFO.{name}"))["config"]
        return config

    async def update(self, name: str, **changes: Any) -> None:
        await self.api(f"STREAM.UPDATE.{name}", {**await self.config(name), **changes})

    async def publish(self, region: str, number: int = 1, size: int = 8) -> int:
        """How many of *number* messages were acknowledged."""
        stored = 0
        async with self.connection(region) as connection:
            for _ in range(number):
                reply = await connection.request(f"foo.{region}", b"x" * size)
                stored += "error" not in json.loads(reply.data)
        return stored

    async def reload(self, change: Callable[[str], str], *servers: str) -> None:
        """Make *servers* run with what *change* makes of their configurations, and the others with their own."""
        bundle = self._bundle()
        paths = {f"servers/{server}.conf" for server in servers}
        artifacts = tuple(
            replace(artifact, text=change(artifact.text)) if artifact.path in paths else artifact
            for artifact in bundle.artifacts
        )
        assert not (await lifecycle.reload(LAB, replace(bundle, artifacts=artifacts))).refused

    def without_rules(self, configuration: str) -> str:
        """*configuration* of a server, without the mapping rules that it includes."""
        if self.routing == MAPPED:
            return configuration.replace('include "../mappings.cfg"', "mappings = {}")
        return self._with_accounts(configuration, _RULES, "")

    def with_limit(self, configuration: str) -> str:
        """*configuration* of a server, whose accounts may store a mebibyte each."""
        return self._with_accounts(configuration, re.compile(r"(?<=jetstream: )enabled"), "{max_file: 1MiB}")

    def _with_accounts(self, configuration: str, pattern: re.Pattern[str], text: str) -> str:
        """*configuration* of a server, with *text* in place of each *pattern* in the accounts that it includes."""
        accounts, count = pattern.subn(text, self._bundle().text("accounts.cfg"))
        assert count
        return configuration.replace('include "../accounts.cfg"', accounts.replace('include "', 'include "../'))

    def _bundle(self) -> Any:
        topology = check_topology(self.file.read_bytes(), self.file.name).require()
        return render_bundle(topology, addresses=list_addresses(LAB))

    async def reset(self) -> None:
        """Everything as the topology says, with a few messages of each region everywhere."""
        self.write()
        require_success(await asyncio.to_thread(self.vstream, "chaos", "heal", "--lab", LAB))
        if self.routing == MAPPED:
            await until(self._empty)  # a lab of another profile is used for one case
        require_success(await asyncio.to_thread(self.vstream, "apply", str(self.file), "--lab", LAB, "--yes"))
        await until(self._flowing)
        for region in self.sizes:
            assert await self.publish(region, MESSAGES) == MESSAGES
        await until(self._is_full)

    async def _empty(self) -> str | None:
        try:
            await self.reload(lambda text: text)
            for name in (await self.api("STREAM.NAMES"))["streams"] or ():
                await self.api(f"STREAM.DELETE.{name}")
        except (VstreamError, AssertionError) as error:
            return str(error)  # a server that was stopped is not part of JetStream again yet
        return None

    async def _flowing(self) -> str | None:
        for command in ("status", "doctor"):
            ran = await asyncio.to_thread(self.vstream, command, str(self.file))
            if ran.code:
                return ran.out + ran.err
        return None

    async def _is_full(self) -> str | None:
        counts = {}
        for region in self.sizes:
            async with self.connection(region) as connection:
                info = await connection.request_json("$JS.API.STREAM.INFO.foo")
            counts[region] = info["state"]["messages"]
        return None if set(counts.values()) == {MESSAGES * len(self.sizes)} else str(counts)

    async def until_silent(self, reader: str, origin: str) -> None:
        """Return once *reader* has not heard *origin* for longer than a working source is silent."""

        async def find_silence() -> str | None:
            region = reader.rpartition("-")[2]
            async with self.connection(region) as connection:
                info = await connection.request_json(f"$JS.API.STREAM.INFO.{reader}")
            (source,) = [source for source in info["sources"] if source["name"] == origin]
            return None if not 0 <= source["active"] < 6 * 10**9 else str(source)

        await until(find_silence)


async def until(complaint: Callable[[], Awaitable[str | None]], within: float = 120.0) -> None:
    """Return once *complaint* has none; fail with its last one."""
    deadline = time.monotonic() + within
    while (text := await complaint()) is not None:
        assert time.monotonic() < deadline, text
        await asyncio.sleep(0.05)


@contextmanager
def running_lab(directory: Path, routing: str = MAPPED, **sizes: int) -> Iterator[BrokenLab]:
    """A lab with *sizes* servers in its regions, in a state directory of its own that nothing runs in afterwards."""
    state = directory / "state"
    broken = BrokenLab(directory / "topology.yaml", sizes, routing)
    broken.write()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(state))
        try:
            require_success(vstream("lab", "up", broken.file))
            for region, endpoint in list_endpoints(LAB).items():
                broken.endpoints[region] = {"urls": list(endpoint.urls), "monitor": list(endpoint.monitor)}
                if endpoint.password is not None:
                    variable = f"VSTREAM_TEST_{region.upper()}"
                    patch.setenv(variable, endpoint.password)
                    broken.endpoints[region] |= {"user": endpoint.user, "password_env": variable}
            yield broken
        finally:
            vstream("lab", "down", LAB, "--purge")
            left = processes_in(state)
            for process in left:
                process.kill()
    assert left == []


Break = Callable[[BrokenLab], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to break a lab. *false* is what is not true then; *hides*: something cannot be seen from here."""

    title: str
    break_lab: Break
    false: AbstractSet[Truth] = frozenset()
    hides: bool = False
    unseen_by: frozenset[str] = frozenset()
    """Commands whose page says that they do not see it."""
    is_large: bool = False
    """Whether it needs several servers in a region."""
    routing: str = MAPPED
    is_in_suite: bool = False


@asynccontextmanager
async def nothing(_: BrokenLab) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def no_monitor(broken: BrokenLab) -> AsyncIterator[None]:
    broken.write(**{region: {"urls": endpoint["urls"]} for region, endpoint in broken.endpoints.items()})
    yield


@asynccontextmanager
async def lost_mappings(broken: BrokenLab) -> AsyncIterator[None]:
    await broken.reload(broken.without_rules, "west-1")
    yield


@asynccontextmanager
async def lost_mappings_unseen(broken: BrokenLab) -> AsyncIterator[None]:
    async with lost_mappings(broken), no_monitor(broken):
        yield


@asynccontextmanager
async def unreachable_region(broken: BrokenLab) -> AsyncIterator[None]:
    nowhere = f"127.0.0.1:{free_port()}"
    broken.write(west={"urls": [f"nats://{nowhere}"], "monitor": [f"http://{nowhere}"]})
    yield


@asynccontextmanager
async def misled_monitor(broken: BrokenLab) -> AsyncIterator[None]:
    """The rules of central are not those of west, which has lost its own."""
    west, central = broken.endpoints["west"], broken.endpoints["central"]
    async with lost_mappings(broken):
        broken.write(west={**west, "monitor": central["monitor"]})
        yield


@asynccontextmanager
async def unreachable_region_unseen(broken: BrokenLab) -> AsyncIterator[None]:
    changed = {region: {"urls": endpoint["urls"]} for region, endpoint in broken.endpoints.items()}
    broken.write(**{**changed, "west": {"urls": [f"nats://127.0.0.1:{free_port()}"]}})
    yield


@asynccontextmanager
async def wrong_credentials(broken: BrokenLab) -> AsyncIterator[None]:
    servers = [address.server.name for address in list_addresses(LAB)]
    users = '\nauthorization {users: [{user: "other", password: "other"}]}\n'
    await broken.reload(lambda text: text + users, *servers)
    yield


@asynccontextmanager
async def wrong_login(broken: BrokenLab) -> AsyncIterator[None]:
    """West refuses vstream, and nobody else."""
    os.environ["VSTREAM_TEST_WRONG"] = "wrong"
    broken.write(west={**broken.endpoints["west"], "user": "other", "password_env": "VSTREAM_TEST_WRONG"})
    try:
        yield
    finally:
        del os.environ["VSTREAM_TEST_WRONG"]


@asynccontextmanager
async def silent_monitor(broken: BrokenLab) -> AsyncIterator[None]:
    """The server of west runs; only its monitoring port is shut."""
    broken.write(west={**broken.endpoints["west"], "monitor": [f"http://127.0.0.1:{free_port()}"]})
    yield


@asynccontextmanager
async def unfinished_restore(broken: BrokenLab) -> AsyncIterator[None]:
    """A server has all of a snapshot but its end: the stream answers, and listens to nobody."""
    name, chunks = "foo-write-west", list[bytes]()
    async with broken.connection() as connection:
        head = await take_snapshot(connection, name, chunks.append)
        await broken.api(f"STREAM.DELETE.{name}")
        request = {"config": head.config.fields, "state": dict(head.state)}
        target = (await broken.api(f"STREAM.RESTORE.{name}", request))["deliver_subject"]
        for chunk in chunks:
            await connection.request(target, chunk, timeout=10)

    async def absent() -> str | None:
        try:
            await broken.api(f"STREAM.INFO.{name}")
        except AssertionError as error:
            return str(error)
        return None

    await until(absent)
    yield


@asynccontextmanager
async def missing_password(broken: BrokenLab) -> AsyncIterator[None]:
    """All runs; this machine has not what it needs to ask west."""
    broken.write(west={**broken.endpoints["west"], "user": "vstream", "password_env": "VSTREAM_TEST_IS_NOT_SET"})
    yield


def with_fault(*arguments: str, silences: tuple[str, str] | None = None) -> Break:
    """A fault of `vstream chaos`; *silences* are a reader and the origin that it hears no more, of which central is neither."""

    @asynccontextmanager
    async def break_lab(broken: BrokenLab) -> AsyncIterator[None]:
        if silences is not None:
            await lead_meta_group_from(LAB, "central-1")
        await broken.chaos(*arguments)
        if silences is not None:
            await broken.until_silent(*silences)
        yield

    return break_lab


@asynccontextmanager
async def lost_spare_server(broken: BrokenLab) -> AsyncIterator[None]:
    """One of west that holds no stream: each stream has one replica."""
    infos = [await broken.api(f"STREAM.INFO.foo-{role}-west") for role in ("read", "write")]
    used = {info["cluster"]["leader"] for info in infos}
    await broken.chaos("kill-server", next(name for name in ("west-1", "west-2", "west-3") if name not in used))
    yield


def with_request(subject: str, body: Mapping[str, Any] | None = None) -> Break:
    """A request to the JetStream API."""

    @asynccontextmanager
    async def break_lab(broken: BrokenLab) -> AsyncIterator[None]:
        await broken.api(subject, body)
        yield

    return break_lab


def with_update(stream: str, **changes: Any) -> Break:
    """An update of *stream*'s configuration."""

    @asynccontextmanager
    async def break_lab(broken: BrokenLab) -> AsyncIterator[None]:
        await broken.update(stream, **changes)
        yield

    return break_lab


def _with_west(sources: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    return [{**source, **changes} if source["name"] == "foo-write-west" else source for source in sources]


@asynccontextmanager
async def wrong_transform(broken: BrokenLab) -> AsyncIterator[None]:
    """What east takes from west from now on has other subjects."""
    sources = (await broken.config("foo-read-east"))["sources"]
    wrong = [{"src": "_vs.foo.west.>", "dest": "bar.>"}]
    await broken.update(
        "foo-read-east", sources=_with_west(sources, subject_transforms=wrong, opt_start_seq=MESSAGES + 1)
    )
    yield


@asynccontextmanager
async def lost_source(broken: BrokenLab) -> AsyncIterator[None]:
    sources = (await broken.config("foo-read-east"))["sources"]
    await broken.update("foo-read-east", sources=[source for source in sources if source["name"] != "foo-write-west"])
    yield


@asynccontextmanager
async def extra_stream(broken: BrokenLab) -> AsyncIterator[None]:
    """One that vstream made, for a stream that the topology does not have."""
    config = await broken.config("foo-write-west")
    name, subjects = "old-write-west", ["_vs.old.west.>"]
    metadata = {key: value.replace("foo", "old") for key, value in config["metadata"].items()}
    await broken.api(f"STREAM.CREATE.{name}", {**config, "name": name, "subjects": subjects, "metadata": metadata})
    yield


@asynccontextmanager
async def foreign_stream(broken: BrokenLab) -> AsyncIterator[None]:
    await broken.api("STREAM.CREATE.foreign", {"name": "foreign", "subjects": ["foreign.>"]})
    yield


@asynccontextmanager
async def rolled_back(broken: BrokenLab) -> AsyncIterator[None]:
    """Power was lost where it was written; the other regions have taken what is gone."""
    with background(broken.file, "power-loss", "west", "--lose", "8s", "--yes-really", "--lab", LAB) as tool:
        await wait_until_copied(tool, LAB)
        await broken.publish("west", 3)

        async def missing() -> str | None:
            state = (await broken.api("STREAM.INFO.foo-read-east"))["state"]
            return None if state["messages"] == MESSAGES * 3 + 3 else str(state)

        await until(missing)
        assert await asyncio.to_thread(tool.wait, 120) == 0
    require_success(await asyncio.to_thread(broken.vstream, "chaos", "heal", "--lab", LAB))
    require_success(await asyncio.to_thread(broken.vstream, "repair", "sources", str(broken.file)))
    yield


@asynccontextmanager
async def expire_messages(broken: BrokenLab) -> AsyncIterator[None]:
    """The read stream of east was away for longer than west keeps its messages."""
    config = await broken.config("foo-read-east")
    consumer = (await broken.api("CONSUMER.INFO.foo-read-east.billing"))["config"]
    await broken.api("STREAM.DELETE.foo-read-east")
    await broken.api("STREAM.PURGE.foo-write-west")
    await broken.api("STREAM.CREATE.foo-read-east", config)
    await broken.api(
        "CONSUMER.DURABLE.CREATE.foo-read-east.billing", {"stream_name": "foo-read-east", "config": consumer}
    )

    async def missing() -> str | None:
        state = (await broken.api("STREAM.INFO.foo-read-east"))["state"]
        return None if state["messages"] == MESSAGES * 2 else str(state)

    await until(missing)
    yield


@asynccontextmanager
async def full_disk(broken: BrokenLab) -> AsyncIterator[None]:
    """Servers do not say so of streams with one replica. That nothing arrives is seen when something is to arrive."""
    await broken.chaos("disk-full", "west")
    assert await broken.publish("central") == 1
    published = time.monotonic()

    async def young() -> str | None:
        age = time.monotonic() - published
        return None if age > STUCK_SECONDS else f"the message is {age:.0f} s old"

    await until(young)
    with_publish = asyncio.create_task(broken.publish("west"))
    await asyncio.wait([with_publish], timeout=10)
    with_publish.cancel()
    await asyncio.gather(with_publish, return_exceptions=True)
    yield


@asynccontextmanager
async def full_stream(broken: BrokenLab) -> AsyncIterator[None]:
    await broken.update("foo-write-west", discard="new", max_msgs=MESSAGES)
    yield


@asynccontextmanager
async def moved_away(broken: BrokenLab) -> AsyncIterator[None]:
    """The write stream of west is in central."""
    await broken.update("foo-write-west", placement={"cluster": "central"})

    async def elsewhere() -> str | None:
        cluster = (await broken.api("STREAM.INFO.foo-write-west"))["cluster"]
        is_there = cluster["name"] == "central" and cluster.get("leader") and not cluster.get("replicas")
        return None if is_there else str(cluster)

    await until(elsewhere)
    yield


@asynccontextmanager
async def filtered_consumer(broken: BrokenLab) -> AsyncIterator[None]:
    config = (await broken.api("CONSUMER.INFO.foo-read-east.billing"))["config"]
    changed = {**config, "filter_subject": "foo.nothing"}
    body = {"stream_name": "foo-read-east", "config": changed, "action": "update"}
    await broken.api("CONSUMER.CREATE.foo-read-east.billing", body)
    yield


@asynccontextmanager
async def reached_limit(broken: BrokenLab) -> AsyncIterator[None]:
    """Clients of west may store no more: the limit of JetStream there is reached."""
    configuration = lab_directory(LAB).conf / "servers" / "west-1.conf"
    before = configuration.read_text()
    lines = ["  max_file_store: 2097152" if "max_file_store" in line else line for line in before.splitlines()]
    configuration.write_text("\n".join(lines))
    try:
        await broken.chaos("restart-region", "west")
        require_success(await asyncio.to_thread(broken.vstream, "repair", "sources", str(broken.file)))
        while await broken.publish("west", size=200_000):
            pass
        yield
    finally:
        configuration.write_text(before)
        await broken.chaos("restart-region", "west")


@asynccontextmanager
async def reached_account_limit(broken: BrokenLab) -> AsyncIterator[None]:
    """Clients of west may store no more: what their account may is reached."""
    await broken.reload(broken.with_limit, "west-1", "central-1", "east-1")
    while await broken.publish("west", size=200_000):
        pass

    async def find_room() -> str | None:
        info = await broken.api("INFO")
        return None if info["storage"] > 0.9 * info["limits"]["max_storage"] else str(info)

    # The meta leader, which commands ask, hears now and then from a server what an account stores there.
    await until(find_room)
    yield


@asynccontextmanager
async def started_over(broken: BrokenLab) -> AsyncIterator[None]:
    """East has taken everything of west once more."""
    sources = (await broken.config("foo-read-east"))["sources"]
    narrow = [{"src": "_vs.foo.west.foo.>", "dest": "foo.>"}]
    await broken.update("foo-read-east", sources=_with_west(sources, subject_transforms=narrow))

    async def missing() -> str | None:
        state = (await broken.api("STREAM.INFO.foo-read-east"))["state"]
        return None if state["messages"] >= MESSAGES * 4 else str(state)

    await until(missing)
    yield


@asynccontextmanager
async def other_version(broken: BrokenLab) -> AsyncIterator[None]:
    await broken.chaos("upgrade", "east", "--to", OTHER_VERSION)
    require_success(await asyncio.to_thread(broken.vstream, "repair", "sources", str(broken.file)))
    try:
        yield
    finally:
        await broken.chaos("upgrade", "east", "--to", "2.15.1")


SERVES, CONSUMES, FLOWS, COMPLETE, SPARE, MATCHES = Truth
NEVER = "2099-01-01T00:00:00Z"

CASES = (
    Case("all well", nothing, is_in_suite=True),
    Case("all well, no `monitor`", no_monitor, hides=True),
    Case("a server lost its mapping rules", lost_mappings, false={SERVES, FLOWS, MATCHES}),
    Case(
        "a server lost its mapping rules, no `monitor`",
        lost_mappings_unseen,
        false={SERVES, FLOWS, MATCHES},
        hides=True,
        is_in_suite=True,
    ),
    Case(
        "a server lost its mapping rules, and its `monitor` leads to another",
        misled_monitor,
        false={SERVES, FLOWS, MATCHES},
        hides=True,
    ),
    *(
        Case(
            f"a server lost its mapping rules, `routing: {routing}`",
            lost_mappings,
            false={SERVES, FLOWS, MATCHES},
            routing=routing,
            is_in_suite=routing == "accounts",
        )
        for routing in (routing.value for routing in Routing if routing is not Routing.MAPPED)
    ),
    Case("a region cannot be reached", unreachable_region, false={SERVES, FLOWS, SPARE}, hides=True, is_in_suite=True),
    Case("a region cannot be reached, no `monitor`", unreachable_region_unseen, false={SERVES, FLOWS}, hides=True),
    Case("servers refuse the credentials", wrong_credentials, false={SERVES, FLOWS}, hides=True),
    Case("a region refuses the credentials", wrong_login, hides=True, is_in_suite=True),
    Case("the monitoring port of a server does not answer", silent_monitor, hides=True, is_in_suite=True),
    Case("the password of a region is not set", missing_password, hides=True),
    Case("a region is down", with_fault("kill-region", "central"), false={SERVES, FLOWS, SPARE}, hides=True),
    Case("the servers of a region hang", with_fault("pause", "central"), false={SERVES, FLOWS, SPARE}, hides=True),
    Case("one server of three is down", lost_spare_server, false={SPARE}, hides=True, is_large=True),
    Case(
        "no meta leader: no two regions reach each other",
        with_fault("partition", "west | central | east", "--yes-really", silences=("foo-read-east", "foo-write-west")),
        false={SERVES, FLOWS, SPARE},
        hides=True,
    ),
    Case(
        "a source is dead: two regions do not reach each other",
        with_fault("partition", "west | east", silences=("foo-read-east", "foo-write-west")),
        false={SERVES, FLOWS},
        hides=True,
    ),
    Case(
        "a gateway is cut one way",
        with_fault(
            "partition", "west | east", "--one-way", "--how", "drop", silences=("foo-read-east", "foo-write-west")
        ),
        false={SERVES, FLOWS},
        hides=True,
    ),
    Case(
        "a write stream was deleted",
        with_request("STREAM.DELETE.foo-write-west"),
        false={SERVES, FLOWS, MATCHES},
        hides=True,
    ),
    Case(
        "a read stream was deleted",
        with_request("STREAM.DELETE.foo-read-east"),
        false={SERVES, CONSUMES, FLOWS, COMPLETE, MATCHES},
        hides=True,
    ),
    Case(
        "a restore was cut off: a write stream listens to nobody",
        unfinished_restore,
        false={SERVES, FLOWS, COMPLETE},
        hides=True,
    ),
    Case(
        "a write stream was sealed",
        with_update("foo-write-west", sealed=True),
        false={SERVES, FLOWS, MATCHES},
        is_in_suite=True,
    ),
    Case(
        "a write stream takes other subjects",
        with_update("foo-write-west", subjects=["_vs.foo.west.foo.only"]),
        false={SERVES, FLOWS, MATCHES},
    ),
    Case("a write stream is full and refuses (`discard: new`)", full_stream, false={SERVES, FLOWS, MATCHES}),
    Case(
        "a write stream acknowledges nothing (`no_ack`)",
        with_update("foo-write-west", no_ack=True),
        false={SERVES, FLOWS, MATCHES},
    ),
    Case(
        "a write stream takes only small messages",
        with_update("foo-write-west", max_msg_size=1),
        false={SERVES, FLOWS, MATCHES},
    ),
    Case(
        "a write stream refuses what is new of a subject (`discard_new_per_subject`)",
        with_update("foo-write-west", discard="new", discard_new_per_subject=True, max_msgs_per_subject=MESSAGES),
        false={SERVES, MATCHES},
        unseen_by=frozenset({"probe"}),
    ),
    Case(
        "a write stream changes subjects",
        with_update("foo-write-west", subject_transform={"src": "_vs.foo.west.>", "dest": "elsewhere.>"}),
        false={SERVES, FLOWS, MATCHES},
    ),
    Case("a write stream was moved to another region", moved_away, false={SPARE, MATCHES}),
    Case(
        "a read stream is full and refuses (`discard: new`)",
        with_update("foo-read-east", discard="new", max_msgs=MESSAGES * 3),
        false={FLOWS, MATCHES},
    ),
    Case(
        "a read stream answers no Direct Get",
        with_update("foo-read-east", allow_direct=False),
        false={SERVES, FLOWS, MATCHES},
    ),
    Case(
        "a read stream keeps less than the topology says",
        with_update("foo-read-east", max_msgs=MESSAGES),
        false={COMPLETE, MATCHES},
    ),
    Case("the storage limit of a server is reached", reached_limit, false={SERVES, FLOWS}),
    Case(
        "the storage limit of an account is reached, `routing: regional`",
        reached_account_limit,
        false={SERVES, FLOWS},
        routing="regional",
        is_in_suite=True,
    ),
    Case("the disk of a server is full", full_disk, false={SERVES, FLOWS, COMPLETE}, hides=True),
    Case(
        "a consumer of the topology was deleted",
        with_request("CONSUMER.DELETE.foo-read-east.billing"),
        false={CONSUMES, MATCHES},
    ),
    Case(
        "a consumer of the topology is paused",
        with_request("CONSUMER.PAUSE.foo-read-east.billing", {"pause_until": NEVER}),
        false={CONSUMES},
    ),
    Case("a consumer of the topology has another filter", filtered_consumer, false={CONSUMES, MATCHES}),
    Case("a read stream gives messages of a region other subjects", wrong_transform, false={SERVES, FLOWS, MATCHES}),
    Case("a read stream was cut from a source", lost_source, false={FLOWS, MATCHES}),
    Case(
        "the duplicate window was changed", with_update("foo-write-west", duplicate_window=5 * 10**9), false={MATCHES}
    ),
    Case("a stream too many, made by vstream", extra_stream, false={MATCHES}),
    Case("a stream too many, of somebody else", foreign_stream),
    Case("a write stream was rolled back", rolled_back, false={FLOWS, COMPLETE}),
    Case("messages expired before a region had them", expire_messages, false={COMPLETE}),
    Case(
        "a message was deleted from a read stream",
        with_request("STREAM.MSG.DELETE.foo-read-east", {"seq": 2}),
        false={COMPLETE},
    ),
    Case("a region holds messages twice", started_over, false={COMPLETE, MATCHES}),
    Case("a server runs another version", other_version, false={MATCHES}),
)
"""All of them, in the order of the page."""
