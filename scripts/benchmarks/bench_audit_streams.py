"""
What an audit of many small virtual streams costs: five regions, 60 messages in each stream, of tables as extraction leaves them.

From the start of Spark to the report's findings: CPU seconds of all processes, and the most memory that they had together.

With `--extract`, `vstream audit` reads them from five servers, which hold what sourcing would have left there: a machine
that runs the sources of 10,000 streams in five regions is not needed. Servers since 2.15 take no such headers from
clients, so these are older. Of its processes the CPU counts, and that of the servers is beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from bench_audit import EPOCH, Cost, apart, measure_cost, report
from bench_goals import record
from pyspark.sql import functions as F

from vstream.audit.connector.client import api_request, connect, parse_api_answer
from vstream.audit.connector.values import Access
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.session import open_session, size_settings
from vstream.audit.stages import StageRunner
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.table_store import TableStore
from vstream.errors import VstreamError
from vstream.lab import binaries, ports
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_streams
from vstream.topology.model import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vstream.topology.bundle import RenderedStream

REGIONS = ("r0", "r1", "r2", "r3", "r4")
EACH = 12
"""Messages that each region writes into each stream."""
GOAL = 10_000
STEP = 10**6
_ROWS = EACH * (1 + len(REGIONS))
"""Messages of a virtual stream in one region: of its write stream and of its read stream."""
_FILE = 500
"""Virtual streams in a file: a task of extraction reads so many small ones of a region."""
END = EPOCH + EACH * len(REGIONS) * STEP + 10**12


def generate(count: int, place: str) -> None:
    """`messages` and `streams` below *place*, of *count* virtual streams in which nothing is wrong."""
    with open_session() as spark:
        # As extraction leaves it: a file has a region's streams one after the other, each in its order.
        rows = spark.range(count * len(REGIONS) * _ROWS, numPartitions=-(-count * len(REGIONS) // _FILE)).select(
            F.expr(f"id div {_ROWS} % {count}").alias("v"),
            F.expr(f"id div {count * _ROWS}").alias("r"),
            F.expr(f"id % {_ROWS} - {EACH}").alias("n"),
        )
        is_write = F.col("n") < 0
        rows = rows.select(
            *("v", "r", is_write.alias("is_write")),
            F.when(is_write, F.col("r")).otherwise(F.expr(f"n % {len(REGIONS)}")).alias("o"),
            F.when(is_write, F.col("n") + EACH + 1).otherwise(F.expr(f"n div {len(REGIONS)} + 1")).alias("s"),
        )
        region, origin = (F.concat(F.lit("r"), F.col(name).cast("string")) for name in ("r", "o"))
        name, place_there, is_write = F.concat(F.lit("s"), F.col("v").cast("string")), F.col("s"), F.col("is_write")
        place_here = (place_there - 1) * len(REGIONS) + F.col("o") + 1
        written, key = F.concat(name, F.lit("-write-"), origin), F.concat(name, F.lit(".k"))
        prefix = F.concat(F.lit("_vs."), name, F.lit("."), origin, F.lit("."))
        header = F.concat_ws(
            " ", written, place_there, F.concat(prefix, F.lit(">")), F.lit(">"), F.concat(prefix, key), F.lit("A")
        )
        # Regions write the same key, each after it has received what others wrote.
        sent_ns = F.lit(EPOCH) + place_here * STEP
        values = {
            "virtual": name,
            "region": region,
            "role": F.when(is_write, "write").otherwise("read"),
            "stream": F.when(is_write, written).otherwise(F.concat(name, F.lit("-read-"), region)),
            "seq": F.when(is_write, place_there).otherwise(place_here),
            "time_ns": sent_ns + F.when(is_write, 0).otherwise(STEP // 2),
            "subject": F.when(is_write, F.concat(prefix, key)).otherwise(key),
            "source": F.when(~is_write, header),
            "msg_id": F.lit(None).cast("string"),
            "ttl": F.lit(None).cast("string"),
            "rollup": F.lit(None).cast("string"),
            "size": F.lit(64),
            "digest": F.xxhash64("v", "o", "s"),
        }
        table = rows.select(*(values[field.name].cast(field.dataType).alias(field.name) for field in MESSAGES))
        table.write.parquet(f"{place}/messages")
        sources = {number: [(f"s{number}-write-{each}", EACH) for each in REGIONS] for number in range(count)}
        stream_rows: list[tuple[Any, ...]] = [
            (
                f"s{number}", f"s{number}-{role}-{each}", each, role, 1, last, last, 0, END, END, 0, "2.15.1", "consumer", None,
                sources[number] if role == "read" else [], {}, None, None, None,
            )
            for number in range(count)
            for role, last in (("write", EACH), ("read", EACH * len(REGIONS)))
            for each in REGIONS
        ]  # fmt: skip
        make_table(spark, stream_rows, STREAMS).write.parquet(f"{place}/streams")


def main(count: int) -> None:
    """Print what the audit of *count* streams took. Nothing may be found."""
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as place:
        with apart() as pool:
            pool.submit(generate, count, place).result()
        with measure_cost() as cost, open_session(conf=size_settings(count * len(REGIONS) * _ROWS)) as spark:
            tables = [spark.read.schema(schema).parquet(f"{place}/{name}") for schema, name in TABLES]
            runner = StageRunner(store=TableStore(spark, f"file://{place}/audit"), context=AuditContext(subject="many"))
            audited = runner.run(*tables).report
            cost.stop()
    assert not audited.findings, audited.findings
    report(f"{count:,} virtual streams × 5 regions", cost, {"rows": audited.messages})
    if count == GOAL:
        record("audit of 10,000 streams × 5 regions, CPU", cost.cpu)


OLDER = "2.12.8"
"""Of nats-server."""


def read_and_audit(count: int) -> None:
    """Print what `vstream audit` of *count* streams on five servers took. Nothing may be found."""
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory, run_servers(Path(directory)) as servers:
        file = Path(directory) / "many.yaml"
        places = ", ".join(f"r{number}: {{urls: ['{url}']}}" for number, url in enumerate(servers))
        file.write_text(
            f"version: 1\nname: many\nserver_version: '2.12'\njetstream: {{max_file: 100GiB}}\nconnect: {{{places}}}\n"
            f"regions: {{{', '.join(f'{region}: {{servers: 1}}' for region in REGIONS)}}}\n"
            "defaults: {write: {max_age: 24h, storage: memory}, read: {storage: memory}}\nstreams:\n"
            + "".join(f"  s{number}: {{subjects: [s{number}.>]}}\n" for number in range(count))
        )
        streams = render_streams(check_topology(file.read_bytes(), str(file)).require())
        fill(servers, streams)
        before = sum(sum(process.cpu_times()[:2]) for process in servers.values())
        command = [sys.executable, "-m", "vstream", "audit", str(file), "--format", "json"]
        cost, seen, began = Cost(), {}, time.monotonic()
        with (Path(directory) / "audit.json").open("w+") as output:
            process = psutil.Popen(command, stdout=output)
            while process.poll() is None:
                resident = 0
                with suppress(psutil.Error):
                    # What has ended says no longer what it took: the last look counts.
                    for part in (process, *process.children(recursive=True)):
                        seen[part.pid] = sum(part.cpu_times()[:2])
                        resident += part.memory_info().rss
                cost.resident = max(cost.resident, resident)
                time.sleep(0.2)
            output.seek(0)
            audited = json.load(output)
        cost.wall, cost.cpu = time.monotonic() - began, sum(seen.values())
        after = sum(sum(process.cpu_times()[:2]) for process in servers.values())
    assert (audited["verdict"], audited["findings"]) == ("pass", []), (audited["verdict"], audited["findings"][:3])
    report(f"{count:,} virtual streams × 5 servers", cost, {"rows": audited["messages"]})
    print(f"  beside it, servers {after - before:.1f} s CPU")
    if count == GOAL:
        record("audit of 10,000 streams × 5 servers, CPU", cost.cpu)


@contextmanager
def run_servers(directory: Path) -> Iterator[dict[str, psutil.Popen]]:
    """A server for each region, by URL; they know nothing of each other."""
    servers: dict[str, psutil.Popen] = {}
    try:
        for region in REGIONS:
            port = next(port for port in range(24_000, 25_000) if ports.is_free(port))
            file = directory / f"{region}.conf"
            file.write_text(
                f'listen: "127.0.0.1:{port}"\njetstream {{store_dir: "{directory}/{region}", max_mem: 8G}}\n'
            )
            with (directory / f"{region}.log").open("wb") as log:
                servers[f"nats://127.0.0.1:{port}"] = psutil.Popen(
                    [binaries.find_or_fetch(OLDER), "-c", file], stdout=log, stderr=log
                )
            while ports.is_free(port):
                time.sleep(0.05)
        yield servers
    finally:
        for process in servers.values():
            process.terminate()
            process.wait()


def fill(urls: Iterable[str], streams: Sequence[RenderedStream]) -> None:
    """
    The *streams* at the *urls* of their regions, each with its messages, as if read streams had sourced them.

    Regions write in turn, each after it has received what others wrote: of such messages there is nothing to say.
    """
    accesses = [Access(servers=(url,), timeout=60) for url in urls]
    with ThreadPoolExecutor() as threads:
        parts = [[stream for stream in streams if stream.region == region] for region in REGIONS]
        list(threads.map(create, accesses, parts))
    with ExitStack() as stack:
        clients = dict(zip(REGIONS, (stack.enter_context(connect(access)) for access in accesses), strict=True))
        names = list(dict.fromkeys(stream.virtual for stream in streams))
        for number, (seq, origin) in enumerate(product(range(1, EACH + 1), REGIONS), start=1):
            written = [(f"_vs.{name}.{origin}.{name}.k", build_payload(name, origin, seq)) for name in names]
            for (subject, _), answer in zip(written, clients[origin].request_many(written), strict=True):
                assert not isinstance(answer, VstreamError), answer
                assert parse_api_answer(answer, subject)["seq"] == seq
            sourced = b"".join(build_sourced(name, origin, seq) for name in names)
            for client in clients.values():
                client.send(sourced)
            last = names[-1]
            for access, (region, client) in zip(accesses, clients.items(), strict=True):
                while api_request(client, access, f"STREAM.INFO.{last}-read-{region}")["state"]["messages"] < number:
                    time.sleep(0.01)


def create(access: Access, streams: Sequence[RenderedStream]) -> None:
    """The streams of a region, without their sources."""
    bodies = []
    for stream in streams:
        config = {name: value for name, value in stream.config.fields.items() if name not in ("sources", "placement")}
        config |= {"subjects": [f"{stream.virtual}.>"]} if stream.role is Role.READ else {}
        bodies.append((f"$JS.API.STREAM.CREATE.{stream.config.name}", json.dumps(config).encode()))
    with connect(access) as client:
        answers = client.request_many(bodies)
    for (subject, _), answer in zip(bodies, answers, strict=True):
        assert not isinstance(answer, VstreamError), answer
        parse_api_answer(answer, subject)


def build_payload(name: str, origin: str, seq: int) -> bytes:
    return f"{name} {origin} {seq}".ljust(64).encode()


def build_sourced(name: str, origin: str, seq: int) -> bytes:
    """What a read stream gets of a message, in the protocol of clients."""
    subject, prefix = f"{name}.k", f"_vs.{name}.{origin}."
    headers = (
        f"NATS/1.0\r\nNats-Stream-Source: {name}-write-{origin} {seq} {prefix}> > {prefix}{subject}\r\n\r\n".encode()
    )
    sizes = (subject.encode(), len(headers), len(headers) + 64)
    return b"HPUB %s %d %d\r\n%s%s\r\n" % (*sizes, headers, build_payload(name, origin, seq))


TABLES = ((MESSAGES, "messages"), (STREAMS, "streams"))
