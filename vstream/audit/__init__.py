"""What every region holds, compared: tables of messages, and what they say. The only package that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vstream.audit.run import CaptureSource, TablesSource, TopologySource


class Sources(NamedTuple):
    """What an audit can be of."""

    servers: type[TopologySource]
    capture: type[CaptureSource]
    tables: type[TablesSource]


def load_sources() -> Sources:
    """Import Spark with the use case, `vstream.audit.run`: nothing else does before an audit is asked for."""
    from vstream.audit.run import CaptureSource, TablesSource, TopologySource  # noqa: PLC0415 - it takes a second or two

    return Sources(servers=TopologySource, capture=CaptureSource, tables=TablesSource)
