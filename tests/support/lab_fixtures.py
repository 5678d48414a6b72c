"""What lab tests share: a state directory of their own, where nothing may run afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import probe_lab
from tests.support.chaos_lab import running_lab
from tests.support.labs import end_all_in
from tests.support.shared_lab import own_lab, renew, shared_lab
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of this test's own. Whatever still runs in it afterwards is a failure, and ended."""
    directory = tmp_path / "state"
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(directory))
    yield directory
    assert end_all_in(directory) == []


@pytest.fixture(scope="session")
def binary() -> Path:
    return binaries.find_or_fetch()


@pytest.fixture(scope="module")
def probed_lab(tmp_path_factory: pytest.TempPathFactory, binary: Path) -> Iterator[None]:
    with probe_lab.running_lab(tmp_path_factory.mktemp("probe") / "state", binary):
        yield


@pytest_asyncio.fixture
async def world(probed_lab: None) -> AsyncIterator[probe_lab.World]:
    """The lab of the module, with the right mappings and no streams."""
    async with probe_lab.empty_world() as world:
        yield world


@pytest.fixture(scope="module")
def module_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The topology that a module calls `SHARED_TOPOLOGY`, while its lab runs."""
    with shared_lab(tmp_path_factory.mktemp("shared"), request.module.SHARED_TOPOLOGY) as file:
        yield file


@pytest.fixture
def shared_file(request: pytest.FixtureRequest, module_lab: Path) -> Path:
    """The topology that a module calls `SHARED_TOPOLOGY`, whose lab runs as it came up: without streams and mappings."""
    renew(module_lab, request.module.SHARED_TOPOLOGY)
    return module_lab


@pytest.fixture
def own_file(request: pytest.FixtureRequest, state: Path, tmp_path: Path) -> Iterator[Path]:
    """The topology that a module calls `OWN_TOPOLOGY`, in a file that is called as its lab. The test starts it."""
    text = request.module.OWN_TOPOLOGY
    with own_lab(state, tmp_path, check_topology(text.encode(), "own.yaml").require().name, text) as file:
        yield file


@pytest.fixture(scope="module")
def small_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The topology of a lab of one server in each of three regions, for faults to be tried on."""
    with running_lab(tmp_path_factory.mktemp("chaos"), 1) as file:
        yield file
