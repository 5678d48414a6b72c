"""What can be checked without a network is checked before any server is dialled, and all of it is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.plans import rendered, topology
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream.endpoints import endpoint_problems
from vstream.plan.live.observe import connect_all
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.topology.model import Endpoint


async def test_every_missing_file_context_and_variable_is_named_before_anything_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("VSTREAM_NOPE", raising=False)
    # Nobody answers at that address: it would take seconds.
    urls = ("tls://10.255.255.1:4222",)
    endpoints = {
        "west": Endpoint(urls=urls, creds=str(tmp_path / "west.creds"), tls_ca=str(tmp_path / "ca.pem")),
        "central": Endpoint(urls=urls, user="vstream", password_env="VSTREAM_NOPE"),
        "east": Endpoint(urls=(), context="nowhere"),
    }
    with pytest.raises(VstreamError) as failure:
        async with connect_all(topology(), endpoints, timeout=60):
            raise AssertionError("nothing was checked")
    for part in ("west.creds", "ca.pem", "variable VSTREAM_NOPE is not set", "no nats CLI context `nowhere`"):
        assert part in failure.value.message
    assert failure.value.message.count("region `") == 4


async def test_one_missing_thing_is_said_alone(tmp_path: Path) -> None:
    endpoints = {"west": Endpoint(urls=("tls://10.255.255.1:4222",), creds=str(tmp_path / "west.creds"))}
    with pytest.raises(VstreamError, match=r"^region `west`: the credentials file .* does not exist$"):
        async with connect_all(topology(), endpoints, timeout=60):
            raise AssertionError("nothing was checked")


def test_a_context_that_is_there_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "nats" / "context"
    directory.mkdir(parents=True)
    (directory / "prod.json").write_text(json.dumps({"url": "nats://127.0.0.1:1", "creds": "/nowhere.creds"}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (problem,) = endpoint_problems(Endpoint(urls=(), context="prod"), "west")
    assert "/nowhere.creds" in problem.message


async def test_what_is_waited_for_is_told() -> None:
    texts: list[str] = []
    endpoints = {region: Endpoint(urls=("nats://127.0.0.1:1",)) for region in ("west", "central", "east")}
    request = PlanRequest(topology=topology(), bundle=rendered(), endpoints=endpoints)
    with pytest.raises(NotReachableError, match="no region can be reached"):
        await make_plan(request, on_progress=texts.append)
    assert texts[0] == "connecting to west, central, east"
    assert [text.count(",") for text in texts[1:]] == [1, 0]
    assert all(text.startswith("waiting for ") for text in texts[1:])
