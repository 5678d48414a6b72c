"""Consumers: fields that servers refuse together, and consumers that do not fit the stream that their file names."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from vstream.findings import Related, Severity
from vstream.formatting import quote_names, quote_value
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.streams import values
from vstream.lint.rules.streams.storage import find_consumer_misfits
from vstream.lint.workspace import ConsumerFile, StreamFile, Workspace
from vstream.subjects.algebra import has_wildcards, is_subset, is_valid, overlaps
from vstream.topology.units import format_version

Contradiction = tuple[str, str, str]

_MAX_COMPARED = 1_000
_MS_NS = 10**6
_MAX_REPLICAS = 5
_LENIENT_SINCE = (2, 12)
"""Since then, limits below zero are none, and filters may overlap in part."""
_GROUP: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_START: Final = {"by_start_sequence": "opt_start_seq", "by_start_time": "opt_start_time"}


@rule("VS243", "refused-consumer", Severity.ERROR)
def refused_consumer(workspace: Workspace) -> Iterator[Violation]:
    r"""
    Fields of a consumer contradict each other.

    ## Why is this bad?
    Servers refuse the consumer: a start position needs the matching policy, heartbeats and flow control are for push
    consumers, times are not negative, and names must not contain `.`, `*`, `>`, `/` or `\` (server/consumer.go,
    checkConsumerCfg; all versions). If the files contain server configurations, their limits count (10121, 10125).
    What servers take and do not use is a warning.
    """
    oldest = workspace.stated_version
    checks = (*_CHECKS, _check_old) if oldest is not None and oldest < _LENIENT_SINCE else _CHECKS
    for consumer in workspace.consumers:
        contradictions = [contradiction for check in checks for contradiction in check(consumer.fields)]
        for name, message, hint in (*contradictions, *find_consumer_misfits(workspace, consumer.fields)):
            yield Violation(at=consumer.locate(name), message=f"{message}: servers refuse the consumer", hint=hint)
        for name, message, hint in _find_ignored(consumer.fields):
            yield Violation(at=consumer.locate(name), message=message, hint=hint, severity=Severity.WARNING)


def _find_ignored(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    """What servers take, and replace or do not look at."""
    if fields.get("deliver_group") and not fields.get("deliver_subject"):
        message = "`deliver_group` does nothing: without `deliver_subject`, clients pull"
        yield "deliver_group", message, "add `deliver_subject`, or remove it"
    steps, wait = fields.get("backoff"), values.read_integer(fields, "ack_wait")
    first = steps[0] if isinstance(steps, list) and steps else None
    if isinstance(first, int) and _MS_NS <= first < wait:
        message = "`backoff` replaces `ack_wait`: a message comes again after the first step, which is shorter"
        yield "ack_wait", message, f"write {first}, and a longer first step if messages take longer"


def _check_words(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Each field alone."""
    yield from values.find_long_texts(dict(fields))
    copies, sample, target = (fields.get(name) for name in ("num_replicas", "sample_freq", "deliver_subject"))
    if isinstance(copies, int) and not 0 <= copies <= _MAX_REPLICAS:
        yield "num_replicas", f"{copies} replicas, and {_MAX_REPLICAS} is the most", "write 1, 3 or 5, or remove it"
    if isinstance(sample, str) and sample and not sample.removesuffix("%").removeprefix("+").isdecimal():
        message = f"{quote_value(sample)} is not a share of the messages"
        yield "sample_freq", message, 'write a percentage, such as "10%"'
    if isinstance(target, str) and has_wildcards(target):
        yield "deliver_subject", f"{quote_value(target)} has wildcards", "write one subject"
    elif isinstance(target, str) and target and not is_valid(target):
        yield "deliver_subject", f"{quote_value(target)} is not a subject", "write tokens between single dots"
    steps = fields.get("backoff")
    if values.read_integer(fields, "ack_wait") < 0 and not steps:
        yield "ack_wait", "`ack_wait` is negative", "write how long a message may take, in nanoseconds"
    if isinstance(steps, list) and any(isinstance(step, int) and step < 0 for step in steps):
        yield "backoff", "a step of `backoff` is negative", "write nanoseconds from 0 on"


def _check_filters_alone(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    single, several = fields.get("filter_subject"), fields.get("filter_subjects")
    if single and several:
        yield "filter_subject", "both `filter_subject` and `filter_subjects` are set", "keep `filter_subjects`"
    subjects = [subject for subject in several if isinstance(subject, str)] if isinstance(several, list) else []
    for name, listed in (("filter_subjects", subjects), ("filter_subject", [single or ">"])):
        for subject in listed:
            if isinstance(subject, str) and not is_valid(subject):
                hint = "write tokens between single dots, `>` at the end"
                yield name, f"{quote_value(subject)} is not a subject", hint
    pairs = combinations(filter(is_valid, subjects), 2)
    pair = next(((left, right) for left, right in pairs if is_subset(left, right) or is_subset(right, left)), None)
    if pair is not None:
        message = f"the filters `{pair[0]}` and `{pair[1]}` overlap"
        yield "filter_subjects", message, "keep the wider one, or filters that exclude each other"


def _check_names(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    for name in ("name", "durable_name"):
        value = fields.get(name)
        bad = sorted(values.FORBIDDEN.intersection(value)) if isinstance(value, str) else []
        if bad:
            message = f"the name {quote_value(value)} contains {', '.join(map(repr, bad))}"
            yield name, message, "use letters, digits, `-` and `_`"
        elif isinstance(value, str) and len(value.encode()) > values.MAX_NAME_BYTES:
            yield name, f"the name has {len(value.encode())} bytes, {values.MAX_NAME_BYTES} are allowed", "shorten it"
    if fields.get("name") and fields.get("durable_name") and fields["name"] != fields["durable_name"]:
        yield "name", "`name` and `durable_name` differ", "write the same name, or remove one of them"


def _check_start(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    policy = fields.get("deliver_policy", "all")
    for needed_policy, start in _START.items():
        if policy == needed_policy and not fields.get(start):
            yield "deliver_policy", f"`{needed_policy}` needs `{start}`", f"add `{start}`"
        if policy != needed_policy and fields.get(start):
            hint = f'write `"deliver_policy": "{needed_policy}"`, or remove it'
            yield start, f"`{start}` needs `deliver_policy: {needed_policy}`", hint
    has_filter = bool(fields.get("filter_subject") or fields.get("filter_subjects"))
    if policy == "last_per_subject" and not has_filter:
        yield "deliver_policy", "`last_per_subject` needs a filter", 'add `"filter_subject": ">"`'


def _check_push(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    is_push, policy = bool(fields.get("deliver_subject")), fields.get("ack_policy", "none")
    push_only = ("idle_heartbeat", "flow_control", "rate_limit_bps")
    for name in push_only if policy != "flow_control" else ():
        if values.read_integer(fields, name) > 0 and not is_push:
            yield name, f"`{name}` is for push consumers, but `deliver_subject` is missing", "remove it"
    if is_push and values.read_integer(fields, "max_waiting") > 0:
        yield "max_waiting", "`max_waiting` is for pull consumers, but `deliver_subject` is set", "remove it"
    if is_push and values.read_integer(fields, "max_ack_pending") > 0 and policy == "none":
        hint = 'remove it, or write `"ack_policy": "explicit"`'
        yield "max_ack_pending", "`max_ack_pending` needs acknowledgements, and `ack_policy` is `none`", hint
    has_heartbeat = policy == "flow_control" or values.read_integer(fields, "idle_heartbeat") > 0
    if is_push and fields.get("flow_control") and not has_heartbeat:
        yield "flow_control", "flow control needs heartbeats", 'add `"idle_heartbeat": 5000000000`'
    if fields.get("direct") is True:
        if not is_push:
            yield "direct", "`direct` needs a `deliver_subject`", "remove `direct`: it is for servers' own consumers"
        elif fields.get("durable_name"):
            yield "direct", "`direct` is for consumers without a `durable_name`", "remove `direct`"


def _check_redelivery(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    steps, most = fields.get("backoff"), fields.get("max_deliver")
    if isinstance(steps, list) and isinstance(most, int) and 0 < most < len(steps):
        message = f"`max_deliver` is less than the {len(steps)} steps of `backoff`"
        yield "max_deliver", message, f"write {len(steps)} or more"
    if fields.get("ack_policy") != "flow_control":
        return
    if not fields.get("deliver_subject"):
        yield "ack_policy", "`flow_control` needs a `deliver_subject`", 'add it, or write `"ack_policy": "explicit"`'
    for name, is_wrong in (
        ("ack_wait", values.read_integer(fields, "ack_wait") > 0),
        ("backoff", bool(steps)),
        ("max_deliver", values.read_integer(fields, "max_deliver") > 0),
    ):
        if is_wrong:
            yield name, f"`{name}` cannot be combined with `ack_policy: flow_control`", "remove it"
    if values.read_integer(fields, "max_ack_pending") < 0:
        yield "max_ack_pending", "`ack_policy: flow_control` needs a limit of pending messages", "write 1000"


def _check_priority(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    policy, groups = fields.get("priority_policy", "none"), fields.get("priority_groups")
    if policy == "none":
        if groups:
            hint = 'add `"priority_policy": "overflow"`, or remove them'
            yield "priority_groups", "groups need a priority policy", hint
        if values.read_integer(fields, "priority_timeout") > 0:
            hint = 'write `"priority_policy": "pinned_client"`, or remove it'
            yield "priority_timeout", "`priority_timeout` is for pinned clients", hint
    elif fields.get("deliver_subject"):
        yield "priority_groups", "priority groups are for pull consumers", "remove them, or `deliver_subject`"
    elif not groups:
        yield "priority_policy", "a priority policy needs a group", 'add `"priority_groups": ["NAME"]`'
    for group in groups if policy != "none" and isinstance(groups, list) else ():
        if isinstance(group, str) and not _GROUP.fullmatch(group):
            hint = "use at most 16 letters, digits, `-`, `_`, `/` and `=`"
            yield "priority_groups", f"{quote_value(group)} is not the name of a group", hint


def _check_old(fields: Mapping[str, Any]) -> Iterator[Contradiction]:
    """What servers took since `_LENIENT_SINCE`, and refused before."""
    before = f"before nats-server {format_version(_LENIENT_SINCE)}"
    is_pull = not fields.get("deliver_subject")
    for name in ("max_waiting", "max_batch", "max_expires") if is_pull else ("max_waiting",):
        if values.read_integer(fields, name) < 0:
            yield name, f"`{name}` is negative, {before}", "remove it"
    if fields.get("backoff") and values.read_integer(fields, "max_deliver") < -1:
        yield "max_deliver", f"`max_deliver` is below -1, {before}", "write -1"
    filters = fields.get("filter_subjects")
    subjects = [subject for subject in filters if isinstance(subject, str)] if isinstance(filters, list) else []
    for left, right in combinations(filter(is_valid, subjects), 2):
        if overlaps(left, right) and not is_subset(left, right) and not is_subset(right, left):
            message = f"the filters `{left}` and `{right}` overlap, {before}"
            yield "filter_subjects", message, "write filters that exclude each other"
            return


_CHECKS: tuple[Callable[[Mapping[str, Any]], Iterator[Contradiction]], ...] = (
    _check_words,
    _check_names,
    _check_filters_alone,
    _check_start,
    _check_push,
    _check_redelivery,
    _check_priority,
)


@rule("VS246", "consumer-does-not-fit", Severity.ERROR)
def consumer_does_not_fit(workspace: Workspace) -> Iterator[Violation]:
    """
    A consumer does not fit its stream.

    ## Why is this bad?
    A filter that matches no subject of the stream delivers nothing, and servers accept it. They refuse a second
    consumer on the same subjects of a work queue (10100), a consumer of a work queue that does not acknowledge
    explicitly (10084) or does not begin at the first message (10101), delivery to a subject of the stream itself
    (10081), more replicas than the stream has (10126), any other number of replicas if the stream's retention is not
    `limits` (10134), values beyond the stream's limits (10026, 10121, 10153), and a second consumer of that name on the
    stream (10148; server/consumer.go, all versions). Checked if the consumer's file has a `stream_name` and the stream
    is in the files.
    """
    streams = values.StreamSet(workspace.streams)
    consumers: defaultdict[int, list[ConsumerFile]] = defaultdict(list)
    yield from _find_namesakes(workspace)
    for consumer in workspace.consumers:
        name = consumer.stream.text if consumer.stream else None
        stream = streams.find(name, consumer) if name else None
        if stream is None:
            continue
        yield from _check_filters(consumer, stream)
        yield from _check_delivery(consumer, stream)
        yield from _check_replicas(consumer, stream)
        yield from _check_limits(consumer, stream)
        before = consumers[id(stream)]
        if before and len(before) == values.read_limit(stream, "max_consumers"):
            yield Violation(
                at=consumer.locate(),
                message=f"stream `{stream.config.name}` has {len(before)} consumers and no room for more:"
                " servers refuse this one",
                hint=f"raise `max_consumers` to {len(before) + 1}, or remove a consumer",
                related=(Related(span=stream.locate("max_consumers"), message="the limit"),),
            )
        if values.read_word(stream, "retention") == "workqueue" and not _is_sourcing(consumer):
            yield from _check_queue(consumer, [earlier for earlier in before if not _is_sourcing(earlier)])
        before.append(consumer)


def _is_sourcing(consumer: ConsumerFile) -> bool:
    return consumer.fields.get("direct") is True or consumer.fields.get("sourcing") is True


def _find_namesakes(workspace: Workspace) -> Iterator[Violation]:
    """Two consumers of one name on one stream, of files side by side: in other directories they are other systems."""
    seen_consumers: dict[tuple[str, str, str], ConsumerFile] = {}
    for consumer in workspace.consumers:
        field = "durable_name" if consumer.fields.get("durable_name") else "name"
        name = consumer.fields.get(field)
        if consumer.stream is None or not isinstance(name, str) or not name:
            continue
        stream = str(consumer.stream.value)
        namesake = seen_consumers.setdefault((posixpath.dirname(consumer.file), stream, name), consumer)
        if dict(namesake.fields) != dict(consumer.fields):
            yield Violation(
                at=consumer.locate(field),
                message=f"stream `{stream}` has another consumer `{name}`: servers refuse this one",
                hint="give it a name of its own, or remove one of them",
                related=(Related(span=namesake.locate(), message="the other consumer"),),
            )


@rule("VS247", "unknown-stream", Severity.WARNING)
def unknown_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    A mirror or a consumer names a stream that is not in the files, but nearly has the name of one that is.

    ## Why is this bad?
    A server accepts a mirror of a stream that does not exist, and waits for it without an error: the mirror stays
    empty. It refuses a consumer (10059; server/stream.go, consumer.go, all versions). Other names are not reported, as
    the stream may have been created elsewhere. VS211 checks sources.
    """
    names = sorted(values.StreamSet(workspace.streams).names)
    if len(names) > _MAX_COMPARED:
        return  # comparing with thousands of names would take longer than everything else
    for stream in workspace.streams:
        origin = values.read_mirror(stream)
        meant = None if origin is None or origin.is_external else values.find_misspelt(origin.name, names)
        if meant is not None and origin is not None and meant != stream.config.name:
            yield Violation(
                at=stream.locate("mirror", "name"),
                message=f"no file has a stream `{origin.name}`",
                hint=f"did you mean `{meant}`?",
            )
    for consumer in workspace.consumers:
        stream_name = consumer.stream
        meant = values.find_misspelt(str(stream_name.value), names) if stream_name else None
        if meant is not None and stream_name is not None:
            yield Violation(
                at=stream_name.span,
                message=f"no file has a stream `{stream_name.value}`",
                hint=f"did you mean `{meant}`?",
            )


def _list_filters(consumer: ConsumerFile) -> list[tuple[tuple[str | int, ...], str]]:
    listed = consumer.fields.get("filter_subjects")
    many = enumerate(listed) if isinstance(listed, list) else ()
    filters: list[tuple[tuple[str | int, ...], Any]] = [
        (("filter_subjects", index), subject) for index, subject in many
    ]
    filters.append((("filter_subject",), consumer.fields.get("filter_subject")))
    return [(path, subject) for path, subject in filters if isinstance(subject, str) and subject]


def _check_filters(consumer: ConsumerFile, stream: StreamFile) -> Iterator[Violation]:
    for path, subject in _list_filters(consumer):
        if not values.may_hold(stream, subject):
            yield Violation(
                at=consumer.locate(*path),
                message=f"stream `{stream.config.name}` holds nothing of `{subject}`: the consumer delivers nothing",
                hint=f"filter what the stream holds: {quote_names(values.stored_subjects(stream)[:5])}",
                related=(Related(span=stream.locate("subjects"), message="what the stream holds"),),
            )


def _check_delivery(consumer: ConsumerFile, stream: StreamFile) -> Iterator[Violation]:
    target = consumer.fields.get("deliver_subject")
    if isinstance(target, str) and any(overlaps(target, stored) for stored in values.read_strings(stream, "subjects")):
        yield Violation(
            at=consumer.locate("deliver_subject"),
            message=f"`{target}` is a subject of the stream itself: servers refuse the consumer",
            hint="deliver to a subject that the stream does not hold",
        )


def _check_replicas(consumer: ConsumerFile, stream: StreamFile) -> Iterator[Violation]:
    copies, most = values.read_integer(consumer.fields, "num_replicas"), values.count_replicas(stream)
    is_log = values.read_word(stream, "retention") in {"", "limits"}
    if copies > most or (copies > 0 and copies != most and not is_log):
        must = "has" if is_log else f"is a {values.read_word(stream, 'retention')} stream with"
        yield Violation(
            at=consumer.locate("num_replicas"),
            message=f"{copies} replicas, and stream `{stream.config.name}` {must} {most}: servers refuse the consumer",
            hint="remove `num_replicas`: the consumer then has as many as its stream",
        )


def _check_limits(consumer: ConsumerFile, stream: StreamFile) -> Iterator[Violation]:
    pending = values.read_integer(values.read_table(stream, "consumer_limits"), "max_ack_pending")
    own_policy = consumer.fields.get("ack_policy", "none")
    has_own_limit = values.read_integer(consumer.fields, "max_ack_pending") != 0
    if pending > 0 and own_policy == "none" and consumer.fields.get("deliver_subject") and not has_own_limit:
        yield Violation(
            at=consumer.locate("ack_policy"),
            message=f"stream `{stream.config.name}` limits pending messages, which needs acknowledgements:"
            " servers refuse the consumer",
            hint='write `"ack_policy": "explicit"`, or `"max_ack_pending": -1`',
            related=(Related(span=stream.locate("consumer_limits", "max_ack_pending"), message="the limit"),),
        )
    for name in ("max_ack_pending", "inactive_threshold"):
        value, most = (
            values.read_integer(consumer.fields, name),
            values.read_integer(values.read_table(stream, "consumer_limits"), name),
        )
        if 0 < most < value:
            yield Violation(
                at=consumer.locate(name),
                message=f"`{name}` is {value}, and stream `{stream.config.name}` allows {most}: servers refuse the consumer",
                hint=f"write {most} or less",
                related=(Related(span=stream.locate("consumer_limits", name), message="the limit"),),
            )


def _check_queue(consumer: ConsumerFile, before: Sequence[ConsumerFile]) -> Iterator[Violation]:
    """A consumer of a work queue, which has those of *before*."""
    if consumer.fields.get("ack_policy") not in {"explicit", "flow_control"}:
        yield Violation(
            at=consumer.locate("ack_policy"),
            message="a consumer of a work queue needs explicit acknowledgement: servers refuse it",
            hint='write `"ack_policy": "explicit"`',
        )
    if consumer.fields.get("deliver_policy", "all") != "all":
        yield Violation(
            at=consumer.locate("deliver_policy"),
            message="a consumer of a work queue must begin at the first message: servers refuse it",
            hint='write `"deliver_policy": "all"`',
        )
    subjects = [subject for _, subject in _list_filters(consumer)] or [">"]
    for earlier in before:
        theirs = [subject for _, subject in _list_filters(earlier)] or [">"]
        if any(overlaps(mine, their) for mine in subjects for their in theirs):
            yield Violation(
                at=consumer.locate("filter_subject"),
                message="another consumer of this work queue takes the same messages: servers refuse the second one",
                hint="use filters that exclude each other, or share one consumer",
                related=(Related(span=earlier.locate("filter_subject"), message="the other consumer"),),
            )
            break
