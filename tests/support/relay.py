"""A port that leads to another, and says when much has gone through it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def relay(target: int, on_much: Callable[[int], None], *, much: int = 1 << 20, delay: float = 0.0) -> Iterator[int]:
    """
    A port that leads to *target*. Whoever has received *much* through it is told on, by the port that is his.

    Until *on_much* returns, he receives no more: so long he is certainly not done. If it raises OSError, that was all
    that he receives. Where *target* does not answer, whoever comes is sent away. Each way takes *delay* seconds.
    """

    def pump(source: socket.socket, sink: socket.socket, port: int | None) -> None:
        total = 0
        with suppress(OSError), source, sink, ExitStack() as both:
            # Closed alone, a socket stays open for as long as the other thread receives from it.
            both.callback(_end, source, sink)
            while data := source.recv(65_536):
                time.sleep(delay)  # the way is long
                sink.sendall(data)
                total += len(data)
                if port is not None and total > much:
                    on_much(port)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, (_, port) = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", target))
                except OSError:
                    near.close()
                    continue
                threading.Thread(target=pump, args=(near, far, None), daemon=True).start()
                threading.Thread(target=pump, args=(far, near, port), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _end(*sockets: socket.socket) -> None:
    for connection in sockets:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
