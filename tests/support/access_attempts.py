"""
What an application tries that is none of its business, operation by operation: the whole JetStream API, at every name
under which it could reach a physical stream, and every subject that lies behind virtual ones.

What is tried is refused by servers themselves, or stands in `harmless`, with the reason in docs/routing.md.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import nats.errors

from tests.support import labs
from tests.support.probe_lab import until
from vstream.lab.endpoints import list_endpoints
from vstream.topology.accounts import AUDIT_USER, PROBE_USER, USERS, VSTREAM_USER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nats.js import JetStreamContext

PATIENCE = 60.0
LISTS = ("INFO", "STREAM.LIST", "STREAM.NAMES")
ACK = "1.1.1.1700000000000000000.0"
ELSEWHERE = (
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.SERVER.PING.VARZ",
    "$SYS.REQ.ACCOUNT.W_west.INFO",
    "$SYS.REQ.CLAIMS.UPDATE",
    "$JS.EVENT.ADVISORY.API",
    "$JS.SNAPSHOT.ACK.foo.x",
    "$JS.SNAPSHOT.RESTORE.foo.x",
    "_INBOX.somebody",
    "_vs.text.x",
    "_vs.heard.foo.x",
    "other.subject",
)
"""What nobody but servers and vstream has anything to say on."""
UNSEEN = (
    ">",
    "foo.>",
    "v.>",
    "$KV.>",
    "*.west.*",
    "_vs.>",
    "_vs.w.>",
    "_vs.to.>",
    "_vs.heard.>",
    "$JS.>",
    "$JS.API.>",
    "$JS.ACK.>",
    "$JS.FC.>",
    "$JS.S.>",
    "$JS.EVENT.>",
    "$SYS.>",
)
"""What it may not subscribe to."""


def changes(stream: str, account: str) -> Iterator[str]:
    """What of the JetStream API changes streams or servers (server/jetstream_api.go)."""
    for verb in (
        *("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE"),
        *("LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE", "CANCEL_MOVE"),
    ):
        yield f"STREAM.{verb}.{stream}"
    yield "STREAM.CREATE.mine"
    yield f"CONSUMER.LEADER.STEPDOWN.{stream}.nobody"
    yield from ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE")
    yield f"ACCOUNT.PURGE.{account}"
    yield from (f"ACCOUNT.STREAM.{verb}.{account}.{stream}" for verb in ("MOVE", "CANCEL_MOVE"))


def looks(stream: str) -> Iterator[str]:
    """The rest of it that names a stream: an application may do so with virtual streams, and not with physical ones."""
    yield from (f"STREAM.{verb}.{stream}" for verb in ("INFO", "MSG.GET"))
    yield from (f"CONSUMER.{verb}.{stream}" for verb in ("CREATE", "LIST", "NAMES"))
    for verb in ("CREATE", "DURABLE.CREATE", "DELETE", "INFO", "PAUSE", "RESET", "UNPIN", "MSG.NEXT"):
        yield f"CONSUMER.{verb}.{stream}.nobody"
    yield f"CONSUMER.CREATE.{stream}.nobody.foo.>"
    yield from (f"DIRECT.GET.{stream}", f"DIRECT.GET.{stream}.foo.west.1")


def answers(stream: str) -> Iterator[str]:
    """What takers of a consumer of *stream* say to it, with and without a domain in front (server/consumer.go)."""
    for domain in ("", "west.hash."):
        yield f"$JS.ACK.{domain}{stream}.nobody.{ACK}"
        yield f"$JS.FC.{domain}{stream}.nobody.x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trespass:
    """What an application tries from one region."""

    publish: tuple[tuple[str, str], ...]
    """What it publishes, and as what servers see that, after mapping."""
    harmless: tuple[str, ...]
    """What is permitted, although it names what lies behind virtual streams."""
    managed: tuple[str, ...]
    """Where `vstream` reaches the API of whatever has physical streams, from there."""


def in_accounts(region: str, regions: Iterable[str]) -> Trespass:
    """With `routing: accounts`, in both modes of security."""
    regions = tuple(regions)
    hidden = tuple(f"{kind}_{region}" for kind in "WR" for region in regions)
    forbidden = tuple(f"$JS.API.{change}" for change in changes("foo", "W_west"))
    return Trespass(
        publish=(
            *((subject, f"_vs.at.{region}.{subject}") for subject in forbidden),
            *_as_they_are(
                *(f"_vs.at.{region}.{subject}" for region in regions for subject in forbidden),
                *(
                    f"_vs.api.{account}.{request}"
                    for account in hidden
                    for request in (*changes("foo", account), *looks("foo"), *LISTS)
                ),
                *(f"_vs.from.{account}.CONSUMER.CREATE.foo{name}" for account in hidden for name in ("", ".x", ".x.>")),
                *(f"_vs.to.W_{region}.R_{reader}.x" for region in regions for reader in regions),
                "_vs.at.west.other.subject",
                "_vs.w.foo.x",
                "foo",
                *ELSEWHERE,
            ),
        ),
        harmless=(
            *(f"_vs.at.{region}.foo.x" for region in regions),
            *(f"_vs.at.{region}.$JS.API.{look}" for region in regions for look in (*looks("foo"), *LISTS)),
            *answers("foo"),
        ),
        managed=tuple(f"_vs.api.{request}" for request in hidden),
    )


def in_regions(region: str, regions: Iterable[str]) -> Trespass:
    """With `routing: regional`, where the stretch cluster has an account too."""
    accounts = (*(f"APP_{region}" for region in regions), "S_stretch")
    mine = f"APP_{region}"
    return Trespass(
        publish=_as_they_are(
            *(
                f"$JS.API.{request}"
                for request in (*changes("foo", mine), *changes("foo-write", mine), *looks("foo-write"))
            ),
            *answers("foo-write"),
            *(
                f"_vs.api.{account}.{request}"
                for account in accounts
                for stream in ("foo", "foo-write")
                for request in (*changes(stream, account), *looks(stream), *LISTS)
            ),
            *(
                f"_vs.from.{account}.CONSUMER.CREATE.{stream}"
                for account in accounts
                for stream in ("foo", "foo-write", "foo-write.x", "foo-write.x.>")
            ),
            *(f"_vs.to.{account}.{reader}.x" for account in accounts for reader in accounts if account != reader),
            "_vs.w.other.subject",
            *ELSEWHERE,
        ),
        harmless=("_vs.w.v.foo.x", *(f"$JS.API.{request}" for request in (*looks("foo"), *LISTS)), *answers("foo")),
        managed=tuple(f"_vs.api.{account}" for account in accounts),
    )


def in_domains(region: str, regions: Iterable[str]) -> Trespass:
    """With `routing: domains`."""
    requests = (*changes("foo", "APP"), *changes("foo-write", "APP"), *looks("foo-write"))
    return Trespass(
        publish=(
            # Servers map the name of their own domain away.
            *((f"$JS.{region}.API.{request}", f"$JS.API.{request}") for request in requests),
            *_as_they_are(
                *(f"$JS.API.{request}" for request in requests),
                *answers("foo-write"),
                *(
                    f"$JS.{other_region}.API.{request}"
                    for other_region in regions
                    if other_region != region
                    for stream in ("foo", "foo-write")
                    for request in (*changes(stream, "APP"), *looks(stream), *LISTS)
                ),
                # What passes between regions.
                *("$JSC.R.x", "$JS.S.x", "_GR_.x.y.z"),
                "_vs.w.other.subject",
                *ELSEWHERE,
            ),
        ),
        harmless=("_vs.w.foo.x", *(f"$JS.API.{request}" for request in (*looks("foo"), *LISTS)), *answers("foo")),
        managed=("$JS.API",),
    )


def _as_they_are(*subjects: str) -> tuple[tuple[str, str], ...]:
    return tuple((subject, subject) for subject in subjects)


async def nothing_physical_is_reached(lab: str, region: str, trespass: Trespass) -> None:
    """Try all of *trespass* in *region* as an application, and find every stream as it was."""
    before = await streams(lab, region, trespass)
    async with labs.client(lab, region) as connection:
        refused = connection.refused  # type: ignore[attr-defined]
        replies = await connection.subscribe("_INBOX.security.*")
        for number, (subject, _) in enumerate(trespass.publish):
            await connection.publish(subject, b"", reply=f"_INBOX.security.{number}")
        for pattern in UNSEEN:
            await connection.subscribe(pattern)
        published = [mapped for _, mapped in trespass.publish]
        await until(partial(_find_unrefused, UNSEEN, refused, published), within=PATIENCE)
        assert replies.pending_msgs == 0
        await no_library_call_does(connection.jetstream(timeout=1))
    assert await streams(lab, region, trespass) == before
    await nobody_hears_answers_to_others(lab, region)


async def nobody_hears_answers_to_others(lab: str, region: str) -> None:
    """No user may subscribe where another is answered; `vstream`, who may to more than its own, is sent nothing of it."""
    inboxes = {user: list_endpoints(lab, user)[region].inbox for user in USERS}
    for user in USERS:
        async with labs.client(lab, region, user) as connection:
            theirs = [f"{inbox}.stolen" for owner, inbox in inboxes.items() if owner != user]
            for subject in theirs:
                await connection.subscribe(subject)
            refused = connection.refused  # type: ignore[attr-defined]
            await until(partial(_find_unrefused, theirs, refused), within=PATIENCE)
    async with labs.client(lab, region, VSTREAM_USER) as listener:
        heard = await listener.subscribe(f"{inboxes[VSTREAM_USER]}.>")
        await listener.flush()
        for user in (PROBE_USER, AUDIT_USER):
            async with labs.client(lab, region, user) as connection:
                assert (await connection.request("$SYS.REQ.USER.INFO", timeout=PATIENCE)).data
        await listener.flush()
        assert heard.pending_msgs == 0


async def the_rest_is_permitted(lab: str, region: str, trespass: Trespass) -> None:
    """Servers refuse none of what is harmless: the table in docs/routing.md is what they do. It publishes messages."""
    async with labs.client(lab, region) as connection:
        for subject in trespass.harmless:
            await connection.publish(subject, b"")
        await connection.flush()  # servers answer in order, refusals too
        assert not connection.refused  # type: ignore[attr-defined]


async def _find_unrefused(heard: Sequence[str], refused: list[str], published: Sequence[str] = ()) -> str | None:
    """What of all that was tried the server has not refused, subject by subject, as mapped."""
    tried = Counter(
        [
            *(f'publish to "{mapped}"'.lower() for mapped in published),
            *(f'subscription to "{subject}"'.lower() for subject in heard),
        ]
    )
    allowed = tried - Counter(text.lower().partition(" violation for ")[2] for text in refused)
    return f"not refused: {sorted(allowed)}" if allowed else None


async def streams(lab: str, region: str, trespass: Trespass) -> Mapping[str, Any]:
    """The configurations and messages of all physical streams that can be seen from *region*."""
    result = {}
    async with labs.client(lab, region, "vstream") as connection:
        for prefix in trespass.managed:
            answer = json.loads((await connection.request(f"{prefix}.STREAM.LIST", timeout=PATIENCE)).data)
            for stream in answer["streams"] or ():
                state = {key: stream["state"][key] for key in ("messages", "first_seq", "last_seq")}
                result[f"{prefix}/{stream['config']['name']}"] = (stream["config"], state)
    assert result
    return result


async def no_library_call_does(js: JetStreamContext) -> None:
    """What the library offers to change streams: no answer comes, since servers refuse the request itself."""
    calls = (
        js.add_stream(name="mine", subjects=["mine.>"]),
        js.update_stream(name="foo", subjects=["foo.>"], max_msgs=1),
        js.delete_stream("foo"),
        js.purge_stream("foo"),
        js.purge_stream("foo", subject="foo.west.1"),
        js.delete_msg("foo", 1),
        js.create_key_value(bucket="mine"),
        js.delete_key_value("settings"),
        js.create_object_store("mine"),
    )
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(
        isinstance(outcome, (nats.errors.TimeoutError, nats.errors.NoRespondersError)) for outcome in outcomes
    ), outcomes
