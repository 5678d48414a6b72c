"""What holds in each routing profile, asked of a lab that a test has anyway."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support.command import vstream
from vstream.audit.extract import extract, plan_extraction
from vstream.audit.schema import STREAMS
from vstream.lab.status import list_addresses, list_endpoints
from vstream.lint.parse_topology import parse_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.accounts import AUDIT_USER


def check_import_is_refused(name: str, routing: str, target: Path) -> None:
    """Only `routing: mapped` can be imported: lab *name* is said to be laid out by vstream, and *target* is not written."""
    written = vstream("init", target, "--lab", name)
    assert written.code == 1, written.out + written.err
    assert f"`routing: {routing}`" in written.err
    assert "which cannot be imported" in written.err
    assert not target.exists()


def check_audit_reads_everything(name: str, file: Path, scratch: Path) -> None:
    """Every message of every stream of the topology *file* is read by the user that may do nothing else."""
    topology = parse_topology(file.read_bytes(), file.name).require()
    streams = render_bundle(topology, addresses=list_addresses(name)).streams
    tables = extract(plan_extraction(streams, list_endpoints(name, AUDIT_USER), scratch))
    rows = [dict(zip(STREAMS.names, row, strict=True)) for row in tables.streams]
    assert {(row["region"], row["stream"]): row["error"] for row in rows if row["error"]} == {}
    read = Counter(zip(*(tables.messages[column].to_pylist() for column in ("region", "stream")), strict=True))
    assert read == Counter({(row["region"], row["stream"]): row["messages"] for row in rows})
    assert read.total() > 0
