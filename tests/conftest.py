"""Options and fixtures of the whole suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.golden import Golden
from tests.support.jetstream import JetStreamServer

pytest_plugins = ["tests.support.lab_fixtures", "tests.support.spark_fixtures"]

settings.register_profile("vstream", derandomize=True, deadline=None, print_blob=False)
settings.load_profile("vstream")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected files instead of comparing them"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares with expected files, or rewrites them with --update-golden."""
    return Golden(update=bool(request.config.getoption("--update-golden")))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[JetStreamServer]:
    """One server with JetStream, for tests of what is read from it."""
    one = JetStreamServer(tmp_path)
    one.start()
    yield one
    one.stop()
