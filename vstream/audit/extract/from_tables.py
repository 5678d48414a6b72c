"""The tables of an earlier audit."""

from __future__ import annotations

from pathlib import Path

from vstream.audit.extract.target_reader import AuditInput
from vstream.audit.judge.client_journal import JOURNAL
from vstream.audit.request import LOCAL_SCHEME, SMALL_AUDIT_MESSAGES, AuditRequest
from vstream.audit.spark.audit_session import AuditSession
from vstream.audit.tables.audit_tables import count_extracted, read_tables, store_tables
from vstream.audit.tables.context import read_context
from vstream.audit.tables.table_store import TableStore
from vstream.value_class import value_class


def begin_reading_tables(request: AuditRequest, uri: str) -> TablesReader:
    """Count the messages in the tables at *uri*, where that needs no Spark."""
    is_local = uri.startswith(LOCAL_SCHEME)
    count = count_extracted(Path(uri.removeprefix(LOCAL_SCHEME))) if is_local else None
    return TablesReader(request=request, uri=uri, messages=SMALL_AUDIT_MESSAGES if count is None else count)


@value_class
class TablesReader:
    """Reads the tables at *uri*, all of them by Spark."""

    request: AuditRequest
    uri: str
    messages: int

    def read(self, session: AuditSession) -> AuditInput:
        """The tables, which the stages after those that made them read."""
        store = TableStore(session.spark, earlier=self.uri)
        tables, context = read_tables(session.spark, self.uri), read_context(store, self.uri)
        # Files that another audit left beside them are not theirs.
        journal = store.read_earlier("journal", JOURNAL) if context.has_journal else None
        if self.request.tables_uri != self.uri:
            tables = store_tables(tables, self.request.tables_uri)
        return AuditInput(tables=tables, context=context, journal=journal, earlier_uri=self.uri)

    def close(self) -> None:
        """Nothing has begun before `read`."""
