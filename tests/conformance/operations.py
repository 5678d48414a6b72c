"""What nats.py can do with a stream: each operation alone, on subjects of its own, and raising where it does not work."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

from tests.conformance.place import PATIENCE, SOON, DiffersError, Place, eventually, must

Operation = Callable[[Place], Awaitable[None]]
_Answer = TypeVar("_Answer")
_WAIT = 30.0
_COUNT = 3
_CONSUMER_NOT_FOUND = 10014


async def publish(place: Place) -> None:
    ack = await place.js.publish(place.subject(), b"")
    must(ack.seq > 0, "no sequence")


async def publish_async(place: Place) -> None:
    acks = [await place.js.publish_async(place.subject(), b"") for _ in range(_COUNT)]
    for ack in acks:
        await asyncio.wait_for(ack, _WAIT)


async def publish_message_id(place: Place) -> None:
    subject, headers = place.subject(), {"Nats-Msg-Id": place.fresh()}
    first = await place.js.publish(subject, b"", headers=headers)
    second = await place.js.publish(subject, b"", headers=headers)
    must(not first.duplicate and bool(second.duplicate), "stored twice")


async def acknowledged_by_name(place: Place) -> None:
    ack = await place.js.publish(place.subject(), b"")
    must(ack.stream == place.stream, "named physically")


async def expect_stream(place: Place) -> None:
    await place.js.publish(place.subject(), b"", stream=place.stream)


async def expect_last_id(place: Place) -> None:
    if place.stream == "stretch":
        # Seen on 2.15.1: beside publishes of others, one of these stops a replicated stream for good.
        raise DiffersError("not tried")
    for _ in range(20):
        first = place.fresh()
        await place.js.publish(place.subject(), b"", headers={"Nats-Msg-Id": first})
        with contextlib.suppress(nats.js.errors.BadRequestError):  # somebody else published in between
            await place.js.publish(place.subject(), b"", headers={"Nats-Expected-Last-Msg-Id": first})
            return
    raise DiffersError("never the last")


async def expect_last_sequence(place: Place) -> None:
    for _ in range(20):
        ack = await place.js.publish(place.subject(), b"")
        with contextlib.suppress(nats.js.errors.BadRequestError):  # somebody else published in between
            await place.js.publish(place.subject(), b"", headers={"Nats-Expected-Last-Sequence": str(ack.seq)})
            return
    raise DiffersError("never the last")


async def expect_sequence_of_ack(place: Place) -> None:
    subject = place.subject()
    ack = await place.js.publish(subject, b"")
    expected = {"Nats-Expected-Last-Subject-Sequence": str(ack.seq)}
    await place.js.publish(subject, b"", headers=expected)
    try:
        await place.js.publish(subject, b"", headers=expected)
    except nats.js.errors.BadRequestError:
        return
    raise DiffersError("not compared")


async def expect_sequence_of_read(place: Place) -> None:
    subject = await place.store()
    read = await place.js.get_last_msg(place.stream, subject, direct=True)
    await place.js.publish(subject, b"", headers={"Nats-Expected-Last-Subject-Sequence": str(read.seq)})


async def expect_none_below(place: Place) -> None:
    """`Nats-Expected-Last-Subject-Sequence-Subject`: only if nothing is below a wildcard."""
    below = place.subject()
    expected = {
        "Nats-Expected-Last-Subject-Sequence": "0",
        "Nats-Expected-Last-Subject-Sequence-Subject": f"{below}.*",
    }
    await place.js.publish(f"{below}.a", b"", headers=expected)
    try:
        await place.js.publish(f"{below}.b", b"", headers=expected)
    except nats.js.errors.BadRequestError:
        return
    raise DiffersError("accepted although there is one")


async def core_publish(place: Place) -> None:
    subject = place.subject()
    await place.client.publish(subject, b"0")
    await place.visible(subject)


async def core_subscribe(place: Place) -> None:
    subject = f"{place.heard}.{place.fresh()}"
    subscription = await place.client.subscribe(f"{place.heard}.>")
    await place.client.flush()
    try:
        await place.js.publish(subject, b"0")
        await place.visible(subject, stream=place.heard)
        await place.store()  # what takes longer than a round trip through JetStream does not come
        copies = 0
        with contextlib.suppress(nats.errors.TimeoutError):
            while True:
                message = await subscription.next_msg(timeout=0.3)
                copies += message.subject == subject
    finally:
        await subscription.unsubscribe()
    must(copies == 1, f"{copies} copies")


async def pull_durable(place: Place) -> None:
    subject, name = await place.store(_COUNT), place.fresh()
    subscription = await place.js.pull_subscribe(subject, durable=name, stream=place.stream)
    messages = await _fetch(subscription, _COUNT)
    for message in messages:
        must(message.subject == subject, "another subject")
        await message.ack_sync(timeout=_WAIT)

    async def is_acknowledged() -> bool:
        return (await subscription.consumer_info()).num_ack_pending == 0

    await eventually(is_acknowledged, "not acknowledged")


async def pull_wildcard(place: Place) -> None:
    subject = await place.store()
    subscription = await place.js.pull_subscribe(f"{place.stream}.>", stream=place.stream, durable=place.fresh())
    await _until_found(subscription, subject)


async def pull_unfiltered(place: Place) -> None:
    subject, name = await place.store(), place.fresh()
    await place.js.add_consumer(place.stream, durable_name=name, ack_policy=AckPolicy.EXPLICIT)
    await _until_found(await place.js.pull_subscribe_bind(name, place.stream), subject)


async def pull_other_inbox(place: Place) -> None:
    subject, name = await place.store(), place.fresh()
    await place.js.add_consumer(place.stream, durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT)
    subscription = await place.js.pull_subscribe_bind(name, place.stream, inbox_prefix=b"mine.")
    for _ in range(50):
        with contextlib.suppress(nats.js.errors.ServiceUnavailableError):  # a consumer in another cluster, just made
            await subscription.fetch(1, timeout=SOON)
            return
        await asyncio.sleep(0.02)
    raise DiffersError("no responders")


async def pull_empty(place: Place) -> None:
    subject = place.subject()
    for body in (b"0", b"", b"2"):
        await place.js.publish(subject, body)
    await place.visible(subject, _COUNT)
    subscription = await place.js.pull_subscribe(subject, durable=place.fresh(), stream=place.stream)
    for _ in range(50):
        with contextlib.suppress(nats.js.errors.ServiceUnavailableError):  # a consumer in another cluster, just made
            must(len(await subscription.fetch(_COUNT, timeout=SOON)) == _COUNT, "not all came")
            return
        await asyncio.sleep(0.02)
    raise DiffersError("no responders")


async def pull_ephemeral(place: Place) -> None:
    subscription = await place.js.pull_subscribe(await place.store(_COUNT), stream=place.stream)
    await _fetch(subscription, _COUNT)


async def pull_several_filters(place: Place) -> None:
    subjects = [await place.store(), await place.store()]
    config = ConsumerConfig(
        filter_subjects=subjects, durable_name=place.fresh(), ack_policy=AckPolicy.EXPLICIT, inactive_threshold=60
    )
    await place.js.add_consumer(place.stream, config)
    subscription = await place.js.pull_subscribe_bind(config.durable_name, place.stream)
    must({message.subject for message in await _fetch(subscription, 2)} == set(subjects), "another subject")


async def pull_nothing(place: Place) -> None:
    subscription = await place.js.pull_subscribe(place.subject(), stream=place.stream)

    async def timed_out() -> bool:
        try:
            await subscription.fetch(1, timeout=0.2)
        except nats.errors.TimeoutError:
            return True
        except nats.js.errors.ServiceUnavailableError:  # a consumer in another cluster, just made
            return False
        raise DiffersError("found something")

    await eventually(timed_out, "no responders")


async def nak(place: Place) -> None:
    subscription = await place.js.pull_subscribe(await place.store(), stream=place.stream)
    (first,) = await _fetch(subscription, 1)
    await first.nak()
    (again,) = await _fetch(subscription, 1)
    must(again.metadata.num_delivered == 2, "not delivered again")


async def term(place: Place) -> None:
    subscription = await place.js.pull_subscribe(
        await place.store(), stream=place.stream, config=ConsumerConfig(ack_wait=0.5)
    )
    (first,) = await _fetch(subscription, 1)
    await first.term()
    try:
        await subscription.fetch(1, timeout=1.0)
    except nats.errors.TimeoutError:
        return
    raise DiffersError("delivered again")


async def in_progress(place: Place) -> None:
    subscription = await place.js.pull_subscribe(await place.store(), stream=place.stream)
    (message,) = await _fetch(subscription, 1)
    await message.in_progress()
    await message.ack_sync(timeout=_WAIT)


async def bind_and_fetch(place: Place) -> None:
    """A consumer that somebody made by the name that STREAM.INFO gives, as vstream's `consumers` are."""
    subject, name = await place.store(_COUNT), place.fresh()
    physical = (await place.js.stream_info(place.stream)).config.name or place.stream
    config = ConsumerConfig(durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT)
    await place.js.add_consumer(physical, config)
    subscription = await place.js.pull_subscribe_bind(name, place.stream)
    for message in await _fetch(subscription, _COUNT):
        await message.ack_sync(timeout=_WAIT)


