"""STREAM.INFO, reduced to what a probe needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vstream.jetstream.answers import convert_malformed_errors, parse_list, parse_total
from vstream.jetstream.connection import Connection, ask_api
from vstream.topology import naming
from vstream.topology.profiles import profile_named
from vstream.topology.stream_config import REGION_KEY, ROUTING_KEY, source_name
from vstream.value_class import value_class


@value_class
class StreamInfo:
    """STREAM.INFO of the stream that answered."""

    name: str
    messages: int
    last_seq: int
    is_direct: bool
    """Whether it answers Direct Get."""
    subjects: tuple[str, ...]
    sources: tuple[str, ...]
    """The streams that it sources or mirrors."""
    subject_count: int
    """Number of different subjects of its messages."""
    keeps_per_subject: int
    """`max_msgs_per_subject`; 0 or less means no limit."""


async def read_stream_info(connection: Connection, name: str, timeout: float) -> StreamInfo:
    """
    Ask for the stream called *name*, virtual or physical, and wait *timeout* seconds at most.

    Raises ServerError with the API's error, NoRespondersError without JetStream,
    NotReachableError without an answer, MalformedAnswerError if the answer describes no stream.
    """
    subject = naming.api_subject("STREAM.INFO", name)
    answer = await ask_api(connection, subject, timeout=timeout)
    with convert_malformed_errors(f"{connection.region}: {subject}"):
        config, state = answer["config"], answer["state"]
        sources = [source for source in (*(config.get("sources") or ()), config.get("mirror")) if source]
        called = _read_answering_stream(config, asked=name)
        return StreamInfo(
            name=called,
            messages=int(state["messages"]),
            last_seq=int(state["last_seq"]),
            is_direct=bool(config.get("allow_direct")),
            subjects=_to_strings(config.get("subjects")),
            sources=tuple(source_name(source, called) for source in sources),
            subject_count=int(state.get("num_subjects", 0)),
            keeps_per_subject=int(config.get("max_msgs_per_subject", -1)),
        )


async def read_stream_names(connection: Connection, timeout: float) -> list[str]:
    """The names of all streams of the connection's account. Raises as `read_stream_info` does."""
    subject, names = f"{naming.API}.STREAM.NAMES", list[str]()
    while True:
        answer = await ask_api(connection, subject, {"offset": len(names)}, timeout=timeout)
        page = _to_strings(parse_list(answer, "streams", subject))
        names += page
        if not page or len(names) >= parse_total(answer, subject):
            return names


def _read_answering_stream(config: Mapping[str, Any], *, asked: str) -> str:
    """The stream that answered: in separate accounts all have the same name, and their metadata says where they are."""
    name, metadata = str(config["name"]), config.get("metadata") or {}
    if naming.local_name(asked) != asked:
        return asked  # in that account there is no other
    region = str(metadata.get(REGION_KEY))
    profile = profile_named(metadata.get(ROUTING_KEY))
    return naming.qualified_name(None if profile is None else profile.account_of_reads(region), name)


def _to_strings(values: Iterable[Any] | None) -> tuple[str, ...]:
    return tuple(str(value) for value in values or ())
