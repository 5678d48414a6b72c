"""Limits on what applications may create: real servers refuse more, and what is rendered without limits says nothing of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig
from nats.js.errors import APIError

from tests.support import permitted_server
from tests.support.command import vstream
from vstream.lint.check_topology import check_topology
from vstream.render import jwt
from vstream.render.pipeline import render_bundle
from vstream.syntax import natsconf
from vstream.topology.model import Routing
from vstream.topology.naming import DIGEST_PREFIX
from vstream.topology.profiles import PROFILES

LIMITS = "security: {limits: {consumers: 3, connections: 2, subscriptions: 5}}\n"
TOO_MANY_CONSUMERS = 10026


@pytest.mark.server
@pytest.mark.parametrize("routing", [routing.value for routing in Routing])
async def test_servers_refuse_what_is_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, routing: str) -> None:
    monkeypatch.setenv(permitted_server.VARIABLE, permitted_server.PASSWORD)
    with permitted_server.running(tmp_path, routing, LIMITS) as server:
        applied = await asyncio.to_thread(vstream, "apply", server.file, "--yes")
        assert applied.code == 0, applied.out + applied.err  # with a consumer, and sources, which do not count
        # Where streams have names of their own, requests that name the stream in their bodies need that (docs/routing.md).
        stream = "foo-read-west" if PROFILES[Routing(routing)].has_physical_names else "foo"
        app = await connect(server)
        js = app.jetstream(timeout=permitted_server.PATIENCE)
        for number in range(2):
            await js.add_consumer(stream, ConsumerConfig(durable_name=f"d{number}"))
        with pytest.raises(APIError) as refused:
            await js.add_consumer(stream, ConsumerConfig(durable_name="d2"))
        assert refused.value.err_code == TOO_MANY_CONSUMERS
        other_client = await connect(server)
        assert "maximum account active connections exceeded" in await ask_to_connect(server)
        for client in (app, other_client):
            await client.close()


async def connect(server: permitted_server.PermittedServer) -> Client:
    return await nats.connect(
        server.url, user=server.user_of("app"), password=permitted_server.PASSWORD, allow_reconnect=False
    )


async def ask_to_connect(server: permitted_server.PermittedServer) -> str:
    """What the server says; the library leaves sockets open where it is refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.client)
    login = {"user": server.user_of("app"), "pass": permitted_server.PASSWORD, "verbose": False}
    writer.write(f"CONNECT {json.dumps(login)}\r\nPING\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


def test_limits_change_what_a_plan_compares(tmp_path: Path) -> None:
    def mark(more: str) -> str:
        topology = check_topology(
            permitted_server.topology_text("accounts", tmp_path, more).encode(), "t.yaml"
        ).require()
        return next(
            export.subject
            for export in render_bundle(topology).accounts[0].exports
            if export.subject.startswith(DIGEST_PREFIX)
        )

    assert len({mark(""), mark(LIMITS), mark(LIMITS.replace("consumers: 3", "consumers: 4"))}) == 3
    assert mark("") == mark("security: {limits: {}}\n")


def test_tokens_have_the_same_limits(tmp_path: Path) -> None:
    text = permitted_server.topology_text("accounts", tmp_path, LIMITS.replace("{limits", "{mode: operator, limits"))
    root = natsconf.parse(
        render_bundle(check_topology(text.encode(), "t.yaml").require()).text("operator.cfg"), "x"
    ).root
    preloaded: dict[str, str] = dict(natsconf.to_python(root))["resolver_preload"]  # type: ignore[arg-type, assignment]
    limits = {token["name"]: token["nats"]["limits"] for token in map(jwt.decode, preloaded.values())}
    assert (limits["APP"]["conn"], limits["APP"]["subs"]) == (2, 5)
    assert (limits["R_west"]["consumer"], limits["R_west"]["conn"]) == (3, -1)
