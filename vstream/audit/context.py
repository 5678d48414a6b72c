"""What an audit knows besides messages. It is kept beside the tables, so that they can be judged again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.types import StringType, StructField, StructType

from vstream.audit import journal
from vstream.audit.local import table
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from vstream.audit.shelf import Shelf

_JOURNAL = "journal"
_CONTEXT = StructType([StructField("context", StringType())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What an audit knows besides messages."""

    subject: str
    """What is audited, for people."""
    models: Mapping[str, str] = field(default_factory=dict)
    """By virtual stream, what it promises: a value of `model.topology.Consistency`."""
    windows: tuple[tuple[str, int, int], ...] = ()
    """Faults: their names, with beginning and end in nanoseconds since 1970."""
    is_narrow: bool = False
    """Whether streams were read from a moment on only."""
    is_sampled: bool = False
    """Whether only messages of some subjects were read."""
    unfinished: str | None = None
    """Why what is audited was not recorded to its end, if it was not."""
    has_journal: bool = False
    """Whether it is known what clients did and were told."""


def save_context(shelf: Shelf, context: Context) -> None:
    """Keep *context* beside the tables, so that they can be judged again."""
    text = json.dumps(
        {
            "subject": context.subject,
            "models": dict(context.models),
            "windows": [list(one) for one in context.windows],
            "is_narrow": context.is_narrow,
            "is_sampled": context.is_sampled,
            "unfinished": context.unfinished,
            "has_journal": context.has_journal,
        }
    )
    shelf.keep("context", table(shelf.spark, [(text,)], _CONTEXT), _CONTEXT)


def read_context(shelf: Shelf, subject: str) -> Context:
    """The context that was kept; one that knows nothing but *subject* if there is none."""
    try:
        rows = shelf.read("context", _CONTEXT).collect()
    except VstreamError:
        if shelf.expects("context"):
            raise
        rows = []
    if not rows:
        return Context(subject=subject)
    kept = json.loads(rows[0]["context"])
    return Context(
        subject=subject,
        models=kept["models"],
        windows=tuple((one[0], one[1], one[2]) for one in kept["windows"]),
        is_narrow=kept["is_narrow"],
        is_sampled=kept["is_sampled"],
        unfinished=kept["unfinished"],
        has_journal=kept["has_journal"],
    )


def save_journal(shelf: Shelf, operations: DataFrame) -> DataFrame:
    """Keep the operations of a scenario beside the tables."""
    return shelf.keep(_JOURNAL, operations, journal.JOURNAL)


def read_journal(shelf: Shelf) -> DataFrame:
    """The operations that were kept. Raises VstreamError if there are none."""
    return shelf.read(_JOURNAL, journal.JOURNAL)
