"""What servers say of themselves by HTTP, where a real one says it for a millisecond only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.single_server import NAME, SingleServer
from vstream.errors import ServerError
from vstream.jetstream import monitoring
from vstream.syntax import natsconf
from vstream.syntax.natsconf.digest import digest

NOT_READY = b'{"status":"error","error":"failed to be ready for connections after 1ms: server"}'


@pytest.fixture
async def starting() -> AsyncIterator[str]:
    """A server that does not accept clients yet, as 2.15.1 answers then."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(NOT_READY)
        writer.write(head + NOT_READY)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


@pytest.mark.parametrize("is_deep", [False, True])
async def test_a_server_that_is_not_ready_yet_has_a_problem_and_is_no_error(starting: str, is_deep: bool) -> None:
    problem = await monitoring.find_health_problem(starting, is_deep=is_deep)
    assert problem == "failed to be ready for connections after 1ms: server"


@pytest.mark.server
@pytest.mark.parametrize("ending", ["", "/"])
async def test_a_server_is_asked_below_its_own_path_with_a_slash_at_the_end_or_without(
    tmp_path: Path, ending: str
) -> None:
    port = free_port()
    server = SingleServer(tmp_path, more=f'http: "127.0.0.1:{port}"\nhttp_base_path: "/nats"\n')
    await server.start()
    try:
        assert (await monitoring.read_varz(f"http://127.0.0.1:{port}/nats{ending}")).server_name == NAME
        with pytest.raises(ServerError):
            await monitoring.read_varz(f"http://127.0.0.1:{port}{ending}")
    finally:
        server.kill()


@pytest.mark.server
@pytest.mark.parametrize(("version", "is_counted"), [("2.11.11", False), ("2.12.8", True)])
async def test_a_digest_that_leaves_out_variables_is_not_compared(
    tmp_path: Path, version: str, is_counted: bool
) -> None:
    """As every lab has one, all files of servers before 2.12 would look as if they had not been loaded."""
    url = f"127.0.0.1:{free_port()}"
    text = f'ADDRESS: "{url}"\nhttp: $ADDRESS\n'
    expected = digest(natsconf.parse(text, ""))
    server = SingleServer(tmp_path, version, more=text)
    await server.start()
    try:
        reported = (await monitoring.get(f"http://{url}", "/varz"))["config_digest"]
        assert (reported == expected) == is_counted
        assert (await monitoring.read_varz(f"http://{url}")).config_digest == (expected if is_counted else None)
    finally:
        server.kill()
