"""The physical streams behind a virtual stream, and which of them each region reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vstream.capture.records import CapturedStream, Manifest

READ_ROLES = frozenset({"read", "mirror"})
"""Roles of streams that clients read and never publish to."""
_BETWEEN = frozenset({"order"})
"""Roles of streams between write and read streams."""
_EMPTY = frozenset({"catalog"})
"""Roles of streams that never hold a message: they exist to be found by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The physical streams of one virtual stream."""

    writes: tuple[CapturedStream, ...]
    """The streams that acknowledge publishes."""
    copies: tuple[CapturedStream, ...]
    """The streams that get their messages from others."""
    served: Mapping[str, CapturedStream | None]
    """The stream that clients read, by region. None: it should exist, and is not in the capture."""


def find_layout(manifest: Manifest, stream: str, published: Iterable[str]) -> Layout:
    """
    The layout of the virtual *stream*; *published* are the regions that published on it.

    A region without a read stream reads the write stream if there is exactly one.
    """
    captured = [item for item in manifest.streams if item.virtual == stream and item.role not in _EMPTY]
    writes = tuple(item for item in captured if item.role not in READ_ROLES | _BETWEEN)
    reads = {item.region: item for item in captured if item.role in READ_ROLES}
    alone = writes[0] if len(writes) == 1 and manifest.models.get(stream) != "virtual" else None
    requested = {item.region for item in captured} | set(published)
    living = [region for region in manifest.regions if region not in manifest.absent]
    regions = [region for region in living if alone is not None or region in requested]
    return Layout(
        writes=writes,
        copies=tuple(item for item in captured if item.role in READ_ROLES | _BETWEEN),
        served={region: reads.get(region, alone) for region in regions},
    )
