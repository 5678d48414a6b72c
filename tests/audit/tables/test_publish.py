"""`--publish-as delta` and `iceberg`, written by a Spark Connect server that has both, and read by these projects' own libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pysail
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, StringType, StructType

from tests.support.night import with_night
from tests.support.ports import free_port
from vstream.audit.tables.table_store import RESULTS
from vstream.lab.ports import is_free

pytestmark = pytest.mark.spark

PUBLISH = """
import sys
from pyspark.sql import SparkSession
from tests.audit.tables.test_publish import rows
from vstream.audit.spark.local_frames import make_table
from vstream.audit.tables.table_store import RESULTS, publish_results, try_publishing
from vstream.audit.tables.table_store import TableStore
remote, lake, kind = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
spark.sql(f"CREATE SCHEMA found LOCATION '{lake}'")
try_publishing(spark, "found", kind)
for number in (1, 4):  # what is there is replaced
    store = TableStore(spark)
    for name, schema in RESULTS.items():
        if name != "shared_ids":  # an audit may have nothing to say of something
            store.keep(name, make_table(spark, rows(schema, number), schema), schema, on_driver=True)
    publish_results(store, "found", kind)
print(*sorted(one.tableName for one in spark.sql("SHOW TABLES IN found").collect()))
"""


def rows(schema: StructType, number: int) -> list[tuple[Any, ...]]:
    """Rows of *schema* with what such columns can hold: the greatest and smallest numbers, any text, nothing."""
    return [
        tuple(None if field.nullable and place % 2 else value(field.dataType, place) for field in schema)
        for place in range(number)
    ]


def value(kind: DataType, place: int) -> Any:
    if isinstance(kind, StructType):
        return {field.name: None if place % 2 else value(field.dataType, place) for field in kind}
    if isinstance(kind, ArrayType):
        return [value(kind.elementType, place + n) for n in range(place)]
    if isinstance(kind, BooleanType):
        return place % 2 == 0
    if isinstance(kind, StringType):
        return ["foo", "", "größer.ключ", "a 'quoted'\n\"line\""][place % 4]
    if isinstance(kind, DoubleType):
        return [0.0, 0.1, -1e300, 1.0][place % 4]
    bits = {"int": 32, "bigint": 64}[kind.simpleString()]
    return [0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))][place % 4]


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What `--remote` has to be for Sail: it takes Spark Connect's orders, is no Java, and has both formats built in."""
    directory, port = tmp_path_factory.mktemp("sail"), free_port()
    # Which version it has to be it takes from the PySpark beside it, knows no 4.3, and uses it for Python functions only.
    (directory / "pysail").symlink_to(Path(pysail.__file__).parent)
    (directory / "pyspark.py").write_text('__version__ = "4.2.0"')
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-S", "-m", "pysail", "spark", "server", "--port", str(port)],
            cwd=directory,
            env=os.environ | {"PYTHONPATH": str(directory)},
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 60
        while is_free(port):
            output = (directory / "log").read_text(errors="replace")
            assert server.poll() is None, output
            assert time.monotonic() < deadline, output
            time.sleep(0.05)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(timeout=20)


def deltas(place: Path) -> pa.Table:
    return DeltaTable(place).to_pyarrow_table()


def icebergs(place: Path) -> pa.Table:
    newest = (place / "metadata" / "version-hint.text").read_text().strip()
    return StaticTable.from_metadata(str(place / "metadata" / f"v{newest}.metadata.json")).scan().to_arrow()


@pytest.mark.parametrize(("kind", "read"), with_night([("delta", deltas)], [("iceberg", icebergs)]))
def test_what_was_found_is_written_as_tables_of_a_lake(kind: str, read: Any, sail: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    done = subprocess.run(
        [sys.executable, "-c", PUBLISH, sail, lake.as_uri(), kind],
        env=os.environ | {"SPARK_CONNECT_MODE_ENABLED": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) == set(RESULTS)
    for name, schema in RESULTS.items():
        table = read(lake / name)
        assert table.schema.names == schema.names
        expected = [] if name == "shared_ids" else rows(schema, 4)
        assert sorted(map(repr, table.to_pylist())) == sorted(
            repr(dict(zip(schema.names, row, strict=True))) for row in expected
        )
