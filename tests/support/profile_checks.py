"""What holds in each routing profile, asked of a lab that a test has anyway."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nats.aio.msg import Msg
from nats.js import JetStreamContext

from tests.support.command import Ran, vstream
from tests.support.labs import fetch_all
from vstream.audit.extract.extract_plan import plan_extraction
from vstream.audit.extract.extraction import read_in_process
from vstream.audit.tables.schema import STREAMS
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.accounts import AUDIT_USER

PATIENCE = 60.0


def check_apply_makes_everything(file: Path) -> tuple[Ran, Ran]:
    """What `apply` says in a lab with nothing in it, and `plan` after it: that there is nothing to do. Neither state can be imported."""
    routing = check_topology(file.read_bytes(), file.name).require().routing.value
    check_import_is_refused(file, routing)
    applied = vstream("apply", file, "--yes")
    assert applied.code == 0, applied.out + applied.err
    check_import_is_refused(file, routing)
    planned = vstream("plan", file, "--detailed-exitcode")
    assert planned.code == 0, planned.out
    return applied, planned


def check_import_is_refused(file: Path, routing: str) -> None:
    """Only `routing: mapped` can be imported: the lab that is called as *file* is said to be laid out by vstream."""
    target = file.with_name("found.yaml")
    written = vstream("init", target, "--lab", file.stem)
    assert written.code == 1, written.out + written.err
    assert f"`routing: {routing}`" in written.err
    assert "which cannot be imported" in written.err
    assert not target.exists()


async def read_in_every_form(js: JetStreamContext, stream: str, subjects: str, number: int) -> list[Msg]:
    """What *stream* holds of *subjects*: by a durable pull consumer, in order, and as pushed to a durable that goes then."""
    durable = await js.pull_subscribe(subjects, durable="pull", stream=stream)
    fetched = await fetch_all(durable, number)
    for message in fetched:
        await message.ack_sync(timeout=PATIENCE)
    assert len({message.subject for message in fetched}) == number
    ordered = await js.subscribe(subjects, stream=stream, ordered_consumer=True)
    for _ in range(number):
        await ordered.next_msg(timeout=PATIENCE)
    push = await js.subscribe(subjects, stream=stream, durable="push", manual_ack=True)
    for _ in range(number):
        await (await push.next_msg(timeout=PATIENCE)).ack()
    assert await js.delete_consumer(stream, "push")
    return fetched


def check_audit_reads_everything(name: str, file: Path, scratch: Path) -> None:
    """Every message of every stream of the topology *file* is read by the user that may do nothing else."""
    topology = check_topology(file.read_bytes(), file.name).require()
    streams = render_bundle(topology, addresses=list_addresses(name)).streams
    tables = read_in_process(plan_extraction(streams, list_endpoints(name, AUDIT_USER), scratch))
    rows = [dict(zip(STREAMS.names, row, strict=True)) for row in tables.streams]
    assert {(row["region"], row["stream"]): row["error"] for row in rows if row["error"]} == {}
    read = Counter(zip(*(tables.messages[column].to_pylist() for column in ("region", "stream")), strict=True))
    assert read == Counter({(row["region"], row["stream"]): row["messages"] for row in rows})
    assert read.total() > 0
