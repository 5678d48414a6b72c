"""
An audit from end to end: read a target into tables, run the stages on these, and report. Imports Spark.

`run_audit` does it once, and `open_rounds` again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vstream.audit.audit_session import AuditSession, open_spark
from vstream.audit.extract.from_capture import CaptureReader
from vstream.audit.extract.from_servers import ServersReader, plan_servers, read_servers
from vstream.audit.extract.from_tables import TablesReader
from vstream.audit.extract.target_reader import TargetReader
from vstream.audit.follow import make_follower
from vstream.audit.report import Report
from vstream.audit.request import (
    AuditedServers,
    AuditedTables,
    AuditProgress,
    AuditRequest,
    AuditTarget,
    SparkAddress,
)
from vstream.audit.run_pipeline import run_pipeline
from vstream.audit.scratch import scratch_directory
from vstream.audit.spark.progress import watch_progress
from vstream.audit.tables.table_store import try_publishing
from vstream.capture.store import Capture


def run_audit(request: AuditRequest, target: AuditTarget, address: SparkAddress, progress: AuditProgress) -> Report:
    """Read *target* and report on it. Raises UnknownNameError for a stream that does not exist."""
    progress.begin("start Spark")
    with (
        scratch_directory() as scratch,
        closing(begin_reading(request, target, address, scratch)) as reader,
        open_spark(address, reader.messages, progress) as spark,
    ):
        session = AuditSession(spark=spark, scratch=scratch, progress=progress)
        return read_and_judge(request, reader, session)


def begin_reading(request: AuditRequest, target: AuditTarget, address: SparkAddress, scratch: Path) -> TargetReader:
    """Begin to read *target*, as far as that needs no Spark. Raises VstreamError if it cannot be read."""
    match target:
        case AuditedServers():
            return ServersReader(request, target, scratch, address)
        case Capture():
            return CaptureReader(request, target)
        case AuditedTables():
            return TablesReader(request, target.uri)


def read_and_judge(request: AuditRequest, reader: TargetReader, session: AuditSession) -> Report:
    """Read what is left to be read, run the stages on all of it, and publish what they found if requested."""
    if request.publish is not None:
        try_publishing(session.spark, request.publish, request.publish_as)
    with watch_progress(session.spark, session.progress.tasks):
        return run_pipeline(request, reader.read(session), session)


@contextmanager
def open_rounds(
    request: AuditRequest, servers: AuditedServers, progress: AuditProgress
) -> Iterator[Callable[[], Report]]:
    """
    What audits a round with each call, on this machine: all messages, which a state keeps, or those of a window.

    Raises VstreamError, after which the next round may succeed.
    """
    progress.begin("start Spark")
    with scratch_directory() as scratch:
        messages = plan_servers(request, servers, scratch).messages
        with open_spark(SparkAddress(), messages, progress) as spark:
            session = AuditSession(spark=spark, scratch=scratch, progress=AuditProgress())
            if request.state is None:
                yield make_follower(request, servers, session).run_round
            else:
                yield lambda: run_pipeline(request, read_servers(request, servers, session), session)
