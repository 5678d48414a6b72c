"""What reads a target (servers, a capture, the tables of an earlier audit), and what it hands to the stages."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from vstream.audit.spark.audit_session import AuditSession
from vstream.audit.state.incremental import StateMessages
from vstream.audit.tables.audit_tables import AuditTables
from vstream.audit.tables.context import AuditContext
from vstream.value_class import value_class


@value_class
class AuditInput:
    """What is judged: *tables*, and the *journal* of a scenario's clients."""

    tables: AuditTables
    context: AuditContext
    journal: DataFrame | None = None
    earlier_uri: str | None = None
    """Where an earlier audit has kept these, and the tables of its stages; None if they were read now."""
    state_messages: StateMessages | None = None
    """None without a state."""


class TargetReader(Protocol):
    """A target whose reading has begun, as far as that needs no Spark. The rest is read by `read`."""

    @property
    def messages(self) -> int:
        """The number of messages to read, which decides the size of Spark."""

    def read(self, session: AuditSession) -> AuditInput:
        """Read what is left to be read. Raises VstreamError if that is not possible."""

    def close(self) -> None:
        """Stop what has begun."""