async def push_durable(place: Place) -> None:
    subject = await place.store(_COUNT)
    await _receive_pushed(
        await place.js.subscribe(subject, stream=place.stream, durable=place.fresh(), manual_ack=True)
    )


async def push_unfiltered(place: Place) -> None:
    subject = await place.store()
    await _pushed_to(place, place.client.new_inbox(), subject, filter_subject=None)


async def push_fixed(place: Place) -> None:
    subject = await place.store()
    await _pushed_to(place, f"mine.{place.stream}.{place.fresh()}", subject, filter_subject=subject)


async def push_ephemeral(place: Place) -> None:
    await _receive_pushed(await place.js.subscribe(await place.store(_COUNT), stream=place.stream, manual_ack=True))


async def push_queue(place: Place) -> None:
    subject, name = await place.store(_COUNT), place.fresh()
    await _receive_pushed(await place.js.subscribe(subject, queue=name, stream=place.stream, manual_ack=True))


async def push_flow_control(place: Place) -> None:
    subject = await place.store(_COUNT)
    await _receive_pushed(
        await place.js.subscribe(subject, stream=place.stream, manual_ack=True, flow_control=True, idle_heartbeat=1.0)
    )


async def ordered_consumer(place: Place) -> None:
    subject = await place.store(_COUNT)
    subscription = await place.js.subscribe(subject, stream=place.stream, ordered_consumer=True)
    for number in range(_COUNT):
        message = await subscription.next_msg(timeout=_WAIT)
        must(message.data == str(number).encode(), "out of order")
    await subscription.unsubscribe()


