"""Key-value buckets and object stores: what their models cannot do, and what they would be called."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.syntax.yaml import Path
from vstream.topology.buckets import key_value_stream, objects_stream
from vstream.topology.document import BucketDocument
from vstream.topology.model import Consistency
from vstream.topology.profiles import profile_of

_STREAMS = {"kv": key_value_stream, "objects": objects_stream}


def _list_buckets(subject: TopologySubject) -> Iterator[tuple[Path, str, BucketDocument, Consistency]]:
    """Each bucket: its place in the file, its kind, its document, and its model."""
    document = subject.document
    for section, buckets, noun in (("kv", document.kv, "bucket"), ("objects", document.objects, "object store")):
        for name, bucket in buckets.items():
            yield (section, name), f"{noun} `{name}`", bucket, Consistency(bucket.consistency)


def _has_several_regions(subject: TopologySubject, bucket: BucketDocument) -> bool:
    return len(subject.document.regions if bucket.regions == "all" else bucket.regions) > 1


def _alternative(subject: TopologySubject) -> str:
    """The models in which all writes of a bucket go to one stream and that this topology can use."""
    if profile_of(subject.topology).has_domains:
        return "keep the bucket in a topology with `routing: accounts`, as `stretch` or `homed`"
    stretch = (
        "`consistency: stretch`" if subject.document.stretch else "`consistency: stretch` (and a `stretch` cluster)"
    )
    return f"choose {stretch} or `consistency: homed`"


@rule("VS142", "bucket-diverges", Severity.ERROR)
def bucket_diverges(subject: TopologySubject) -> Iterator[Violation]:
    """
    A bucket accepts writes in several regions, but `writers: one-per-key` is not set.

    ## Why is this bad?
    In a `virtual` bucket, two regions that write one key at the same time see the two writes in different orders, and
    keep different values for ever; a region may even combine the description of one object with the bytes of another.
    `create` succeeds in each region, and `update` compares the revision of a read with the sequences of another stream.
    None of this happens if each key is written in only one region: state that with `writers: one-per-key`.
    """
    for at, title, bucket, model in _list_buckets(subject):
        if model is Consistency.VIRTUAL and bucket.writers is None and _has_several_regions(subject, bucket):
            yield Violation(
                at=at,
                message=(
                    f"the {title} diverges for ever if two regions write one key: `create` succeeds in each "
                    "region, and `update` compares revisions of two different streams"
                ),
                hint=(
                    f"{_alternative(subject)}; or set `writers: one-per-key` if each key is written in only one region"
                ),
                on_key=True,
            )


@rule("VS143", "bucket-compares-nothing", Severity.ERROR)
def bucket_compares_nothing(subject: TopologySubject) -> Iterator[Violation]:
    """
    An ordered bucket accepts writes in several regions, but `writers: one-per-key` is not set.

    ## Why is this bad?
    All regions agree on one order, and so on one value in the end. But each region accepts a write before that:
    `create` succeeds in several regions, `update` compares the revision of a read with the sequences of another stream,
    and the losing value was acknowledged. If two objects are written under one name at once, their chunks are never
    mixed, but the chunks of one of them stay as garbage.
    """
    for at, title, bucket, model in _list_buckets(subject):
        if model is Consistency.ORDERED and bucket.writers is None and _has_several_regions(subject, bucket):
            yield Violation(
                at=(*at, "consistency"),
                message=(
                    f"the {title} compares nothing across regions: `create` succeeds in each region, "
                    "`update` compares revisions of two different streams, and the last of two writers wins"
                ),
                hint=(
                    f"{_alternative(subject)}; or set `writers: one-per-key` if each key is written in only one region"
                ),
            )


@rule("VS144", "bucket-out-of-reach", Severity.ERROR)
def bucket_out_of_reach(subject: TopologySubject) -> Iterator[Violation]:
    """
    Some or all client operations cannot read the bucket, because its stream is reached by mapping.

    ## Why is this bad?
    With `routing: mapped`, clients cannot create consumers on `virtual` and `ordered` streams (error 10056), and object
    stores are read by consumers: `put` works, but `get`, `list`, `watch` and `delete` do not. On a key/value bucket,
    `keys`, `watch`, `history` and `purge_deletes` do not work.
    """
    if not profile_of(subject.topology).has_physical_names:
        return
    by_name = {stream.name: stream for stream in subject.topology.streams}
    for at, title, _, model in _list_buckets(subject):
        if by_name[_STREAMS[str(at[0])](str(at[1]))].has_namesake:
            continue
        is_objects = at[0] == "objects"
        lacking = (
            "`get`, `list`, `watch` and `delete`" if is_objects else "`keys`, `watch`, `history` and `purge_deletes`"
        )
        yield Violation(
            at=at,
            message=f"of the {title}, {lacking} do not work with `routing: mapped`: clients cannot create the consumer (10056)",
            hint="use `routing: accounts`, or make it `stretch` or `homed`"
            + (", or set `virtual_name: order`" if model is Consistency.ORDERED else ""),
            on_key=True,
            severity=None if is_objects else Severity.WARNING,
        )


def unused_writers(subject: TopologySubject) -> Iterator[Violation]:
    """Buckets with a single origin that set `writers`: their stream already compares revisions for all regions."""
    for at, title, bucket, model in _list_buckets(subject):
        if model.has_origin and bucket.writers is not None:
            yield Violation(
                at=(*at, "writers"),
                message=f"the {title} is {model.value}: any region may write any key",
                hint="remove `writers`",
            )


def buckets_called_like_streams(subject: TopologySubject) -> Iterator[Violation]:
    """Buckets whose stream is also declared under `streams`: clients find the bucket `users` in `KV_users`."""
    for at, title, _, _ in _list_buckets(subject):
        stream = _STREAMS[str(at[0])](str(at[1]))
        if stream in subject.written:
            yield Violation(
                at=at,
                message=f"the {title} is stored in the stream `{stream}`, which is also listed under `streams`",
                hint="remove it from `streams`, or rename one of them",
                on_key=True,
            )
