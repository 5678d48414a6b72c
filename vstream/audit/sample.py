"""
A quick look: a few subjects, chosen by chance, and every message of them.

A share of the messages would show nothing: that a message is not in it says nothing
about the stream. A share of the subjects is whole, in every stream, and servers read
no more than that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from vstream.audit.routes import SEPARATOR, parse_route
from vstream.audit.source.client import api_request, connect
from vstream.errors import VstreamError
from vstream.topology.stream_config import source_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.audit.routes import SubjectRoute
    from vstream.audit.source.values import Access, StreamCut
    from vstream.topology.bundle import RenderedStream

MOST: Final = 500
"""Subjects that one consumer is asked to filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSample:
    """What is read of each stream."""

    cuts: tuple[StreamCut, ...]
    """As they were, with the subjects that are wanted; those that have none of them hold nothing to read."""
    chosen: int
    total: int
    """Subjects that there are, as clients see them."""


def sample_subjects(
    cuts: Sequence[StreamCut],
    streams: Sequence[RenderedStream],
    access: Mapping[str, Access],
    *,
    number: int,
    chance: random.Random | None = None,
) -> SubjectSample:
    """
    *number* subjects of each virtual stream among *cuts* of *streams*, and where they are.

    Raises VstreamError where it is not known what a subject becomes on its way.
    """
    chance = chance or random.Random()  # noqa: S311 - no secret
    found: list[StreamCut] = []
    chosen = total = 0
    for virtual in dict.fromkeys(one.stream_ref.virtual for one in cuts):
        some = [one for one in cuts if one.stream_ref.virtual == virtual]
        ways = _routes_by_origin([one for one in streams if one.virtual == virtual])
        # Streams that nothing is taken from are the ends of ways: there a subject is what clients see.
        names = {one.stream_ref.stream: _subjects_by_key(one, ways.get(one.stream_ref.stream), access) for one in some}
        keys = sorted(set().union(*names.values()))
        picked = set(chance.sample(keys, min(number, len(keys))))
        chosen, total = chosen + len(picked), total + len(keys)
        for one in some:
            subjects = sorted(
                subject for key, held in names[one.stream_ref.stream].items() if key in picked for subject in held
            )
            found.append(replace(one, subjects=tuple(subjects), messages=one.messages if subjects else 0))
    order = [one.stream_ref for one in cuts]
    return SubjectSample(
        cuts=tuple(sorted(found, key=lambda one: order.index(one.stream_ref))), chosen=chosen, total=total
    )


def _routes_by_origin(streams: Sequence[RenderedStream]) -> dict[str, list[SubjectRoute]]:
    """By stream that another one takes from with a transform: what subjects become. Raises VstreamError."""
    ways: dict[str, list[SubjectRoute]] = {}
    for one in streams:
        whole: Any = one.config.fields.get("subject_transform")
        sources: Any = one.config.fields.get("sources") or ()
        for source in sources:
            pairs = source.get("subject_transforms") or [{"src": source.get("filter_subject") or ">", "dest": ">"}]
            way = parse_route(
                SEPARATOR.join(pair["src"] for pair in pairs),
                SEPARATOR.join(pair.get("dest") or pair["src"] for pair in pairs),
                (whole["src"], whole["dest"]) if whole else None,
            )
            if way is None:
                raise VstreamError(
                    f"what `{one.config.name}` makes of the subjects of `{source_name(source, one.config.name)}` is not known",
                    hint="audit it without --sample",
                )
            ways.setdefault(source_name(source, one.config.name), []).append(way)
    return ways


def _subjects_by_key(
    one: StreamCut, ways: Sequence[SubjectRoute] | None, access: Mapping[str, Access]
) -> dict[str, list[str]]:
    """The subjects that *one* holds, by what clients see."""
    found: dict[str, list[str]] = {}
    if not one.is_readable:
        return found
    for subject in _list_subjects(one, access[one.stream_ref.region]):
        keys = [key for way in ways or () if (key := way.apply(subject)) is not None]
        if keys or not ways:
            found.setdefault(keys[0] if keys else subject, []).append(subject)
    return found


def _list_subjects(one: StreamCut, access: Access) -> list[str]:
    subjects: list[str] = []
    with connect(access) as client:
        while True:
            body = {"subjects_filter": ">", "offset": len(subjects)}
            answer = api_request(client, access.of(one.stream_ref.stream), f"STREAM.INFO.{one.stream_ref.name}", body)
            page = answer["state"].get("subjects") or {}
            subjects += page
            if not page or len(subjects) >= int(answer.get("total") or 0):
                return subjects
