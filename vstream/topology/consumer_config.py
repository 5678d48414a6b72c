"""Durable consumers as the JetStream API speaks them: whose they are, on which physical stream, and how far they are."""

from __future__ import annotations

from collections.abc import Mapping

from vstream.syntax.document import Json
from vstream.topology.stream_config import TOPOLOGY_KEY, parse_metadata
from vstream.value_class import value_class

FAILOVER_KEY = "vstream.failover"
"""Metadata of a consumer that got the position of another: whose, and when. Its start is no drift."""
POSITION_KEY = "vstream.position"
"""Metadata of a consumer that records the position of another region's consumer, and delivers nothing itself."""


@value_class
class ConsumerConfig:
    """A durable consumer. *stream* is the physical stream that it is on, with its account where it has one."""

    stream: str
    durable: str
    fields: Mapping[str, Json]
    """Every field as sent or received, in the API's spelling; durations in nanoseconds."""

    @property
    def name(self) -> str:
        """Its name among all consumers and streams: `foo-read-west > reader`."""
        return f"{self.stream} > {self.durable}"

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata, empty if there is none."""
        return parse_metadata(self.fields)

    @property
    def owner(self) -> str | None:
        """The topology that created this consumer, None if vstream did not."""
        return self.metadata.get(TOPOLOGY_KEY)


@value_class
class ObservedConsumer:
    """A consumer as the servers report it. Sequences are those of its stream."""

    config: ConsumerConfig
    created: str
    """RFC 3339, as the server wrote it."""
    leader: str | None
    """Its leader. None while none is elected, and on servers that are not clustered."""
    delivered: int
    """The last sequence that was delivered."""
    ack_floor: int
    """The sequence up to which everything that it delivers was acknowledged."""
    unacknowledged: int
    """Delivered messages that nobody has acknowledged yet."""
    redelivered: int
    waiting: int
    """Waiting pull requests: clients that use it now."""
    pending: int
    """Messages that were not delivered yet."""
    is_paused: bool = False
    """Whether somebody has paused it (from 2.11)."""
