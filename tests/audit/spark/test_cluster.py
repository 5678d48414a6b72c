"""The same rows on a cluster of two workers, and the same audit on what is left of it, as on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.support.jetstream import JetStreamServer, fill
from tests.support.relay import relay
from tests.support.spark_cluster import Cluster, cluster
from vstream.audit.extract.extract_plan import plan_extraction
from vstream.audit.spark.session import SMALL_SETTINGS
from vstream.audit.stages import StageRunner
from vstream.audit.tables import audit_tables
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.table_store import TableStore
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint, Role
from vstream.topology.stream_config import StreamConfig

pytestmark = [
    pytest.mark.server,
    pytest.mark.night,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
]
REGIONS = ("west", "central", "east")
MESSAGES = 1_500

DRIVER = """
import json, sys
from pathlib import Path
from tests.audit.spark.test_cluster import extract_tables, judge_tables
from vstream.audit.spark.session import open_session

def place(_):
    import vstream.audit.connector
    return vstream.audit.connector.__file__

master, scratch, conf, url, relayed = sys.argv[1:]
with open_session(master=master, conf=json.loads(conf)) as spark:
    print(json.dumps(spark.sparkContext.parallelize(range(2), 2).map(place).collect()), flush=True)
    for number, one in enumerate([url, relayed]):
        extract_tables(spark, one, Path(scratch), f"{Path(scratch).as_uri()}/tables-{number}")
    print(json.dumps(judge_tables(spark, f"{Path(scratch).as_uri()}/tables-1")), flush=True)
"""


def extract_tables(spark: SparkSession, url: str, scratch: Path, tables: str) -> None:
    """The first stage of an audit."""
    streams = [
        RenderedStream(
            config=StreamConfig(name=f"foo-{role.value}-{region}", fields={}),
            virtual="foo",
            region=region,
            role=role,
            path="",
        )
        for role in (Role.WRITE, Role.READ)
        for region in REGIONS
    ]
    extraction = plan_extraction(streams, dict.fromkeys(REGIONS, Endpoint(urls=(url,))), scratch)
    audit_tables.extract_tables(spark, extraction, scratch, tables)


def judge_tables(spark: SparkSession, tables: str) -> dict[str, Any]:
    """All later stages, from the tables of the first to the report, without what differs each time."""
    read = audit_tables.read_tables(spark, tables)
    report = (
        StageRunner(store=TableStore(spark, tables), context=AuditContext(subject="test"))
        .run(read.messages, read.streams)
        .report
    )
    return {name: value for name, value in report.as_dict().items() if name != "seconds"}


def messages(tables: str) -> list[dict[str, Any]]:
    """What was extracted, in one order."""
    rows = parquet.read_table(f"{tables}/messages").to_pylist()
    return sorted(rows, key=lambda row: (row["stream"], row["seq"]))


@pytest.fixture
def three(server: JetStreamServer) -> JetStreamServer:
    """Three regions in one server; a read stream has lost two messages."""
    for region in REGIONS:
        name = f"foo-write-{region}"
        messages: list[tuple[str, bytes, dict[str, str] | None]] = [
            (f"{name}.{number % 7}", b"%d" % number + b"x" * 400, None) for number in range(MESSAGES)
        ]
        fill(server, name, messages)
    for region in REGIONS:
        sources = [
            {
                "name": f"foo-write-{region}",
                "subject_transforms": [{"src": f"foo-write-{region}.>", "dest": f"foo.{region}.>"}],
            }
            for region in REGIONS
        ]
        name = f"foo-read-{region}"
        body = {"name": name, "storage": "memory", "allow_direct": True, "sources": sources}
        server.api(f"STREAM.CREATE.{name}", body)
        deadline = time.monotonic() + 60
        while server.api(f"STREAM.INFO.{name}")["state"]["messages"] < 3 * MESSAGES:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for seq in (700, 701):
        server.api("STREAM.MSG.DELETE.foo-read-east", {"seq": seq})
    return server


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[Cluster]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    with cluster(directory) as workers:
        yield workers


@pytest.mark.usefixtures("small_tables")
def test_a_cluster_says_the_same_and_so_does_what_is_left_of_it(
    spark: SparkSession, three: JetStreamServer, two_workers: Cluster, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    killed: list[int] = []
    turn = threading.Lock()

    def kill(port: int) -> None:
        # Whoever reads waits here for his next byte: his task is in the middle of a stream.
        with turn:
            if not killed and (pid := two_workers.kill_worker_of(port)) is not None:
                killed.append(pid)

    conf = SMALL_SETTINGS | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SMALL_SETTINGS["spark.driver.extraJavaOptions"],
        "spark.ui.enabled": "false",
    }
    directory = tmp_path / "here"
    with relay(three.port, kill, much=300_000) as port:
        urls = [three.url, f"nats://127.0.0.1:{port}"]
        command = [sys.executable, "-c", DRIVER, two_workers.master, str(scratch), json.dumps(conf), *urls]
        driver = subprocess.Popen(command, env=two_workers.environment, stdout=subprocess.PIPE, text=True)
        try:
            extract_tables(spark, three.url, scratch, directory.as_uri())
            expected = json.loads(json.dumps(judge_tables(spark, directory.as_uri())))
            output, _ = driver.communicate(timeout=700)
        finally:
            driver.kill()
            driver.wait()
    assert driver.returncode == 0, two_workers.read_logs()
    places, report = (json.loads(line) for line in output.splitlines())
    # It is not the checkout that executors import.
    assert all("vstream-connector.zip" in place for place in places), places
    assert killed
    assert two_workers.alive() == 1
    # Times of arrival and sequences are the servers', and so the same each time; only when it was asked is not.
    assert messages(f"{scratch}/tables-0") == messages(f"{scratch}/tables-1") == messages(str(directory))
    assert report == expected
    assert [(finding["name"], finding["count"]) for finding in expected["findings"]] == [("lost-middle", 2)]
