"""A lab of several versions, and the way from one to another, server by server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chaos_lab import LAB, chaos, open_faults, publish, read_stored, running_lab, until_stored
from tests.support.command import require_success, vstream
from tests.support.labs import pids
from vstream.jetstream import monitoring
from vstream.lab.endpoints import list_endpoints

pytestmark = pytest.mark.lab

OLD, NEW = "2.12.8", "2.15.1"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_lab(
        tmp_path_factory.mktemp("chaos"), 1, "--server-version", OLD, "--server-version", f"east={NEW}"
    ) as topology:
        yield topology


async def versions() -> dict[str, str]:
    """What the processes themselves say."""
    urls = [url for endpoint in list_endpoints(LAB).values() for url in endpoint.monitor]
    answers = [await monitoring.read_varz(url) for url in urls]
    return {answer.server_name: answer.version for answer in answers}


def said_by_lab() -> dict[str, str]:
    return {
        server["name"]: server["version"]
        for server in vstream("lab", "status", LAB, "--format", "json").json()["labs"][0]["servers"]
    }


async def test_servers_are_upgraded_in_turn_and_stay_so(file: Path) -> None:
    assert await versions() == {"west-1": OLD, "central-1": OLD, "east-1": NEW} == said_by_lab()
    assert await publish("west", "before", within=60)
    before = pids(LAB)

    upgraded = require_success(chaos(file, "upgrade", "west", "--to", NEW, "--format", "json")).json()
    assert [(restart["server"], restart["version"]) for restart in upgraded["restarted"]] == [("west-1", NEW)]
    assert await versions() == {"west-1": NEW, "central-1": OLD, "east-1": NEW} == said_by_lab()
    after = pids(LAB)
    assert {name for name in after if after[name] != before[name]} == {"west-1"}
    assert open_faults(file) == []

    # What has crashed comes back as what it was last, by heal and by `lab up`.
    require_success(chaos(file, "kill-region", "west", "--for", "0s"))
    assert (await versions())["west-1"] == NEW
    require_success(chaos(file, "kill-region", "central"))
    require_success(vstream("lab", "up", file))
    assert await versions() == {"west-1": NEW, "central-1": OLD, "east-1": NEW}

    require_success(chaos(file, "upgrade", "--to", NEW))
    assert set((await versions()).values()) == {NEW}
    assert await publish("central", "after", within=60)
    require_success(vstream("repair", "sources", file))
    assert await until_stored(2, within=60) != {}
    assert sorted(await read_stored("east")) == ["after", "before"]


def test_what_runs_is_not_started_as_another_version(file: Path) -> None:
    ran = vstream("lab", "up", file, "--server-version", "west=2.14.6")
    assert ran.code == 3
    assert "runs `west-1` as nats-server" in ran.err
    assert "not 2.14.6" in ran.err
    unknown = vstream("lab", "up", file, "--server-version", "wset=2.14.6")
    assert unknown.code == 2
    assert "no region or server `wset`" in unknown.err
    twice = vstream("lab", "up", file, "--server-version", "2.14.6", "--server-version", "2.12.8")
    assert twice.code == 2
    nothing = chaos(file, "upgrade", "--to", "2.15")
    assert nothing.code == 3
    assert "write all three numbers" in nothing.err
