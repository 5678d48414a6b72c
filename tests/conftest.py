"""Options and fixtures of the whole suite."""

from __future__ import annotations

import gc
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.command import OUTPUTS_SEEN, fork_server
from tests.support.durations import UNITS, DurationRecorder, estimate
from tests.support.every_output import OutputRecorder
from tests.support.forked_workers import ForkedWorkers
from tests.support.golden import Golden
from tests.support.jetstream import JetStreamServer
from tests.support.night import IS_NIGHT, repetitions

pytest_plugins = ["tests.support.lab_fixtures", "tests.support.spark_fixtures"]

settings.register_profile(
    "vstream", derandomize=not IS_NIGHT, deadline=None, print_blob=False, max_examples=repetitions(10, night=1000)
)
settings.load_profile("vstream")

LIVE = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.(lab|server|spark)\b", re.MULTILINE)
"""The mark of a module whose tests all need servers or Spark. It is the first in its list."""


_UNITS_TOGETHER = 8
"""Tests without servers that are one piece for a worker."""

_ALLOCATIONS = 20_000
"""Objects made between two runs of the garbage collector: with Python's 700 it takes a tenth of the suite's time."""

_LONGEST_ID = 80
"""Characters of a parameter that name a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected files instead of comparing them"
    )
    parser.addoption(
        "--unit",
        action="store_true",
        help="only tests without servers, Spark and wheels; what others import is not loaded",
    )
    parser.addoption(
        "--forked", type=int, default=0, help="so many workers, which are forked when everything is collected"
    )
    parser.addoption(
        "--every-output", action="store_true", help="fail, after a whole run, if a JSON output was seen by no test"
    )
    parser.addoption(
        "--update-durations", action="store_true", help="write down how long tests take, after a whole run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start what all workers share, where they are started from."""
    if hasattr(config, "workerinput"):
        return
    if config.getoption("--update-durations"):
        config.pluginmanager.register(DurationRecorder())
    if config.getoption("--every-output"):
        config.pluginmanager.register(OutputRecorder())
    if forked := config.getoption("--forked"):
        config.pluginmanager.register(ForkedWorkers(forked, group_of))
    if (forked or config.getoption("numprocesses", None)) and not config.getoption("collectonly"):
        fork_server()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that collects them which outputs this worker has checked."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["outputs"] = sorted(OUTPUTS_SEEN)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep the garbage collector away from modules and tests, which stay: it would go over all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out live modules where only units are wanted: their imports take longer than all unit tests."""
    if not config.getoption("--unit") or collection_path.suffix != ".py":
        return None
    return True if LIVE.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_make_parametrize_id(val: object) -> str | None:
    """The name of a long text is its begin: each worker sends all names, and each test has its own in its environment."""
    if isinstance(val, (str, bytes)) and len(val) > _LONGEST_ID:
        return f"{val[:_LONGEST_ID]!r}, {len(val)} in all"
    return None


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not a unit where only units are wanted, and keep tests that share a lab on one worker."""
    live = [item for item in items if any(item.get_closest_marker(mark) for mark in ("lab", "server", "spark"))]
    if config.getoption("--unit"):
        deselected = {*live, *(item for item in items if item.get_closest_marker("wheel"))}
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (group := shared_by(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput") and not config.getoption("--unit"):
        items[:] = spread(live, items)


def spread(live: list[pytest.Item], items: list[pytest.Item]) -> list[pytest.Item]:
    """
    *items* for several workers: those that take longest begin first, so that no worker is left alone with one.

    Tests that share a lab are one piece, for one worker. Tests without servers go between *live* ones, which mostly wait:
    half of them, and the others fill the end.
    """
    is_live = {item.nodeid for item in live}
    units = [item for item in items if item.nodeid not in is_live]
    # One by one, it costs more to hand them out than to run most of them.
    for number, item in enumerate(units):
        if group_of(item) is None:
            item.add_marker(pytest.mark.xdist_group(f"{UNITS}{number // _UNITS_TOGETHER}"))
    together: dict[str, list[pytest.Item]] = {}
    for item in live:
        together.setdefault(group_of(item) or item.nodeid, []).append(item)
    step = len(units) // (2 * max(1, len(together)))
    mixed: list[pytest.Item] = []
    longest_first = sorted(together, key=lambda key: estimate(key, together[key]), reverse=True)
    for place, group in enumerate(sorted(together[key], key=_follows_streams) for key in longest_first):
        mixed += [*group, *units[place * step : (place + 1) * step]]
    return mixed + units[len(together) * step :]


def _follows_streams(item: pytest.Item) -> bool:
    """Whether Spark may follow a stream in it: it gives a Python worker ten seconds to start, too few beside another Spark."""
    return "tests/audit/connector/" in item.nodeid


def group_of(item: pytest.Item) -> str | None:
    """Of tests that are run by one worker, one after the other."""
    marker = item.get_closest_marker("xdist_group")
    return None if marker is None else str(marker.args[0])


def shared_by(item: pytest.Item) -> str | None:
    """The module of a test that uses a fixture of its module, such as a lab: another worker would start it again."""
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = fixtures.name2fixturedefs.values() if fixtures is not None else ()
    if any(definition.scope == "module" for group in definitions for definition in group):
        return item.nodeid.partition("::")[0].replace("/", "-")
    return None


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares with expected files, or rewrites them with --update-golden."""
    return Golden(update=bool(request.config.getoption("--update-golden")))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[JetStreamServer]:
    """One server with JetStream, for tests of what is read from it."""
    server = JetStreamServer(tmp_path)
    server.start()
    yield server
    server.stop()
