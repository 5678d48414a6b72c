"""A NATS client that does next to nothing, so that what is measured is the server: frames are sent as they are and not parsed."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

_BUFFER = 1 << 20
_TIMEOUT = 120


class Wire:
    """
    One connection. Raises TimeoutError or ConnectionError if the server does not answer as expected.

    Answers are told apart by one byte that they have once: it must be in nothing else that the server sends.
    """

    def __init__(self, url: str, user: str | None, password: str | None) -> None:
        """Log in at *url*, such as `nats://127.0.0.1:4222`."""
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=_TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        login: dict[str, object] = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1}
        if user is not None:
            login |= {"user": user, "pass": password}
        self._socket.sendall(f"CONNECT {json.dumps(login)}\r\n".encode())
        self.flush()

    def send(self, frames: bytes) -> None:
        """What the protocol says, with its line ends."""
        self._socket.sendall(frames)

    def count(self, mark: bytes, wanted: int) -> None:
        """Return once *mark*, of one byte, has come *wanted* times."""
        result = 0
        while result < wanted:
            result += self._receive().count(mark)

    def flush(self) -> None:
        """Return once the server has taken everything; what comes until then is thrown away."""
        self._socket.sendall(b"PING\r\n")
        last = b""
        while b"PONG\r\n" not in last:
            last = last[-8:] + self._receive()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _receive(self) -> bytes:
        data = self._socket.recv(_BUFFER)
        if not data:
            raise ConnectionError("the server hung up")
        if data.startswith(b"-ERR") or b"\r\n-ERR" in data:
            raise ConnectionError(f"the server refuses: {data[-200:]!r}")
        return data
