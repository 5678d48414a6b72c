"""Each command on a real server, with exactly what it needs, and with one subject less: it says which, and does not hang."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from tests.support import permitted_server
from tests.support.command import Ran, vstream
from tests.support.night import with_night
from tests.support.permitted_server import PermittedServer
from vstream.audit.connector.stream_snapshots import take_snapshots
from vstream.audit.connector.values import StreamRef
from vstream.audit.extract.server_access import make_local_access
from vstream.errors import NotPermittedError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.syntax import natsconf
from vstream.topology.accounts import inbox_of
from vstream.topology.model import Role, Routing
from vstream.topology.permissions import permissions_for
from vstream.topology.profiles import PROFILES

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("permissions")]

OPTIONS = {"apply": ["--yes", "--gate-timeout", "10"], "repair messages": ["--yes"]}
COMMANDS = (
    *("plan", "apply", "plan --drift", "status", "doctor", "probe", "repair sources", "repair messages"),
    *("consumer", "map --trace", "doctor --bundle", "backup take", "backup restore"),
)
"""Those that need no Spark: `audit` is below."""
LESS = (
    ("plan", "$SYS.REQ.USER.INFO"),
    ("plan", "$JS.API.STREAM.LIST"),
    ("plan", "$JS.API.CONSUMER.LIST.*"),
    ("plan", "_INBOX.vstream.>"),
    ("plan --drift", "$JS.API.INFO"),
    ("status", "$JS.API.CONSUMER.INFO.>"),
    ("doctor", "$JS.API.DIRECT.GET.>"),
    ("probe", "$JS.API.STREAM.MSG.DELETE.*"),
    ("repair sources", "$JS.API.STREAM.INFO.*"),
    ("repair messages", "$JS.API.CONSUMER.INFO.>"),
    ("repair messages", "$JS.API.STREAM.INFO.*"),
    ("apply", "$JS.API.STREAM.UPDATE.*"),
    ("apply", "$JS.API.CONSUMER.CREATE.>"),
    ("apply", "_INBOX.vstream.>"),
    ("consumer", "$JS.API.CONSUMER.INFO.>"),
    ("doctor --bundle", "$JS.API.STREAM.LIST"),
    ("backup take", "$JS.API.STREAM.SNAPSHOT.*"),
    ("backup take", "$JS.API.CONSUMER.MSG.NEXT.>"),
)
"""The short form: a subject of each command that it says is missing."""


AT_NIGHT = [routing.value for routing in Routing if routing is not Routing.MAPPED]
ROUTINGS = with_night(["mapped"], AT_NIGHT)
MAY_REPAIR = with_night(["mapped"], [name for name in AT_NIGHT if not PROFILES[Routing(name)].has_domains])
REFUSED = {
    ("domains", "repair messages"),
    *((name, f"backup {each}") for name in AT_NIGHT for each in ("take", "restore")),
}
"""Commands that say of a profile that they do nothing there."""
ENDS = {("mapped", "backup restore"): 1, ("accounts", "map --trace"): 3}
"""Other codes than 0: its streams exist; a trace ends where an account does."""
NOT_ASKED = {("regional", "repair messages", "$JS.API.STREAM.INFO.*")}
"""What a run asks for only if something is wrong."""


@pytest.fixture(scope="module", params=ROUTINGS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PermittedServer]:
    with serve_applied(tmp_path_factory.mktemp("permitted"), request.param) as running:
        yield running


@pytest.fixture(params=ROUTINGS)
def unused_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PermittedServer]:
    """One of its own: a probe that may not delete its canaries leaves what an audit then finds."""
    with serve_applied(tmp_path, request.param) as running:
        yield running


@contextmanager
def serve_applied(directory: Path, routing: str) -> Iterator[PermittedServer]:
    """A server with the streams of its topology, and a message in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(permitted_server.VARIABLE, permitted_server.PASSWORD)
        with permitted_server.running(directory, routing) as running:
            permit(running, "apply")
            ran = vstream("apply", running.file, "--yes")
            assert ran.code == 0, ran.out + ran.err
            asyncio.run(publish(running, 1))
            permit(running, "status")
            deadline = time.monotonic() + 120
            # On a busy machine a source needs seconds until it is heard first.
            while (ran := vstream("status", running.file)).code != 0:
                assert time.monotonic() < deadline, ran.out + ran.err
            yield running


async def publish(server: PermittedServer, messages: int) -> None:
    app = await nats.connect(server.url, user=server.user_of("app"), password=permitted_server.PASSWORD)
    for _ in range(messages):
        await app.jetstream(timeout=permitted_server.PATIENCE).publish("v.foo.x", b"")
    await app.close()


def permit(server: PermittedServer, command: str, *, but: str | None = None) -> None:
    needed = permissions_for(server.topology, [command])
    server.allow(
        [subject for subject in needed.publish if subject != but],
        # An empty list would permit everything.
        [subject for subject in needed.subscribe if subject != but] or ["nothing"],
    )


