"""What `vstream audit` takes for what it is given, before Spark is started for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vstream.cli.auditing import Kept, Request, source
from vstream.errors import VstreamError

WANTED = Request(
    streams=(),
    since_ns=None,
    sample=None,
    tables=None,
    begin="normalise",
    publish=None,
    publish_as="parquet",
    templates=None,
    lab=None,
)


def test_a_directory_with_nothing_of_an_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VstreamError, match="holds no capture, and no tables") as refused:
        source(str(tmp_path), WANTED)
    assert "--tables" in str(refused.value.hint)


def test_tables_are_taken_here_and_wherever_spark_can_read(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    assert isinstance(source(str(tmp_path), WANTED), Kept)
    assert isinstance(source("s3a://audits/2026-11-20", WANTED), Kept)
