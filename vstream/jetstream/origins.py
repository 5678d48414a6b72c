"""Where a sourced message came from: the `Nats-Stream-Source` header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.model.streams import as_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STREAM_SOURCE = "Nats-Stream-Source"


def origin_of(
    headers: Mapping[str, str], streams: Iterable[str] = (), *, taker: str | None = None
) -> tuple[str | None, int | None]:
    """
    The stream that a sourced message came from, and its sequence there: `foo-write-west 17 …`.

    Of a stream in another account servers write a hash: it is looked up among *streams*. *taker* holds the message.
    """
    words = headers.get(STREAM_SOURCE, "").split(" ")
    if len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004
        return None, None
    known = {as_source(stream, taker): stream for stream in streams}
    return known.get(words[0], words[0]), int(words[1])
