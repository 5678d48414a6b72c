"""Whatever becomes of a worker, no test is left out in silence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

RUN = """\
import sys
import pytest
from tests.support.forked_workers import ForkedWorkers

workers = ForkedWorkers(2, lambda item: "shared" if "shared" in item.name else None)
sys.exit(pytest.main(["-q", "-rA", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[workers]))
"""


TESTS = """\
import os
import pytest

@pytest.fixture
def torn():
    yield
    raise ValueError("at the end")

@pytest.mark.parametrize("number", range(40))
def test_many(number, tmp_path): (tmp_path / "mine").touch(exist_ok=False)
def test_wrong():
    print("before it failed")
    assert 1 == 2
def test_torn(torn): pass
def test_shared_first(): pass
def test_shared_deadly(): os._exit(7)
def test_shared_last(): pass
"""


def test_each_test_runs_once_and_what_a_dead_worker_had_still_to_do_has_failed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "--basetemp", tmp_path / "temporary", tmp_path / "test_it.py"],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-c /dev/null"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    assert "before it failed" in ran.stdout
    assert "workers ended with 0, 7" in ran.stdout
    passed = [f"test_many[{number}]" for number in range(40)] + ["test_shared_first", "test_torn"]
    failed = ["test_shared_deadly", "test_shared_last", "test_wrong"]
    expected = [*(("PASSED", name) for name in passed), *(("FAILED", name) for name in failed), ("ERROR", "test_torn")]
    results = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\S+)", ran.stdout, re.MULTILINE)
    assert sorted(results) == sorted(expected)
