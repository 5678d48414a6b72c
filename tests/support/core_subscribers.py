"""What subscribers that know nothing of JetStream hear of a virtual stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.support.probe_lab import until

_MESSAGES = 20
_PATIENCE = 20.0


async def everybody_hears_everything_once(app: Mapping[str, Client], prefix: str) -> None:
    """What is published below *prefix* in each region is heard by the clients of all: one copy, the subject as it was."""
    heard: dict[str, Counter[str]] = {region: Counter() for region in app}

    async def hear(region: str, message: Msg) -> None:
        heard[region][message.subject] += 1

    for region in app:
        await app[region].subscribe(f"{prefix}.>", cb=partial(hear, region))
        await app[region].flush()

    async def everywhere(kind: str) -> str | None:
        expected = {f"{prefix}.{kind}.{region}" for region in app}
        for region in app:
            await app[region].jetstream(timeout=_PATIENCE).publish(f"{prefix}.{kind}.{region}", b"")
        lacking = {region: expected - heard[region].keys() for region in app}
        return f"{kind} lacks {lacking}" if any(lacking.values()) else None

    await until(partial(everywhere, "first"))  # that there is a subscriber takes a moment to reach the other regions
    subjects = {f"{prefix}.{region}.{number}" for region in app for number in range(_MESSAGES)}
    for region in app:
        for number in range(_MESSAGES):
            await app[region].jetstream(timeout=_PATIENCE).publish(f"{prefix}.{region}.{number}", b"")
    await until(partial(everywhere, "last"))  # a second copy of what came before would be here by now
    for region in app:
        assert {subject: heard[region][subject] for subject in subjects} == dict.fromkeys(subjects, 1), region
