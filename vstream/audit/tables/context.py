"""What an audit knows besides messages. It is stored with the tables so that they can be judged again later."""

from __future__ import annotations

from collections.abc import Mapping  # at run time: pydantic looks at it
from dataclasses import field, replace

from pydantic import TypeAdapter

from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.spark_errors import suggest_rebuild
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.table_store import TableStore
from vstream.errors import VstreamError
from vstream.topology.model import Consistency
from vstream.value_class import value_class

_CONTEXT = make_schema("context string")


@value_class
class AuditContext:
    """What an audit knows besides messages."""

    subject: str
    """What is audited, as shown to users."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The consistency of each virtual stream: a value of `topology.model.Consistency`."""
    canaries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By virtual stream, the subjects on which `vstream probe` may publish canaries, which it deletes again."""
    windows: tuple[tuple[str, int, int], ...] = ()
    """Injected faults: name, start and end, in nanoseconds since 1970."""
    is_narrow: bool = False
    """Whether streams were read only from a certain time on."""
    is_sampled: bool = False
    """Whether only some subjects were read."""
    unfinished: str | None = None
    """Why the recording of the audited run is incomplete; None if it is complete."""
    has_journal: bool = False
    """Whether the operations of clients and their outcomes were recorded."""
    stretch: str | None = None
    """The name of the stretch cluster, which is not a region."""


_SHAPE = TypeAdapter(AuditContext)


def save_context(store: TableStore, context: AuditContext) -> None:
    """Store *context* with the tables of *store*."""
    store.keep("context", make_table(store.spark, [(_SHAPE.dump_json(context).decode(),)], _CONTEXT), _CONTEXT)


def read_context(store: TableStore, subject: str) -> AuditContext:
    """
    The stored context; *subject* replaces the name of what was audited.

    Without a context, an audit would not know which guarantees to check. Raises VstreamError if it is missing or
    damaged.
    """
    rows = store.read_earlier("context", _CONTEXT).collect()
    try:
        [(text,)] = rows
        stored = _SHAPE.validate_json(text or "", strict=True)
        for model in stored.models.values():
            Consistency(model)
    except ValueError as error:
        raise VstreamError(
            "the table `context` is damaged or was written by another version", hint=suggest_rebuild("context")
        ) from error
    return replace(stored, subject=subject)
