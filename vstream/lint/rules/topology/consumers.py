"""Durables of virtual streams: what servers would refuse, or accept and never deliver to."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.formatting import quote_value
from vstream.lint.api_fields import CONSUMER_FIELDS
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.lint.rules.topology.settings import check_metadata
from vstream.subjects import algebra
from vstream.syntax.yaml import Path
from vstream.topology import schema_errors
from vstream.topology.document import ConsumerDocument, StreamDocument
from vstream.topology.units import format_version

_WORDS = {
    **{word: word for word in ConsumerDocument.model_fields if word != "config"},
    "mem_storage": "memory",
    "num_replicas": "replicas",
    "filter_subject": "filter_subjects",
}
"""Keys that have their own key in the topology language."""


def _list_consumers(subject: TopologySubject) -> Iterator[tuple[Path, str, StreamDocument, ConsumerDocument]]:
    """Every consumer as written: its path, the name of its stream, its stream, and the consumer."""
    for name, stream in subject.document.streams.items():
        for durable, consumer in stream.consumers.items():
            yield ("streams", name, "consumers", durable), name, stream, consumer


@rule("VS138", "consumer-cannot", Severity.ERROR)
def consumer_cannot(subject: TopologySubject) -> Iterator[Violation]:
    """
    A consumer has a setting that servers refuse, or that would differ between regions.

    ## Why is this bad?
    Servers refuse the consumer, and `apply` stops there. A start sequence would be accepted, but it is a different
    message in each region.
    """
    for path, _, _, consumer in _list_consumers(subject):
        yield from _passed_on(subject, path, consumer)
        waits, times = len(consumer.backoff), consumer.max_deliver
        if waits and times != -1 and waits > times:
            yield Violation(
                at=(*path, "max_deliver"),
                message=f"it delivers at most {times} times, but `backoff` has {waits} delays",
                hint=f"raise `max_deliver` to {waits} or more, or shorten `backoff`",
            )
        if consumer.backoff and consumer.ack_wait is not None:
            yield Violation(
                at=(*path, "ack_wait"),
                message="`backoff` sets the delays, so `ack_wait` has no effect",
                hint="remove one of the two",
                on_key=True,
            )
        for word in ("ack_wait", "backoff", "max_ack_pending") if consumer.ack_policy == "none" else ():
            if getattr(consumer, word):
                yield Violation(
                    at=(*path, word),
                    message=f"nothing is acknowledged (`ack_policy: none`), so `{word}` has no effect",
                    hint="remove it, or write `ack_policy: explicit`",
                    on_key=True,
                )
        if consumer.deliver_policy == "last_per_subject" and not consumer.filter_subjects:
            yield Violation(
                at=(*path, "deliver_policy"),
                message="`last_per_subject` needs a subject filter",
                hint="write `filter_subjects`, such as all subjects of the stream",
            )
    yield from _check_too_many_replicas(subject)


def _passed_on(subject: TopologySubject, path: Path, consumer: ConsumerDocument) -> Iterator[Violation]:
    for key in consumer.config:
        name = key.lower()
        field = CONSUMER_FIELDS.get(name)
        if name in schema_errors.NOT_IN_CONSUMERS:
            message, hint = f"`{key}` cannot be set: {schema_errors.NOT_IN_CONSUMERS[name]}", "remove it"
        elif name in _WORDS:
            message = f"`{key}` has its own key in the topology language"
            hint = f"write `{_WORDS[name]}` beside `config`"
        elif field is not None and subject.topology.server_version < field.since:
            needed = format_version(field.since)
            message = f"`{key}` needs nats-server {needed}"
            hint = f'raise `server_version` to "{needed}" if all servers are that new'
        else:
            continue
        yield Violation(at=(*path, "config", key), message=message, hint=hint, on_key=True)
    yield from check_metadata(path, consumer.metadata)


def _check_too_many_replicas(subject: TopologySubject) -> Iterator[Violation]:
    for stream in subject.topology.streams:
        for consumer in stream.consumers:
            replica_count = consumer.fields["num_replicas"]
            for region in consumer.regions:
                settings = stream.read_settings.get(region) or next(iter(stream.origin_settings.values()), None)
                has = settings["num_replicas"] if settings else None
                if isinstance(replica_count, int) and isinstance(has, int) and replica_count > has:
                    yield Violation(
                        at=("streams", stream.name, "consumers", consumer.name, "replicas"),
                        message=f"{replica_count} replicas, but its stream has {has} in region `{region}`",
                        hint="omit `replicas`: the default is the number of its stream",
                    )
                    break


@rule("VS139", "consumer-takes-nothing", Severity.ERROR)
def consumer_takes_nothing(subject: TopologySubject) -> Iterator[Violation]:
    """
    A consumer's filter matches no subject of its stream, is not a valid subject, or overlaps another of its filters.

    ## Why is this bad?
    Filters are virtual subjects, as clients publish them. Servers accept a filter that matches nothing, and the
    consumer never delivers a message. They refuse filters that overlap.
    """
    for path, name, stream, consumer in _list_consumers(subject):
        valid = [subject_filter for subject_filter in consumer.filter_subjects if algebra.is_valid(subject_filter)]
        for index, subject_filter in enumerate(consumer.filter_subjects):
            at: Path = (*path, "filter_subjects", index)
            before = [earlier_filter for earlier_filter in consumer.filter_subjects[:index] if earlier_filter in valid]
            is_valid = subject_filter in valid
            same = next((earlier for earlier in before if is_valid and _is_within(subject_filter, earlier)), None)
            if not algebra.is_valid(subject_filter):
                yield Violation(
                    at=at,
                    message=f"{quote_value(subject_filter)} is not a valid subject",
                    hint="tokens are separated by single dots and contain no spaces; `>` comes last",
                )
            elif not any(
                algebra.overlaps(subject_filter, subject) for subject in filter(algebra.is_valid, stream.subjects)
            ):
                yield Violation(
                    at=at,
                    message=f"`{subject_filter}` matches no subject of stream `{name}`",
                    hint=f"its subjects are {', '.join(f'`{subject_filter}`' for subject_filter in stream.subjects)}",
                )
            elif same is not None:
                yield Violation(
                    at=at,
                    message=f"`{subject_filter}` and `{same}` overlap: servers refuse that",
                    hint="remove the narrower one",
                )


def _is_within(first: str, second: str) -> bool:
    return algebra.is_subset(first, second) or algebra.is_subset(second, first)


@rule("VS140", "consumer-nowhere", Severity.ERROR)
def consumer_nowhere(subject: TopologySubject) -> Iterator[Violation]:
    """
    A consumer is declared for a region in which its stream does not exist.

    ## Why is this bad?
    The consumer cannot be created there.
    """
    document = subject.document
    for path, name, stream, consumer in _list_consumers(subject):
        exists = tuple(document.regions) if stream.regions == "all" else stream.regions
        for index, region in enumerate(() if consumer.regions == "all" else consumer.regions):
            if region in document.regions and region not in exists:
                yield Violation(
                    at=(*path, "regions", index),
                    message=f"stream `{name}` does not exist in region `{region}`",
                    hint=f"it is in {', '.join(f'`{place}`' for place in exists)}",
                )
