"""Each command on a real server, with exactly what it needs, and with one subject less: it says which, and does not hang."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from tests.support import permitted_server
from tests.support.command import vstream
from tests.support.permitted_server import PermittedServer
from vstream.syntax import natsconf
from vstream.topology.permissions import permissions_for

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("permissions")]

OPTIONS = {"apply": ["--yes"], "repair": ["--yes"]}
LESS = (
    ("plan", "$SYS.REQ.USER.INFO"),
    ("plan", "$JS.API.STREAM.LIST"),
    ("plan", "$JS.API.CONSUMER.LIST.*"),
    ("plan", "_INBOX.vstream.>"),
    ("drift", "$JS.API.INFO"),
    ("status", "$JS.API.CONSUMER.INFO.>"),
    ("doctor", "$JS.API.DIRECT.GET.>"),
    ("probe", "$JS.API.STREAM.MSG.DELETE.*"),
    ("resync", "$JS.API.STREAM.INFO.*"),
    ("repair", "$JS.API.CONSUMER.INFO.>"),
)
"""The short form: a subject of each command that it says is missing."""


@pytest.fixture(
    scope="module",
    params=[
        "mapped",
        *(pytest.param(routing, marks=pytest.mark.night) for routing in ("accounts", "regional")),
    ],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PermittedServer]:
    directory: Path = tmp_path_factory.mktemp("permitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(permitted_server.VARIABLE, permitted_server.PASSWORD)
        with permitted_server.running(directory, request.param) as running:
            permit(running, "apply")
            ran = vstream("apply", running.file, "--yes")
            assert ran.code == 0, ran.out + ran.err
            yield running


def permit(server: PermittedServer, command: str, *, but: str | None = None) -> None:
    needed = permissions_for(server.topology, [command])
    server.allow(
        [subject for subject in needed.publish if subject != but],
        # An empty list would permit everything.
        [subject for subject in needed.subscribe if subject != but] or ["nothing"],
    )


@pytest.mark.parametrize("command", ["plan", "apply", "drift", "status", "doctor", "probe", "resync", "repair"])
def test_a_command_works_with_exactly_what_it_needs(server: PermittedServer, command: str) -> None:
    permit(server, command)
    ran = vstream(command, server.file, *OPTIONS.get(command, ()))
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.parametrize(("command", "subject"), LESS)
def test_a_command_says_which_permission_is_missing(server: PermittedServer, command: str, subject: str) -> None:
    needed = permissions_for(server.topology, [command])
    missing = next(
        one for one in (*needed.publish, *needed.subscribe) if one.endswith(subject.removeprefix("$JS.API."))
    )
    permit(server, command, but=missing)
    ran = vstream(command, server.file, *OPTIONS.get(command, ()), timeout=120)
    assert ran.code == 3, ran.out + ran.err
    said = " ".join((ran.out + ran.err).split()).lower()
    assert f"the user may not {'subscribe' if 'INBOX' in missing else 'publish'} to" in said
    assert subject.removeprefix("$JS.API.").rstrip("*>.").lower() in said


def test_what_is_printed_is_a_configuration_with_these_permissions(server: PermittedServer) -> None:
    ran = vstream("keys", "permissions", server.file, "--for", "plan", "--for", "status")
    assert ran.code == 0, ran.err
    root = natsconf.parse(ran.out, "permissions.conf").root
    needed = permissions_for(server.topology, ["plan", "status"])
    assert natsconf.to_python(root) == {
        "permissions": {
            "publish": {"allow": list(needed.publish)},
            "subscribe": {"allow": list(needed.subscribe)},
        }
    }


async def test_applications_do_not_hear_what_vstream_is_answered(server: PermittedServer) -> None:
    """Also not by the wildcard that client libraries use; what they ask themselves, they hear."""
    permit(server, "status")
    heard: list[str] = []

    async def remember(message: Msg) -> None:
        heard.append(message.subject)

    port = server.address.client
    app = await nats.connect(
        f"nats://{server.user.replace('vstream', 'app')}:{permitted_server.PASSWORD}@127.0.0.1:{port}"
    )
    try:
        await app.subscribe("_INBOX.>", cb=remember)
        await app.flush()
        ran = await asyncio.to_thread(vstream, "status", server.file)
        assert ran.code == 0, ran.out + ran.err
        await app.flush()
        assert heard == []
        answer = await app.request("$JS.API.STREAM.INFO.foo", timeout=permitted_server.PATIENCE)
        assert answer.data
        assert len(heard) == 1
    finally:
        await app.close()


def test_an_unknown_command_is_refused(server: PermittedServer) -> None:
    ran = vstream("keys", "permissions", server.file, "--for", "nothing")
    assert ran.code == 2
    assert "expected plan, apply" in " ".join(ran.err.replace("│", " ").split())