def spell(server: PermittedServer, command: str) -> list[str | Path]:
    """*command* with what it takes. A backup that is to be restored is made by the first that needs it."""
    new, backup = server.directory / f"new-{uuid.uuid4().hex}", server.directory / "backup"
    if command == "backup restore" and server.routing == "mapped" and not backup.exists():
        permit(server, "backup take")
        made = vstream("backup", "take", backup, server.file)
        assert made.code == 0, made.err
        permit(server, command)
    arguments: dict[str, list[str | Path]] = {
        "consumer": ["sync", "--topology", server.file],
        "map --trace": ["v.foo.a", server.file],
        "doctor --bundle": [new, server.file],
        "backup take": [new, server.file],
        "backup restore": [backup, server.file],
    }
    return [*command.split(), *arguments.get(command, [server.file])]


def run(server: PermittedServer, command: str, *, but: str | None = None) -> Ran:
    """Run the command without the permission *but*. `apply` has something to do, and what it has done is undone."""
    permit(server, command, but=but)
    if command != "apply":
        return vstream(*spell(server, command), *OPTIONS.get(command, ()), timeout=120)
    other_file = server.directory / "other.yaml"
    text = server.file.read_text()
    other_file.write_text(text.replace("max_age: 1h", "max_age: 2h").replace("worker: {}", "worker: {ack_wait: 9s}"))
    ran = vstream(*command.split(), other_file, *OPTIONS[command], timeout=120)
    permit(server, command)
    undone = vstream(*command.split(), server.file, *OPTIONS[command], "--allow-destructive")
    assert undone.code == 0, undone.out + undone.err
    return ran


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_with_exactly_what_it_needs(server: PermittedServer, command: str) -> None:
    ran = run(server, command)
    if (server.routing, command) in REFUSED:
        assert ran.code in {1, 3}, ran.out + ran.err
        assert re.search("has not been tested yet|cannot be received|holds no backup", ran.err)
        return
    assert ran.code == ENDS.get((server.routing, command), 0), ran.out + ran.err


@pytest.mark.parametrize(("command", "subject"), LESS)
def test_a_command_says_which_permission_is_missing(server: PermittedServer, command: str, subject: str) -> None:
    needed = permissions_for(server.topology, [command])
    missing = next(
        text for text in (*needed.publish, *needed.subscribe) if text.endswith(subject.removeprefix("$JS.API."))
    )
    if (server.routing, command) in REFUSED:
        return
    before = len(server.violations())
    ran = run(server, command, but=missing)
    if (server.routing, command, subject) in NOT_ASKED:
        assert (ran.code, server.violations()[before:]) == (0, []), ran.out + ran.err
        return
    assert ran.code == 3, ran.out + ran.err
    output = " ".join((ran.out + ran.err).split()).lower()
    assert f"the user may not {'subscribe' if 'INBOX' in missing else 'publish'} to" in output
    assert subject.removeprefix("$JS.API.").rstrip("*>.").lower() in output


@pytest.mark.night
@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_permission_a_command_misses_it_says_so(server: PermittedServer, command: str) -> None:
    """What a run does not need this time, the server does not refuse; a refusal is never a 0 or a 1."""
    needed = permissions_for(server.topology, [command])
    if (server.routing, command) in REFUSED:
        return
    for missing in (*needed.publish, *needed.subscribe):
        before = len(server.violations())
        ran = run(server, command, but=missing)
        refused = server.violations()[before:]
        output = " ".join((ran.out + ran.err).split()).lower()
        assert ran.code == (3 if refused else ENDS.get((server.routing, command), 0)), (missing, refused, ran)
        # In a domain, servers say it without the domain's name.
        names = [subject.lower().removeprefix("$js.api.") for subject in refused]
        assert not refused or any(name in output for name in names), (missing, refused, ran)


async def lose_the_end(server: PermittedServer) -> None:
    """Publish, and take the end from the write stream, as a loss of power does."""
    streams = render_bundle(server.topology).streams
    write, read = (next(each.config.name for each in streams if each.role is role) for role in (Role.WRITE, Role.READ))
    permit(server, "apply")
    store, saved = server.store_of(write), server.directory / "kept"
    server.restart(lambda: shutil.copytree(store, saved))
    endpoint = server.topology.region("west").endpoint
    assert endpoint is not None
    async with connect(endpoint, "west") as connection:
        admin = JetStreamAdmin(connection)
        before = (await admin.info(read))["state"]["last_seq"]
        await publish(server, 3)
        async with asyncio.timeout(permitted_server.PATIENCE):
            while int((await admin.info(read))["state"]["last_seq"]) < before + 3:
                await asyncio.sleep(0.05)

    def lose() -> None:
        shutil.rmtree(store)
        saved.rename(store)

    server.restart(lose)


