"""What reads a target (servers, a capture, the tables of an earlier audit), and what it hands to the stages."""

from __future__ import annotations

from abc import ABC, abstractmethod

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


class TargetReader(ABC):
    """Reads a target: what needs no Spark from the moment on that it is made, and the rest in `read`."""

    messages: int
    """The number of messages to read, which decides the size of Spark."""

    @abstractmethod
    def read(self, session: AuditSession) -> AuditInput:
        """Read what is left to be read. Raises VstreamError if that is not possible."""

    @abstractmethod
    def close(self) -> None:
        """Stop what has begun."""
