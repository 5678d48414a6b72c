"""
A process that has imported `vstream` and forks for each command: most of what a command costs is its imports.

It has no threads and imports no Spark, so each fork is what `python -m vstream` is after its imports: a process of its own
with its own arguments, environment, directory, signals and streams.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vstream
from tests.support.paths import ROOT
from vstream import resources
from vstream.__main__ import main
from vstream.cli.app import app
from vstream.render.environment import make_jinja_environment

NOT_PRELOADED = "vstream.audit"
"""Imports Spark, whose libraries start threads."""
REHEARSED = ("--help", "render --help", "validate", "lint", "map --all", "size")
"""Commands that have run before: what libraries import and work out once, when they are first used, is a third of a fork."""


def import_all(package: Any) -> None:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.startswith(NOT_PRELOADED) and not module.name.endswith("__main__"):
            imported = importlib.import_module(module.name)
            if module.ispkg:
                import_all(imported)


def preload() -> None:
    import_all(vstream)
    templates = make_jinja_environment([resources.templates()])
    for name in templates.list_templates(filter_func=lambda name: not name.startswith("reports/")):
        templates.get_template(name)  # which compiles it: most of what many commands take
    topology = str(ROOT / "examples" / "consistency.yaml")
    for command in REHEARSED:
        nowhere = io.StringIO()
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            app([*command.split(), topology], standalone_mode=False)
    assert "numpy" not in sys.modules
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()  # the collector of a fork need not touch, and thereby copy, every page


def serve(path: Path) -> dict[str, Any] | None:
    """
    Fork for each request that comes in at the socket *path*, until standard input ends.

    Return the request in the fork, and None at the end.
    """
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    clients: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    for source in (listener, wake, sys.stdin):
        selector.register(source, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if sys.stdin in ready:
            return None
        if wake in ready:
            wake.recv(4096)
            report_ended(clients)
        if listener in ready:
            client, _ = listener.accept()
            with client.makefile("rb") as lines:
                request: dict[str, Any] = json.loads(lines.readline())
            child = os.fork()
            if child == 0:
                selector.close()
                for inherited in (wake, woken, listener, client, *clients.values()):
                    inherited.close()
                return request
            client.sendall(f"{child}\n".encode())
            clients[child] = client


def report_ended(clients: dict[int, socket.socket]) -> None:
    while clients:
        child, status, usage = os.wait4(-1, os.WNOHANG)
        if child == 0:
            return
        with clients.pop(child) as client:
            try:
                client.sendall(f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}\n".encode())
            except BrokenPipeError:
                continue  # who asked for it has gone


def become(request: dict[str, Any]) -> None:
    """Make this fork a process as a shell would have started it for *request*."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate(request["streams"]):
        descriptor = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    if encoding := os.environ.get("PYTHONIOENCODING"):  # which Python reads when it starts
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.reconfigure(encoding=encoding)
    os.umask(request["umask"])
    os.chdir(request["directory"])
    sys.argv = ["vstream", *request["arguments"]]


def leave(run: Callable[[], object]) -> None:
    """
    End this fork as Python ends a program, but for what frees its memory.

    To free each object would copy every page that the forks share, which takes as long as most commands do.
    """
    code = 0
    try:
        run()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    # A terminal sends Ctrl-C to all: tests then still take down, by commands, what they have started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload()
    request = serve(Path(sys.argv[1]))
    if request is not None:
        become(request)
        leave(main)