@pytest.mark.night
@pytest.mark.parametrize("unused_server", MAY_REPAIR, indirect=True)
async def test_a_refill_asks_for_what_repair_needs(unused_server: PermittedServer) -> None:
    """It publishes again what the write stream has lost, which no other repair does: until its readers hear the loss."""
    await lose_the_end(unused_server)
    needed = permissions_for(unused_server.topology, ["repair messages"]).publish
    published = next(subject for subject in needed if subject.endswith((".v.>", ".v.foo.>")))
    permit(unused_server, "repair messages", but=published)
    ran = await asyncio.to_thread(vstream, "repair", "messages", unused_server.file, "--yes")
    assert ran.code == 3, ran
    assert "the user may not publish to `v.foo.x`" in " ".join((ran.out + ran.err).split()), ran
    permit(unused_server, "repair messages")
    ran = await asyncio.to_thread(vstream, "repair", "messages", unused_server.file, "--yes")
    assert ran.code == 0, ran


@pytest.mark.night
@pytest.mark.parametrize("unused_server", ["mapped"], indirect=True)
def test_a_restore_onto_nothing_works_with_exactly_what_it_needs(unused_server: PermittedServer) -> None:
    server = unused_server
    arguments = spell(server, "backup restore")
    server.restart(lambda: shutil.rmtree(server.directory / "store"))
    permit(server, "backup restore")
    ran = vstream(*arguments, "--yes")
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.night
@pytest.mark.spark
async def test_an_audit_works_with_exactly_what_it_needs_and_says_what_is_missing(
    unused_server: PermittedServer,
) -> None:
    server = unused_server
    permit(server, "repair sources")
    assert (await asyncio.to_thread(vstream, "repair", "sources", server.file)).code == 0
    needed = permissions_for(server.topology, ["audit"])
    for missing in (None, *needed.publish, *needed.subscribe):
        permit(server, "audit", but=missing)
        before = len(server.violations())
        ran = await asyncio.to_thread(vstream, "audit", server.file)
        refused = server.violations()[before:]
        assert missing is not None or not refused, (refused, ran)
        # Small streams that Direct Get does not read are read by consumers: then everything was read.
        is_all_read = all(".DIRECT.GET." in subject for subject in refused)
        assert ran.code == (0 if is_all_read else 3), (missing, refused, ran)
        assert is_all_read or any(subject in ran.out + ran.err for subject in refused), (missing, refused, ran)


@pytest.mark.parametrize("subject", ["INFO", "STREAM.INFO.*"])
def test_the_client_of_the_audit_says_which_permission_is_missing(
    server: PermittedServer, tmp_path: Path, subject: str
) -> None:
    """The short form: what the audit asks first."""
    needed = permissions_for(server.topology, ["audit"]).publish
    missing = next(text for text in needed if text.endswith(f".{subject}") and not text.startswith("$SYS"))
    permit(server, "audit", but=missing)
    endpoint = server.topology.region("west").endpoint
    assert endpoint is not None
    access = make_local_access(endpoint, "west", tmp_path)
    stream = next(stream for stream in render_bundle(server.topology).streams if stream.virtual == "foo")
    with pytest.raises(NotPermittedError, match=r"the user may not publish to `.*INFO"):
        take_snapshots([StreamRef.of(stream)], {"west": access})


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

    app = await nats.connect(server.url, user=server.user_of("app"), password=permitted_server.PASSWORD)
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


@pytest.mark.parametrize("role", ["probe", "audit"])
async def test_probe_and_audit_are_refused_where_others_are_answered(server: PermittedServer, role: str) -> None:
    """Each has a prefix of its own, which the user's name in `connect` decides."""
    inboxes = [inbox_of(user) for user in ("vstream", "probe", "audit")]
    text = server.file.read_text().replace(f"user: {server.user},", f"user: {server.user_of(role)},")
    itself = check_topology(text.encode(), "t.yaml").require().region("west").endpoint
    assert itself is not None
    async with connect(itself, "west") as connection:
        assert (await connection.request_json("$SYS.REQ.USER.INFO", timeout=permitted_server.PATIENCE))["data"]
    before = len(server.violations())
    client = await nats.connect(server.url, user=server.user_of(role), password=permitted_server.PASSWORD)
    try:
        for inbox in inboxes:
            await client.subscribe(f"{inbox}.>")
        await client.flush()
    finally:
        await client.close()
    # nats.py sends what it subscribes to after the PING of `flush`, so the server may still be at it.
    expected = [f"{inbox}.>" for inbox in inboxes if inbox != itself.inbox]
    deadline = time.monotonic() + permitted_server.PATIENCE
    while len(server.violations()) - before < len(expected):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert server.violations()[before:] == expected


def test_an_unknown_command_is_refused(server: PermittedServer) -> None:
    ran = vstream("keys", "permissions", server.file, "--for", "nothing")
    assert ran.code == 2
    assert "choose one of plan, apply" in ran.err
