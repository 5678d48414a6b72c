"""
The streams of a topology, read from its servers.

Few messages are read by a thread of this process while Spark starts, others by tasks of Spark; with a state, these read
only what is new.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from vstream.audit.extract.background_read import BackgroundRead, begin_background_read
from vstream.audit.extract.extract_plan import ExtractPlan, plan_extraction
from vstream.audit.extract.extraction import read_in_process
from vstream.audit.extract.target_reader import AuditInput
from vstream.audit.request import AuditedServers, AuditRequest, SparkAddress
from vstream.audit.spark.audit_session import AuditSession
from vstream.audit.spark.spark_errors import convert_spark_errors, is_read_error
from vstream.audit.state.audit_state import AuditState, UnusableStateError
from vstream.audit.state.incremental import read_with_state
from vstream.audit.tables.audit_tables import extract_tables, store_tables, to_spark
from vstream.audit.tables.context import AuditContext
from vstream.errors import NotReachableError, VstreamError
from vstream.topology.naming import list_canary_subjects
from vstream.topology.units import spell_nanoseconds
from vstream.value_class import value_class

_MAX_BEFORE_SPARK = 200_000
"""Number of messages that this process can read before Spark has started."""
_LONG_AGE_NS = 3600 * 10**9
"""An age in nanoseconds: what is removed at this age was there, for the most part, when Spark began to start."""


def begin_reading_servers(
    request: AuditRequest, servers: AuditedServers, address: SparkAddress, scratch: Path
) -> ServersReader:
    """
    Ask *servers* what they have, and begin to read it where there are few messages, and Spark at *address* is on this machine.

    Raises NotReachableError if no stream can be read.
    """
    plan = plan_servers(request, servers, scratch)
    is_early = address.is_local and request.state is None and plan.messages <= _MAX_BEFORE_SPARK
    background = begin_background_read(partial(read_in_process, plan)) if is_early else None
    return ServersReader(request=request, servers=servers, plan=plan, messages=plan.messages, background=background)


@value_class
class ServersReader:
    """Reads what *plan* says of *servers*."""

    request: AuditRequest
    servers: AuditedServers
    plan: ExtractPlan
    messages: int
    background: BackgroundRead | None
    """None if Spark reads."""

    def read(self, session: AuditSession) -> AuditInput:
        """The messages of the servers; they are planned and read again if a server ends in the midst."""
        session.progress.begin("extract")
        try:
            if self.background is not None:
                return self._convert_background(self.background, session)
            if _has_short_ages(self.plan):
                # What its streams had then may be gone by now. Thousands of others need not be asked again.
                return read_servers(self.request, self.servers, session)
            return _read_by_spark(self.request, self.servers, self.plan, session)
        except VstreamError as error:
            if isinstance(error, NotReachableError | UnusableStateError) or not is_read_error(error):
                raise
            # A region that went down meanwhile is one that cannot be read: the next snapshot says so.
            session.progress.note(f"reading was interrupted and starts again: {error.message}")
            return read_servers(self.request, self.servers, session)

    def close(self) -> None:
        """Stop reading in the background."""
        if self.background is not None:
            self.background.stop()

    def _convert_background(self, background: BackgroundRead, session: AuditSession) -> AuditInput:
        with convert_spark_errors():
            tables = store_tables(to_spark(session.spark, background.tables.result()), self.request.tables_uri)
        return AuditInput(tables=tables, context=make_context(self.request, self.servers))


def plan_servers(request: AuditRequest, servers: AuditedServers, scratch: Path) -> ExtractPlan:
    """What is to be read of what *servers* have now. Raises NotReachableError if no stream can be read."""
    since_ns = time.time_ns() - request.since_ns if request.since_ns else None
    return plan_extraction(servers.streams, servers.endpoints, scratch, since_ns=since_ns, sample=request.sample)


def read_servers(request: AuditRequest, servers: AuditedServers, session: AuditSession) -> AuditInput:
    """What *servers* have now, read by tasks of Spark. Raises as `plan_servers`."""
    return _read_by_spark(request, servers, plan_servers(request, servers, session.scratch), session)


def _has_short_ages(plan: ExtractPlan) -> bool:
    """Whether any stream removes messages soon after they were stored."""
    return any((item.limits or {}).get("max_age", _LONG_AGE_NS) < _LONG_AGE_NS for item in plan.snapshots)


def _read_by_spark(
    request: AuditRequest, servers: AuditedServers, plan: ExtractPlan, session: AuditSession
) -> AuditInput:
    state_messages = None
    with convert_spark_errors():
        if request.state is None:
            tables = extract_tables(session.spark, plan, session.scratch, request.tables_uri)
        else:
            state = AuditState(session.spark, request.state, servers.topology.name)
            tables, state_messages = read_with_state(state, plan, session.progress)
            tables = store_tables(tables, request.tables_uri)
    return AuditInput(tables=tables, context=make_context(request, servers), state_messages=state_messages)


def make_context(request: AuditRequest, servers: AuditedServers) -> AuditContext:
    """What is known of *servers* besides messages."""
    sample, since_ns = request.sample, request.since_ns
    names = {stream.virtual for stream in servers.streams}
    with_canary = [stream for stream in servers.topology.streams if stream.name in names and stream.canary is not None]
    stretch = servers.topology.stretch
    # A part that passes is not the whole: whoever reads the verdict sees what it is about.
    part = f", the last {spell_nanoseconds(since_ns)}" if since_ns is not None else ""
    part += f", {sample} of the subjects" if sample is not None else ""
    return AuditContext(
        subject=f"{servers.topology.name} on {servers.description}{part}",
        models={stream.name: stream.consistency.value for stream in servers.topology.streams if stream.name in names},
        canaries={stream.name: list_canary_subjects(stream) for stream in with_canary},
        is_narrow=since_ns is not None,
        is_sampled=sample is not None,
        stretch=stretch.cluster if stretch is not None else None,
    )
