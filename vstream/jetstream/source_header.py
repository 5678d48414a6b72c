"""Headers of messages: where a sourced one came from, and what a publisher writes."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterable, Mapping
from typing import Any

from vstream.jetstream.answers import parse_sequence
from vstream.topology.stream_config import REPLAY_SUFFIX, header_name, source_name
from vstream.value_class import value_class

STREAM_SOURCE = "Nats-Stream-Source"
MSG_ID = "Nats-Msg-Id"
"""The publisher's id of a message, of which a stream stores one within its duplicate window."""
EXPECTED_STREAM = "Nats-Expected-Stream"
"""The stream that is to store a message; any other refuses it."""
_LETTERS = string.ascii_letters + string.digits
_REPLAY = re.compile(REPLAY_SUFFIX)


def origin_of(
    headers: Mapping[str, str], streams: Iterable[str] = (), *, reader: str | None = None
) -> tuple[str | None, int | None]:
    """
    The stream that a sourced message came from, and its sequence there: `foo-write-west 17 …`.

    For a stream in another account servers write a hash, which is looked up among *streams*. *reader* holds the message.
    """
    words = headers.get(STREAM_SOURCE, "").split(" ")
    seq = parse_sequence(words[1]) if len(words) > 1 else None
    if seq is None:
        return None, None
    by_header_name = {header_name(stream, reader): stream for stream in streams}
    return by_header_name.get(words[0], words[0]), seq


def read_positions(info: Mapping[str, Any], reader: str) -> dict[str, int]:
    """
    How far the stream *reader* is in each source, as servers since 2.15 say in its *info*; without those it says nothing of.

    A stream that is sourced twice, with other filters, is as far as the one that is behind.
    """
    cursors: dict[str, int] = {}
    for source in info.get("sources") or ():
        name, seq = source_name(source, reader), int(source.get("seq") or 0)
        cursors[name] = min(seq, cursors.get(name, seq))
    return {name: seq for name, seq in cursors.items() if seq}


@value_class
class Provenance:
    """All that a sourced message says about where it came from."""

    origin: str
    seq: int
    is_replayed: bool
    """Whether a repair inserted it: it stands after later messages of its origin."""
    definition: tuple[str, str]
    """Filters and destinations of the source that copied it; empty on servers that do not write them."""
    identity: str
    """Identity of the stream that it came from; empty before 2.15."""


def parse_provenance(headers: Mapping[str, str]) -> Provenance | None:
    """Parse `Nats-Stream-Source`; None if it is missing or malformed."""
    words = headers.get(STREAM_SOURCE, "").split(" ")
    seq = parse_sequence(words[1]) if len(words) > 1 else None
    if seq is None:
        return None
    replayed = parse_replay(words[0])
    more = [*words[2:], "", "", "", ""]
    return Provenance(
        origin=words[0] if replayed is None else replayed[0],
        seq=seq,
        is_replayed=replayed is not None,
        definition=(more[0], more[1]),
        # That of a replay is the identity of a stream that is gone.
        identity=more[3] if replayed is None else "",
    )


def parse_replay(stream: str) -> tuple[str, str] | None:
    """The origin that the temporary replay *stream* stands for, and its token; None if it is not a replay stream."""
    match = _REPLAY.search(stream)
    return None if match is None else (stream[: match.start()], match[0].removeprefix(":"))


def new_replay_name(origin: str) -> tuple[str, str]:
    """
    The name of a new stream that replays messages of *origin*, and its token.

    Never a name that was used before: servers continue where a source with the same name and transforms stopped.
    """
    token = "Rpl" + "".join(secrets.choice(_LETTERS) for _ in range(5))
    return f"{origin}:{token}", token
