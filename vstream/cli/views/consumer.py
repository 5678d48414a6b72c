"""Going on with a consumer in another region, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.plan.consumer_failover import Landing, Position
    from vstream.topology.consumer_config import ConsumerConfig, ObservedConsumer


def failover(
    position: Position,
    landing: Landing,
    found: ObservedConsumer | None,
    config: ConsumerConfig,
    *,
    is_recorded: bool,
) -> Iterator[Text]:
    """Where it was, where that is in the other region, and what comes again."""
    origins = ", ".join(f"{name} {seq:,}" for name, seq in position.origins.items())
    when = f"as of {position.at}" if is_recorded else "now"
    yield Text.assemble((position.consumer, "bold"), f" in {position.region}, {when}: has everything up to {origins}")
    for name in position.unknown:
        yield Text.assemble(
            ("  ? ", "yellow"), f"no message of `{name}` was found before it: all of them count as not acknowledged"
        )
    verb = "replaces" if found else "makes"
    yield Text.assemble(
        f"  {verb} ", (config.name, "bold"), f", beginning with sequence {landing.start:,}: {landing.ahead:,} messages"
    )
    if found is not None and found.delivered:
        yield Text(
            f"      it was at {found.ack_floor:,} ({found.unacknowledged:,} not acknowledged), which is given up"
        )
    yield Text.assemble("  seen twice: ", (f"{landing.again:,}", "bold"), " for certain")
    if position.beyond:
        yield Text(f"      and {position.beyond:,} that were acknowledged out of order")
    if position.unacknowledged:
        yield Text(f"      and up to {position.unacknowledged:,} that were delivered and not acknowledged")
    if is_recorded:
        yield Text("      and everything that was acknowledged since then: nobody knows how much")
    yield Text("  skipped: none of what that region holds or will get")
