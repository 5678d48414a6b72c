"""Every way in that a server may ask for, and what is said where it does not open."""

from __future__ import annotations

import asyncio
import base64
import binascii
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from tests.support.jetstream import JetStreamServer
from tests.support.paths import TESTS
from tests.support.ports import free_port
from vstream.audit.connector.client import api_request, connect
from vstream.audit.connector.login import load_login
from vstream.audit.connector.values import Access
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.connection import open_connection
from vstream.jetstream.endpoints import make_connection_options
from vstream.topology.model import Endpoint

pytestmark = [pytest.mark.server]


def nkey(kind: int, raw: bytes, *, seed: bool) -> str:
    """As `nk` writes it: *kind* is 20 << 3 for users."""
    prefix = bytes([(18 << 3) | (kind >> 5), (kind & 31) << 3]) if seed else bytes([kind])
    body = prefix + raw
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).rstrip(b"=").decode()


USER = 20 << 3


def works(server: JetStreamServer, access: Access) -> bool:
    with connect(access) as client:
        return "memory" in api_request(client, access, "INFO")


async def is_let_in(endpoint: Endpoint) -> bool:
    """The same for every command that is not the audit."""
    connection = await open_connection(endpoint, "west")
    await connection.close()
    return True


def test_a_password_from_a_file_a_variable_or_a_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pa ss\n")
    with JetStreamServer(
        tmp_path,
        more='authorization { users: [{ user: reader, password: "pa ss" }] }',
        access=Access(user="reader", password_file=str(secret)),
    ) as server:
        servers = (server.url,)
        assert works(server, Access(servers=servers, user="reader", password_file=str(secret)))
        monkeypatch.setenv("VSTREAM_READER", "pa ss")
        assert works(server, Access(servers=servers, user="reader", password_env="VSTREAM_READER"))
        context = tmp_path / "context.json"
        context.write_text(f'{{"url": "{server.url}", "user": "reader", "password": "pa ss"}}')
        assert works(server, Access(context=str(context)))
        for wrong in (Access(servers=servers), Access(servers=servers, user="reader", password_file=str(context))):
            with pytest.raises(VstreamError, match="refuses the connection: 'Authorization Violation'"):
                works(server, wrong)


def test_login_by_token(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("t0ken")
    access = Access(token_file=str(secret))
    with JetStreamServer(tmp_path, more='authorization { token: "t0ken" }', access=access) as server:
        assert works(server, Access(servers=(server.url,), token_file=str(secret)))


def test_an_nkey_signs_what_the_server_asks(tmp_path: Path) -> None:
    key = SigningKey.generate()
    seed = tmp_path / "reader.nk"
    seed.write_text(nkey(USER, bytes(key), seed=True) + "\n")
    public = nkey(USER, bytes(key.verify_key), seed=False)
    assert public.startswith("U")
    with JetStreamServer(
        tmp_path, more=f"authorization {{ users: [{{ nkey: {public} }}] }}", access=Access(nkey=str(seed))
    ) as server:
        assert works(server, Access(servers=(server.url,), nkey=str(seed)))
        assert asyncio.run(is_let_in(Endpoint(urls=(server.url,), nkey=str(seed))))
        seed.write_text(nkey(USER, bytes(SigningKey.generate()), seed=True))
        with pytest.raises(VstreamError, match="refuses the connection"):
            works(server, Access(servers=(server.url,), nkey=str(seed)))


def test_a_credentials_file_has_a_jwt_and_a_seed(tmp_path: Path) -> None:
    seed = nkey(USER, bytes(SigningKey.generate()), seed=True)
    file = tmp_path / "reader.creds"
    parts = (("NATS USER JWT", "eyJ0.eyJq.c2ln"), ("USER NKEY SEED", seed))
    file.write_text(
        "\n\n*** IMPORTANT ***\n\n".join(f"-----BEGIN {n}-----\n{v}\n------END {n}------\n" for n, v in parts)
    )
    options = load_login(Access(servers=("nats://a",), creds=str(file))).options("nonce")
    assert options["jwt"] == "eyJ0.eyJq.c2ln"
    signature = base64.urlsafe_b64decode(options["sig"] + "==")
    SigningKey(base64.b32decode(seed + "======")[2:34]).verify_key.verify(b"nonce", signature)
    file.write_text("nothing")
    with pytest.raises(VstreamError, match="is not a credentials file"):
        load_login(Access(servers=("nats://a",), creds=str(file)))


_SEED = nkey(USER, bytes(32), seed=True)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (["creds"], "FILE is not a credentials file"),
        (["nkey"], "FILE holds no seed of an nkey"),
        (["tls_ca"], "the CA file FILE cannot be read: .*certificate"),
        (["tls_cert", "tls_key"], "the certificate FILE with the key FILE cannot be read: "),
    ],
)
@pytest.mark.parametrize("content", ["", "root:x:0:0", _SEED[:-1] + "A", "\0\xff\n-----BEGIN A"])
def test_a_file_with_something_else_in_it_is_one_clear_error(
    tmp_path: Path, fields: list[str], problem: str, content: str
) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    names: dict[str, Any] = dict.fromkeys(fields, str(file))
    for read in (
        lambda: load_login(Access(servers=("tls://a",), **names)),
        lambda: make_connection_options(Endpoint(urls=("tls://a",), **names), "west"),
    ):
        with pytest.raises(VstreamError, match=problem.replace("FILE", str(file))):
            read()


