"""VS246: consumers that do not fit the stream that their file names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.values import StreamSet, mirror, near_name, strings, table, word
from vstream.subjects.algebra import overlaps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import ConsumerFile, StreamFile, Workspace


_COMPARABLE = 1_000


@rule("VS246", "consumer-does-not-fit", Severity.ERROR)
def consumer_does_not_fit(workspace: Workspace) -> Iterator[Violation]:
    """
    A consumer does not fit its stream.

    ## Why is this bad?
    A filter that matches no subject of the stream delivers nothing, and servers accept it. They refuse a second consumer
    of the same subjects of a work queue (10100), one of a work queue without explicit acknowledgement (10084), one that
    delivers to subjects of its own stream (10081), and more replicas than the stream has (10126; server/consumer.go, all
    versions). Checked where the file of a consumer has a `stream_name`, and the stream is in the files.
    """
    streams = StreamSet(workspace.streams)
    queued: dict[int, list[ConsumerFile]] = {}
    for consumer in workspace.consumers:
        name = consumer.stream.text if consumer.stream else None
        stream = streams.find(name, consumer) if name else None
        if stream is None:
            continue
        yield from _check_filters(consumer, stream)
        yield from _check_delivery(consumer, stream)
        if word(stream, "retention") == "workqueue":
            yield from _check_queue(consumer, queued.setdefault(id(stream), []))


@rule("VS247", "unknown-stream", Severity.WARNING)
def unknown_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    A mirror or a consumer names a stream that the files lack, and that is nearly the name of one that they have.

    ## Why is this bad?
    A server accepts a mirror of a stream that does not exist, and waits for it without an error: the mirror stays empty.
    It refuses a consumer (10059; server/stream.go, consumer.go, all versions). Other names are not reported, as the
    stream may have been created elsewhere. VS211 is about sources.
    """
    names = sorted(StreamSet(workspace.streams).names)
    if len(names) > _COMPARABLE:
        return  # comparing with thousands of names would take longer than everything else
    for stream in workspace.streams:
        origin = mirror(stream)
        meant = None if origin is None or origin.is_external else near_name(origin.name, names)
        if meant is not None and origin is not None and meant != stream.config.name:
            yield Violation(
                at=stream.at("mirror", "name"),
                message=f"no file has a stream `{origin.name}`",
                hint=f"did you mean `{meant}`?",
            )
    for consumer in workspace.consumers:
        stream_name = consumer.stream
        meant = near_name(str(stream_name.value), names) if stream_name else None
        if meant is not None and stream_name is not None:
            yield Violation(
                at=stream_name.span,
                message=f"no file has a stream `{stream_name.value}`",
                hint=f"did you mean `{meant}`?",
            )


def _filters(consumer: ConsumerFile) -> list[tuple[tuple[str | int, ...], str]]:
    listed = consumer.fields.get("filter_subjects")
    many = enumerate(listed) if isinstance(listed, list) else ()
    filters: list[tuple[tuple[str | int, ...], Any]] = [
        (("filter_subjects", index), subject) for index, subject in many
    ]
    filters.append((("filter_subject",), consumer.fields.get("filter_subject")))
    return [(path, subject) for path, subject in filters if isinstance(subject, str) and subject]


def _check_filters(consumer: ConsumerFile, stream: StreamFile) -> Iterator[Violation]:
    subjects = strings(stream, "subjects")
    if not subjects or stream.config.fields.get("sources") or table(stream, "subject_transform"):
        return
    for path, subject in _filters(consumer):
        if not any(overlaps(subject, stored) for stored in subjects):
            yield Violation(
                at=consumer.at(*path),
                message=f"stream `{stream.config.name}` holds nothing of `{subject}`: the consumer delivers nothing",
                hint=f"filter what the stream holds: {', '.join(f'`{stored}`' for stored in subjects[:5])}",
                related=(Related(span=stream.at("subjects"), message="what the stream holds"),),
            )


def _check_delivery(consumer: ConsumerFile, stream: StreamFile) -> Iterator[Violation]:
    target = consumer.fields.get("deliver_subject")
    if isinstance(target, str) and any(overlaps(target, stored) for stored in strings(stream, "subjects")):
        yield Violation(
            at=consumer.at("deliver_subject"),
            message=f"`{target}` is a subject of the stream itself: servers refuse the consumer",
            hint="deliver to a subject that the stream does not hold",
        )
    copies, most = consumer.fields.get("num_replicas"), stream.config.fields.get("num_replicas", 1)
    if isinstance(copies, int) and isinstance(most, int) and copies > max(most, 1):
        yield Violation(
            at=consumer.at("num_replicas"),
            message=f"{copies} replicas, and stream `{stream.config.name}` has {max(most, 1)}: servers refuse the consumer",
            hint="remove `num_replicas`: the consumer then has as many as its stream",
        )


def _check_queue(consumer: ConsumerFile, queued: list[ConsumerFile]) -> Iterator[Violation]:
    if consumer.fields.get("ack_policy") != "explicit":
        yield Violation(
            at=consumer.at("ack_policy"),
            message="a consumer of a work queue needs explicit acknowledgement: servers refuse it",
            hint='write `"ack_policy": "explicit"`',
        )
    subjects = [subject for _, subject in _filters(consumer)] or [">"]
    for earlier in queued:
        theirs = [subject for _, subject in _filters(earlier)] or [">"]
        if any(overlaps(mine, their) for mine in subjects for their in theirs):
            yield Violation(
                at=consumer.at("filter_subject"),
                message="another consumer of this work queue has the same messages: servers refuse the second one",
                hint="use filters that exclude each other, or share one consumer",
                related=(Related(span=earlier.at("filter_subject"), message="the other consumer"),),
            )
            break
    queued.append(consumer)
