"""Where a sourced message came from: the `Nats-Stream-Source` header."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM_SOURCE = "Nats-Stream-Source"


def origin_of(headers: Mapping[str, str]) -> tuple[str | None, int | None]:
    """The stream that a sourced message came from, and its sequence there: `foo-write-west 17 …`."""
    words = headers.get(STREAM_SOURCE, "").split(" ")
    if len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004
        return None, None
    return words[0], int(words[1])