async def ordered_consumer_of_all(place: Place) -> None:
    subject = await place.store()
    subscription = await place.js.subscribe(f"{place.stream}.>", stream=place.stream, ordered_consumer=True)
    while (await subscription.next_msg(timeout=_WAIT)).subject != subject:
        pass
    await subscription.unsubscribe()


async def subscribe_by_subject(place: Place) -> None:
    subscription = await place.js.pull_subscribe(await place.store(_COUNT))
    await _fetch(subscription, _COUNT)


async def consumer_info(place: Place) -> None:
    name = await _make_consumer(place)
    must((await place.js.consumer_info(place.stream, name)).name == name, "another name")


async def consumer_list(place: Place) -> None:
    name = await _make_consumer(place)

    async def is_listed() -> bool:  # servers that take too long to answer are left out
        return name in {info.name for info in await place.js.consumers_info(place.stream)}

    await eventually(is_listed, "not listed")


async def consumer_pause(place: Place) -> None:
    name = await _make_consumer(place)
    until = (datetime.now(UTC) + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    paused = await _ask_until_known(lambda: place.js.pause_consumer(place.stream, name, until))
    must(bool(paused.paused), "not paused")
    must(not (await place.js.resume_consumer(place.stream, name)).paused, "not resumed")


async def consumer_update(place: Place) -> None:
    config = ConsumerConfig(durable_name=place.fresh(), ack_policy=AckPolicy.EXPLICIT)
    await place.js.add_consumer(place.stream, config)
    changed = await place.js.add_consumer(place.stream, config, description="changed")
    must(changed.config is not None and changed.config.description == "changed", "not changed")


async def consumer_reset(place: Place) -> None:
    subject, name = await place.store(_COUNT), place.fresh()
    physical = (await place.js.stream_info(place.stream)).config.name or place.stream
    await place.js.add_consumer(physical, durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT)
    subscription = await place.js.pull_subscribe_bind(name, place.stream)
    for message in await _fetch(subscription, _COUNT):
        await message.ack_sync(timeout=_WAIT)
    await place.js.reset_consumer(place.stream, name, 1, timeout=SOON)
    await _fetch(subscription, _COUNT)


async def consumer_delete(place: Place) -> None:
    name = await _make_consumer(place)
    must(await _ask_until_known(lambda: place.js.delete_consumer(place.stream, name)), "not deleted")


async def stream_info(place: Place) -> None:
    must((await place.js.stream_info(place.stream)).state.messages > 0, "no messages")


async def stream_list(place: Place) -> None:
    must(place.stream in {info.config.name for info in await place.js.streams_info()}, "not listed by its name")


async def name_by_subject(place: Place) -> None:
    must(await place.js.find_stream_name_by_subject(place.subject()) == place.stream, "another name")


async def name_by_heard_subject(place: Place) -> None:
    must(await place.js.find_stream_name_by_subject(f"{place.heard}.x") == place.heard, "another name")


async def account_info(place: Place) -> None:
    await place.js.account_info()


async def get_by_sequence(place: Place) -> None:
    await _got(place, direct=False)


async def get_last(place: Place) -> None:
    subject = await place.store()

    async def is_found() -> bool:  # where it is answered by another copy than direct gets are
        return (await place.js.get_last_msg(place.stream, subject)).subject == subject

    await eventually(is_found, "not found")


async def direct_last(place: Place) -> None:
    subject = await place.store(_COUNT)
    message = await place.js.get_last_msg(place.stream, subject, direct=True)
    must((message.subject, message.data) == (subject, str(_COUNT - 1).encode()), "another message")


async def direct_by_sequence(place: Place) -> None:
    await _got(place, direct=True)


async def direct_next(place: Place) -> None:
    subject = await place.store()
    message = await place.js.get_msg(place.stream, seq=1, subject=subject, direct=True, next=True)
    must(message.subject == subject, "another subject")


async def delete_message(place: Place) -> None:
    subject = await place.store()
    message = await place.js.get_last_msg(place.stream, subject)
    must(await place.js.delete_msg(place.stream, message.seq or 0), "not deleted")

    async def is_gone() -> bool:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await place.js.get_last_msg(place.stream, subject, direct=True)
            return False
        return True

    await eventually(is_gone, "copies keep it", within=SOON)


async def purge_subject(place: Place) -> None:
    await place.js.purge_stream(place.stream, subject=await place.store())


async def _make_consumer(place: Place) -> str:
    """A consumer that is made by the physical name where it cannot be by the virtual one."""
    name = place.fresh()
    physical = (await place.js.stream_info(place.stream)).config.name or place.stream
    config = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT, deliver_policy=DeliverPolicy.ALL)
    await place.js.add_consumer(physical, config)
    return name


