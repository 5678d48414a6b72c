"""
Sampling: audit a few random subjects with all their messages.

A sample of messages would prove nothing: if a message is not in it, the stream may still
have it. A sample of subjects is complete in every stream, and servers read nothing
else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vstream.audit.connector.client import api_request, connect
from vstream.audit.connector.values import Access, ReadSnapshot, StreamRef
from vstream.audit.normalise.routes import SEPARATOR, SubjectRoute, parse_route
from vstream.errors import VstreamError
from vstream.jetstream.answers import convert_malformed_errors
from vstream.topology.bundle import RenderedStream
from vstream.topology.stream_config import source_name


def sample_subjects(
    snapshots: Sequence[ReadSnapshot], streams: Sequence[RenderedStream], access: Mapping[str, Access], *, number: int
) -> list[ReadSnapshot]:
    """
    *snapshots* of *streams*, limited to *number* random subjects of each virtual stream.

    Snapshots without such subjects have nothing to read. Raises VstreamError if a source's transform is not understood.
    """
    sampled: dict[StreamRef, ReadSnapshot] = {}
    for virtual in dict.fromkeys(snapshot.stream_ref.virtual for snapshot in snapshots):
        group = [snapshot for snapshot in snapshots if snapshot.stream_ref.virtual == virtual]
        routes_of = _routes_by_origin([stream for stream in streams if stream.virtual == virtual])
        # Streams that nothing is taken from are the ends of ways: there a subject is what clients see.
        names = {}
        for item in group:
            names[item.stream_ref.stream] = _subjects_by_key(item, routes_of.get(item.stream_ref.stream), access)
        keys = sorted(set().union(*names.values()))
        picked = set(random.sample(keys, min(number, len(keys))))
        for entry in group:
            subjects = sorted(
                subject for key, held in names[entry.stream_ref.stream].items() if key in picked for subject in held
            )
            messages = entry.messages if subjects else 0
            sampled[entry.stream_ref] = replace(entry, subjects=tuple(subjects), messages=messages)
    return [sampled[snapshot.stream_ref] for snapshot in snapshots]


def _routes_by_origin(streams: Sequence[RenderedStream]) -> dict[str, list[SubjectRoute]]:
    """By stream that is sourced with a transform: its routes. Raises VstreamError if one is not understood."""
    routes_of: dict[str, list[SubjectRoute]] = {}
    for stream in streams:
        whole: Any = stream.config.fields.get("subject_transform")
        sources: Any = stream.config.fields.get("sources") or ()
        for source in sources:
            pairs = source.get("subject_transforms") or [{"src": source.get("filter_subject") or ">", "dest": ">"}]
            route = parse_route(
                SEPARATOR.join(pair["src"] for pair in pairs),
                SEPARATOR.join(pair.get("dest") or pair["src"] for pair in pairs),
                (whole["src"], whole["dest"]) if whole else None,
            )
            if route is None:
                raise VstreamError(
                    f"the transform of `{source_name(source, stream.config.name)}` in `{stream.config.name}` is not understood",
                    hint="audit it without --sample",
                )
            routes_of.setdefault(source_name(source, stream.config.name), []).append(route)
    return routes_of


def _subjects_by_key(
    snapshot: ReadSnapshot, routes: Sequence[SubjectRoute] | None, access: Mapping[str, Access]
) -> dict[str, list[str]]:
    """The subjects that *snapshot* stores, by the subject that clients see."""
    result: dict[str, list[str]] = {}
    if not snapshot.is_readable:
        return result
    for subject in _list_subjects(snapshot, access[snapshot.stream_ref.region]):
        keys = [key for route in routes or () if (key := route.apply(subject)) is not None]
        if keys or not routes:
            result.setdefault(keys[0] if keys else subject, []).append(subject)
    return result


def _list_subjects(snapshot: ReadSnapshot, access: Access) -> list[str]:
    subjects: list[str] = []
    with connect(access) as client, convert_malformed_errors(f"STREAM.INFO.{snapshot.stream_ref.name}"):
        while True:
            body = {"subjects_filter": ">", "offset": len(subjects)}
            answer = api_request(
                client,
                access.with_prefix_of(snapshot.stream_ref.stream),
                f"STREAM.INFO.{snapshot.stream_ref.name}",
                body,
            )
            page = answer["state"].get("subjects") or {}
            subjects += page
            if not page or len(subjects) >= int(answer.get("total") or 0):
                return subjects
