"""Key-value buckets and object stores: what each consistency model can promise of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.topology.buckets import key_value_stream, objects_stream
from vstream.topology.model import Consistency
from vstream.topology.profiles import profile_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path
    from vstream.topology.document import BucketDocument

_STREAMS = {"kv": key_value_stream, "objects": objects_stream}


def _buckets(subject: TopologySubject) -> Iterator[tuple[Path, str, BucketDocument, Consistency]]:
    """Where each bucket is written, what it is, what is written there, and its model."""
    document = subject.document
    for section, buckets, noun in (("kv", document.kv, "bucket"), ("objects", document.objects, "object store")):
        for name, bucket in buckets.items():
            yield (section, name), f"{noun} `{name}`", bucket, Consistency(bucket.consistency)


def _has_several_regions(subject: TopologySubject, bucket: BucketDocument) -> bool:
    return len(subject.document.regions if bucket.regions == "all" else bucket.regions) > 1


def _alternative(subject: TopologySubject) -> str:
    """The models in which all writes of a bucket go to one stream, as far as the topology can have them."""
    if profile_of(subject.topology).has_domains:
        return "keep the bucket in a topology with `routing: accounts`, as `stretch` or `homed`"
    stretch = (
        "`consistency: stretch`" if subject.document.stretch else "`consistency: stretch` (and a `stretch` cluster)"
    )
    return f"choose {stretch} or `consistency: homed`"


@rule("VS142", "bucket-diverges", Severity.ERROR)
def bucket_diverges(subject: TopologySubject) -> Iterator[Violation]:
    """
    A bucket takes writes in several regions, and nothing says that they never write the same key.

    ## Why is this bad?
    In a `virtual` bucket, two regions that write one key at the same time see the two writes in different orders,
    and keep different values for ever; of an object, one region may have the one's description and the other's bytes.
    `create` succeeds in each region, and `update` compares the revision of a read with the sequences of another stream.
    Where each key is written in one region only, none of this happens: `writers: one-per-key` says so.
    """
    for at, title, bucket, model in _buckets(subject):
        if model is Consistency.VIRTUAL and bucket.writers is None and _has_several_regions(subject, bucket):
            yield Violation(
                at=at,
                message=f"the {title} diverges for good where two regions write one key, "
                "`create` succeeds in each, and `update` compares revisions of two different streams",
                hint=f"{_alternative(subject)}; or say `writers: one-per-key` if each key is written in one region only",
                on_key=True,
            )


@rule("VS143", "bucket-compares-nothing", Severity.ERROR)
def bucket_compares_nothing(subject: TopologySubject) -> Iterator[Violation]:
    """
    An ordered bucket takes writes in several regions, and nothing says that they never write the same key.

    ## Why is this bad?
    All regions agree on one order, and so on one value in the end. But a write is accepted by its region before that:
    `create` succeeds in several regions, `update` compares the revision of a read with the sequences of another stream,
    and the value that loses was acknowledged. The parts of two objects that are written at once under one name are
    never put together wrong, but one of them stays as garbage.
    """
    for at, title, bucket, model in _buckets(subject):
        if model is Consistency.ORDERED and bucket.writers is None and _has_several_regions(subject, bucket):
            yield Violation(
                at=(*at, "consistency"),
                message=f"the {title} compares nothing across regions: `create` succeeds in each, "
                "`update` compares revisions of two different streams, and the last of two writers wins",
                hint=f"{_alternative(subject)}; or say `writers: one-per-key` if each key is written in one region only",
            )


@rule("VS144", "bucket-out-of-reach", Severity.ERROR)
def bucket_out_of_reach(subject: TopologySubject) -> Iterator[Violation]:
    """
    Clients cannot read what a bucket holds, or not in every way, because its stream is reached by mapping.

    ## Why is this bad?
    With `routing: mapped`, clients cannot create consumers on `virtual` and `ordered` streams (error 10056), and object
    stores are read by consumers: `put` works, `get`, `list`, `watch` and `delete` do not. Of a key-value bucket,
    `keys`, `watch`, `history` and `purge_deletes` do not work.
    """
    if not profile_of(subject.topology).has_physical_names:
        return
    by_name = {stream.name: stream for stream in subject.topology.streams}
    for at, title, _, model in _buckets(subject):
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
            + (", or say `virtual_name: order`" if model is Consistency.ORDERED else ""),
            on_key=True,
            severity=None if is_objects else Severity.WARNING,
        )


def unused_writers(subject: TopologySubject) -> Iterator[Violation]:
    """Buckets with one origin that say who writes their keys: their one stream compares revisions for every region."""
    for at, title, bucket, model in _buckets(subject):
        if model.has_origin and bucket.writers is not None:
            yield Violation(
                at=(*at, "writers"),
                message=f"the {title} is {model.value}: any region may write any key",
                hint="remove `writers`",
            )


def buckets_called_like_streams(subject: TopologySubject) -> Iterator[Violation]:
    """Buckets whose stream is declared under `streams` too: clients find the bucket `users` in `KV_users`."""
    for at, title, _, _ in _buckets(subject):
        stream = _STREAMS[str(at[0])](str(at[1]))
        if stream in subject.written:
            yield Violation(
                at=at,
                message=f"the {title} is the stream `{stream}`, which `streams` has too",
                hint="remove it from `streams`, or name one of them otherwise",
                on_key=True,
            )