async def _ask_until_known(ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """
    What *ask* returns, which is about a consumer that was just made.

    Its own server has said that it is there. The meta leader may hear of it later, and answers 10014 until then, on any cluster
    (docs/routing.md).
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except nats.js.errors.NotFoundError as error:
            if error.err_code != _CONSUMER_NOT_FOUND or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.02)


async def _got(place: Place, *, direct: bool) -> None:
    subject = await place.store()
    last = await place.js.get_last_msg(place.stream, subject, direct=direct)
    message = await place.js.get_msg(place.stream, seq=last.seq, direct=direct)
    must(message.subject == subject, "another subject")


async def _fetch(subscription: JetStreamContext.PullSubscription, count: int) -> list[Msg]:
    result: list[Msg] = []
    for _ in range(50):
        with contextlib.suppress(nats.js.errors.ServiceUnavailableError):  # a consumer in another cluster, just made
            result += await subscription.fetch(count - len(result), timeout=_WAIT)
        if len(result) == count:
            return result
        await asyncio.sleep(0.02)
    raise DiffersError(f"{len(result)} of {count} messages")


async def _until_found(subscription: JetStreamContext.PullSubscription, subject: str) -> None:
    while True:
        (message,) = await _fetch(subscription, 1)
        await message.ack()
        if message.subject == subject:
            return


async def _pushed_to(place: Place, deliver: str, subject: str, *, filter_subject: str | None) -> None:
    config = ConsumerConfig(
        durable_name=place.fresh(),
        deliver_subject=deliver,
        ack_policy=AckPolicy.EXPLICIT,
        filter_subject=filter_subject,
    )
    await place.js.add_consumer(place.stream, config)
    subscription = await place.js.subscribe_bind(place.stream, config, config.durable_name or "", manual_ack=True)
    while True:
        message = await subscription.next_msg(timeout=SOON)
        await message.ack()
        if message.subject == subject:
            break
    await subscription.unsubscribe()


async def _receive_pushed(subscription: JetStreamContext.PushSubscription) -> None:
    for _ in range(_COUNT):
        await (await subscription.next_msg(timeout=_WAIT)).ack()
    await subscription.unsubscribe()


OPERATIONS: dict[str, dict[str, Operation]] = {
    "publishing": {
        "publish": publish,
        "publish, asynchronously": publish_async,
        "the acknowledgement names the virtual stream": acknowledged_by_name,
        "a message id twice": publish_message_id,
        "expect the stream's name": expect_stream,
        "expect the last message id": expect_last_id,
        "expect the last sequence": expect_last_sequence,
        "expect a subject's sequence, from an acknowledgement": expect_sequence_of_ack,
        "expect a subject's sequence, from a read": expect_sequence_of_read,
        "expect that nothing is below a wildcard": expect_none_below,
        "core publish": core_publish,
        "core subscribe: one copy, the original subject": core_subscribe,
    },
    "consuming": {
        "pull: durable, fetch, acknowledge": pull_durable,
        "pull: durable, a wildcard as filter": pull_wildcard,
        "pull: durable, no filter": pull_unfiltered,
        "pull: an empty message among others": pull_empty,
        "pull: ephemeral": pull_ephemeral,
        "pull: several filters": pull_several_filters,
        "pull: nothing there": pull_nothing,
        "pull: another inbox prefix": pull_other_inbox,
        "negative acknowledgement": nak,
        "terminate": term,
        "in progress": in_progress,
        "bind to a consumer that is there, fetch, acknowledge": bind_and_fetch,
        "push: durable": push_durable,
        "push: durable, no filter": push_unfiltered,
        "push: to a subject of the client's choice": push_fixed,
        "push: ephemeral": push_ephemeral,
        "push: queue group": push_queue,
        "push: flow control": push_flow_control,
        "ordered consumer": ordered_consumer,
        "ordered consumer of all subjects": ordered_consumer_of_all,
        "subscribe by subject alone": subscribe_by_subject,
        "consumer: info": consumer_info,
        "consumer: list": consumer_list,
        "consumer: pause and resume": consumer_pause,
        "consumer: update": consumer_update,
        "consumer: reset": consumer_reset,
        "consumer: delete": consumer_delete,
    },
    "looking": {
        "stream: info": stream_info,
        "stream: list": stream_list,
        "stream: name by subject": name_by_subject,
        "stream: name by subject, where core subscribers hear it": name_by_heard_subject,
        "account: info": account_info,
        "get by sequence": get_by_sequence,
        "get the last of a subject": get_last,
        "direct get the last of a subject": direct_last,
        "direct get by sequence": direct_by_sequence,
        "direct get the next of a subject": direct_next,
    },
    "changing": {
        "delete a message, everywhere": delete_message,
        "purge a subject": purge_subject,
    },
}
"""By group and name, in the order of the table."""