def test_the_certificate_of_a_server_is_checked(tmp_path: Path) -> None:
    # Made for these tests, for 127.0.0.1 and a hundred years.
    directory = TESTS / "fixtures" / "tls"
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    access = Access(tls_ca=str(certificate))
    with JetStreamServer(
        tmp_path, more=f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}', access=access
    ) as server:
        assert works(server, Access(servers=(server.url,), tls_ca=str(certificate)))
        assert works(server, Access(servers=(server.url.replace("nats://", "tls://"),), tls_ca=str(certificate)))
        with pytest.raises(NotReachableError, match="certificate verify failed"):
            works(server, Access(servers=(server.url,)))


@contextmanager
def listen_in_clear() -> Iterator[tuple[int, list[bytes]]]:
    """A server that does not offer TLS: its port, and what it has heard in the end."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b'INFO {"server_id": "x", "version": "2.12.8", "max_payload": 1048576}\r\n')
                heard.append(connection.recv(4096))

        server = threading.Thread(target=serve)
        server.start()
        yield listening.getsockname()[1], heard
        server.join()


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_nothing_is_sent_in_clear_to_a_server_that_should_have_tls(tmp_path: Path, scheme: str) -> None:
    """As where somebody in between takes TLS out of what the server says."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    with listen_in_clear() as (port, heard):
        access = Access(
            servers=(f"{scheme}://127.0.0.1:{port}",),
            user="reader",
            password_file=str(secret),
            tls_ca=str(TESTS / "fixtures" / "tls" / "certificate.pem") if scheme == "nats" else None,
            timeout=5,
        )
        with pytest.raises(VstreamError, match="does not offer TLS: nothing was sent in clear"), connect(access):
            pass
    assert heard == [b""]


@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_one_tls_address_is_enough_to_send_nothing_in_clear_to_the_others(scheme: str) -> None:
    with listen_in_clear() as (port, heard):
        access = Access(servers=(f"nats://127.0.0.1:{port}", f"{scheme}://127.0.0.1:1"), user="reader", timeout=5)
        with pytest.raises(VstreamError, match="nothing was sent in clear"), connect(access):
            pass
    assert heard == [b""]


@pytest.mark.parametrize("fields", [{"user": "reader"}, {"token_file": "token"}])
def test_credentials_cross_no_network_in_clear(
    fields: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("s3cret")
    access = Access(servers=("nats://127.0.0.1:1", "nats://nats.invalid"), timeout=1, **fields)  # type: ignore[arg-type]
    with pytest.raises(VstreamError, match=r"network unencrypted, to nats\.invalid; nothing was sent"), connect(access):
        pass
    with pytest.raises(NotReachableError), connect(replace(access, allow_plaintext=True)):
        pass


def test_a_variable_that_nobody_has_allowed_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET", "s3cret")
    monkeypatch.delenv("VSTREAM_ALLOW_ENV", raising=False)
    for access in (Access(servers=("nats://a",), token_env="AWS_SECRET"), Access(user="a", password_env="AWS_SECRET")):
        with pytest.raises(VstreamError, match="AWS_SECRET may not be read"):
            load_login(access)


def test_an_address_that_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    with JetStreamServer(tmp_path) as server:
        assert works(server, Access(servers=("nats://127.0.0.1:1", server.url)))
        with pytest.raises(NotReachableError, match=r"127\.0\.0\.1:1: Connection refused"):
            works(server, Access(servers=("nats://127.0.0.1:1",)))


def test_a_client_certificate_is_a_user(tmp_path: Path) -> None:
    directory = TESTS / "fixtures" / "tls"
    key, certificate = str(directory / "key.pem"), str(directory / "certificate.pem")
    with JetStreamServer(
        tmp_path,
        more=f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{certificate}", verify: true }}',
        access=Access(tls_ca=certificate, tls_cert=certificate, tls_key=key),
    ) as server:
        urls = (server.url,)
        assert asyncio.run(is_let_in(Endpoint(urls=urls, tls_ca=certificate, tls_cert=certificate, tls_key=key)))
        with pytest.raises(NotReachableError):
            asyncio.run(is_let_in(Endpoint(urls=urls, tls_ca=certificate)))
        with pytest.raises(NotReachableError, match="certificate"):
            asyncio.run(is_let_in(Endpoint(urls=urls)))


def test_monitoring_over_https_is_checked_with_the_same_authority(tmp_path: Path) -> None:
    directory = TESTS / "fixtures" / "tls"
    key, certificate = str(directory / "key.pem"), str(directory / "certificate.pem")
    https = free_port()
    with JetStreamServer(
        tmp_path,
        more=f'https: "127.0.0.1:{https}"\ntls {{ cert_file: "{certificate}", key_file: "{key}" }}',
        access=Access(tls_ca=certificate),
    ):
        url = f"https://127.0.0.1:{https}"
        with pytest.raises(NotReachableError, match="certificate verify failed"):
            asyncio.run(monitoring.read_varz(url))
        with pytest.raises(VstreamError, match="cannot be read"):
            monitoring.trust_ca([url], str(tmp_path / "nothing.pem"))
        monitoring.trust_ca([url], certificate)
        assert asyncio.run(monitoring.read_varz(url)).version.startswith("2.")
