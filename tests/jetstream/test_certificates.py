"""Every client, and every certificate that it must not trust: on real servers with TLS."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from nats.aio import transport

from tests.support.paths import CERTIFICATES
from tests.support.ports import free_port
from tests.support.single_server import run_configured
from vstream.audit.connector.client import connect
from vstream.audit.connector.values import Access
from vstream.errors import NotReachableError
from vstream.jetstream import monitoring
from vstream.jetstream.connection import open_connection
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.topology.model import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]

SECRET = "s3cret"
LONG_AGO = datetime.now(UTC) - timedelta(days=30)
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


async def connect_command(port: int, ca: str, patience: float, *, scheme: str = "tls") -> None:
    connection = await open_connection(_endpoint(port, ca, scheme), "west", timeout=patience)
    await connection.close()


async def connect_workload(port: int, ca: str, patience: float) -> None:
    endpoint = _endpoint(port, ca)
    connection = await open_reconnecting(endpoint, "west", name="it", accepts_server=lambda *_: True, within=patience)
    await connection.close()


def connect_websocket(port: int, ca: str, patience: float) -> None:
    endpoint = Endpoint(urls=(f"wss://127.0.0.1:{port}",), user="ops", password=SECRET, tls_ca=ca)

    async def call() -> None:
        connection = await open_connection(endpoint, "west", timeout=patience)
        await connection.close()

    asyncio.run(call())


def connect_audit(port: int, ca: str, patience: float, secret: Path, *, scheme: str = "tls") -> None:
    servers = (f"{scheme}://127.0.0.1:{port}",)
    with connect(Access(servers=servers, user="ops", password_file=str(secret), tls_ca=ca, timeout=patience)):
        pass


def ask_monitoring(https: int, ca: str) -> None:
    url = f"https://127.0.0.1:{https}"
    monitoring.trust_ca([url], ca)
    asyncio.run(monitoring.read_varz(url))


def _endpoint(port: int, ca: str, scheme: str = "tls") -> Endpoint:
    return Endpoint(urls=(f"{scheme}://127.0.0.1:{port}",), user="ops", password=SECRET, tls_ca=ca)


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """A connection whose TLS handshake fails is closed just after its loop has ended: no later test is blamed for it."""
    yield
    gc.collect()


WRONG = ("expired", "for another host", "of another authority")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def show(certificate: str, authority: trustme.CA) -> trustme.LeafCert | None:
    """What a server of this kind shows."""
    if certificate == "none":
        return None
    return {
        "right": lambda: authority.issue_cert("127.0.0.1"),
        "expired": lambda: authority.issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=YESTERDAY),
        "for another host": lambda: authority.issue_cert("west-1.example.net"),
        "of another authority": lambda: trustme.CA().issue_cert("127.0.0.1"),
    }[certificate]()


@contextmanager
def serving(certificate: trustme.LeafCert | None, directory: Path) -> Iterator[tuple[int, int, int]]:
    """
    A server that shows *certificate*, or has no TLS: its ports for clients, monitoring and WebSockets.

    Its log is in *directory*.
    """
    pem, log, conf = directory / "server.pem", directory / "server.log", directory / "server.conf"
    if certificate is not None:
        certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    files = f'tls: {{ cert_file: "{pem}", key_file: "{pem}" }}' if certificate is not None else ""
    port, https, socket = free_port(), free_port(), free_port()
    conf.write_text(
        f'listen: "127.0.0.1:{port}"\n{"https" if files else "http"}: "127.0.0.1:{https}"\n{files}\n'
        f'websocket {{ listen: "127.0.0.1:{socket}", {files or "no_tls: true"} }}\n'
        f"authorization {{ user: ops, password: {SECRET} }}\n"
    )
    with run_configured(conf, log):
        yield port, https, socket


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The password, for the client that takes it from a file."""
    path = tmp_path_factory.mktemp("secret") / "password"
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize("certificate", ["right", *WRONG])
def test_no_client_trusts_a_certificate_that_is_wrong(
    certificate: str, authority: trustme.CA, ca: str, secret: Path, tmp_path: Path
) -> None:
    shown = show(certificate, authority)
    # A busy server takes its time; one with a wrong certificate is called again until the time is over.
    patience = 60.0 if certificate == "right" else 2.0
    clients: dict[str, Callable[[int, int], None]] = {
        "command": lambda port, _: asyncio.run(connect_command(port, ca, patience)),
        "workload": lambda port, _: asyncio.run(connect_workload(port, ca, patience)),
        "audit": lambda port, _: connect_audit(port, ca, patience, secret),
        "monitoring": lambda _, https: ask_monitoring(https, ca),
    }
    with serving(shown, tmp_path) as (port, https, _):
        for name, client in clients.items():
            if certificate == "right":
                client(port, https)
                continue
            with pytest.raises(NotReachableError) as caught:
                client(port, https)
            assert name == "workload" or "certificate verify failed" in caught.value.message
    log = (tmp_path / "server.log").read_text().lower()
    assert "authentication error" not in log  # nobody has said who he is
    assert (certificate == "right") == ("tls handshake error" not in log)


@pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")
def test_schemes_are_understood_in_capitals(authority: trustme.CA, ca: str, secret: Path, tmp_path: Path) -> None:
    with serving(show("right", authority), tmp_path) as (port, _, socket):
        asyncio.run(connect_command(port, ca, 60.0, scheme="TLS"))
        asyncio.run(connect_command(port, ca, 60.0, scheme="NATS"))
        asyncio.run(connect_command(socket, ca, 60.0, scheme="WSS"))
        connect_audit(port, ca, 60.0, secret, scheme="TLS")


@pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")
@pytest.mark.parametrize("certificate", ["right", *WRONG, "none"])
def test_nothing_is_said_over_a_websocket_whose_certificate_is_wrong_or_missing(
    certificate: str, authority: trustme.CA, ca: str, secret: Path, tmp_path: Path
) -> None:
    pytest.importorskip("aiohttp")
    with serving(show(certificate, authority), tmp_path) as (_, _, port):
        if certificate == "right":
            connect_websocket(port, ca, 60.0)
            with pytest.raises(NotReachableError, match="cannot use WebSockets"):
                connect_audit(port, ca, 60.0, secret, scheme="wss")
            return
        began = time.monotonic()
        with pytest.raises(NotReachableError) as caught:
            connect_websocket(port, ca, 30.0)
        assert "SSLContext" not in caught.value.message
        if certificate != "none":
            assert "certificate verify failed" in caught.value.message
            assert "must name the host of the address" in str(caught.value.hint)
            assert time.monotonic() - began < 30  # nobody tries again what stays wrong
    assert "authentication error" not in (tmp_path / "server.log").read_text().lower()


def test_a_websocket_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "aiohttp", None)
    monkeypatch.setitem(sys.modules, "aiohttp", None)  # as if it was not installed
    with pytest.raises(NotReachableError, match="a WebSocket needs aiohttp") as caught:
        connect_websocket(1, str(CERTIFICATES / "ca.pem"), 60.0)
    assert "vstream[websocket]" in str(caught.value.hint)
