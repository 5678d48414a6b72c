"""
Workers that are forked once everything is collected: `--forked N`.

Each worker of pytest-xdist imports and collects by itself, for what is a tenth of all that the tests without servers take.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

_TOGETHER = 8
"""Tests that are one piece for a worker."""
_NUMBER = 2
"""Bytes of a piece's number."""


class ForkedWorkers:
    """Runs the tests of a session in forks of its process, *count* at a time, and reports what they report."""

    def __init__(self, count: int, group_of: Callable[[pytest.Item], str | None]) -> None:
        self.count = count
        self.group_of = group_of

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """As pytest's own, which shall do nothing after it."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        terminal.showfspath = False  # a name of a file for each dot, as dots of several files come in turns
        pieces = list(self.cut(session.items))
        assert len(pieces) < 1 << 8 * _NUMBER
        # Whoever is idle takes the next number from the pipe, until it is empty and has no writer.
        numbers, writer = os.pipe()
        os.write(writer, b"".join(number.to_bytes(_NUMBER, "big") for number in range(len(pieces))))
        os.close(writer)
        config: Any = session.config
        config._tmp_path_factory.getbasetemp()  # made once: the workers have directories in it
        workers: dict[int, Connection] = {}
        for number in range(self.count):
            receiver, sender = Pipe(duplex=False)
            worker = os.fork()
            if worker == 0:
                _end_with(partial(_work, session, pieces, numbers, sender, number, self.count))
            sender.close()
            workers[worker] = receiver
        try:
            unreported = _report(session, list(workers.values()), numbers)
        except BaseException:
            for worker in workers:
                os.kill(worker, signal.SIGINT)
            raise
        finally:
            codes = sorted(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers)
        for item in unreported.values():
            _report_lost(item, codes)
        return True

    def cut(self, items: Sequence[pytest.Item]) -> Iterator[list[pytest.Item]]:
        """The *items* in pieces: those that share what is made for a module, or a few in their order."""
        for group, grouped in groupby(items, key=self.group_of):
            members = list(grouped)
            size = len(members) if group else _TOGETHER
            yield from (members[start : start + size] for start in range(0, len(members), size))


def _report(session: pytest.Session, connections: list[Connection], numbers: int) -> dict[str, pytest.Item]:
    """Report what comes over *connections*, until all are closed; return the tests of which nothing came in the end."""
    hook = session.config.hook
    unreported = {item.nodeid: item for item in session.items}
    while connections:
        for connection in wait(connections):
            assert isinstance(connection, Connection)
            try:
                name, arguments = connection.recv()
            except EOFError:
                connections.remove(connection)
                continue
            if name == "pytest_runtest_logreport":
                report = hook.pytest_report_from_serializable(config=session.config, data=arguments["report"])
                arguments = {"report": report}
            elif name == "pytest_runtest_logfinish":
                del unreported[arguments["nodeid"]]
            getattr(hook, name)(**arguments)
            if session.shouldfail or session.shouldstop:
                os.read(numbers, 1 << 16)  # nobody takes another piece
    os.close(numbers)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return unreported


def _report_lost(item: pytest.Item, codes: list[int]) -> None:
    """Say that a test has failed, as its worker has ended."""
    reason = f"its worker ended before it was done; workers ended with {', '.join(map(str, codes))}"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "call")
    item.ihook.pytest_runtest_logreport(report=report)


def _end_with(work: Callable[[], None]) -> NoReturn:
    """End this fork after *work*, without what Python and pytest do at the end: that is for the process that was forked."""
    code = 1
    try:
        work()
        code = 0
    except KeyboardInterrupt:
        pass  # who has started the workers says it
    except BaseException:  # noqa: BLE001 - else a fork would go on as pytest
        traceback.print_exc()
    os._exit(code)


class _Sender:
    """Sends what pytest reports in a worker."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config = config
        self.connection = connection

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self.connection.send(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("pytest_runtest_logreport", {"report": data}))

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        self.connection.send(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))


def _work(
    session: pytest.Session,
    pieces: list[list[pytest.Item]],
    numbers: int,
    connection: Connection,
    number: int,
    count: int,
) -> None:
    """Run pieces until none is left, in a fork."""
    config: Any = session.config
    # Who asks which worker it is in finds it where xdist has it.
    os.environ |= {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": str(count)}
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Sender(config, connection))
    capture = plugins.get_plugin("capturemanager")
    capture.stop_global_capturing()  # whose files all workers would share
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.option.basetemp = config._tmp_path_factory.getbasetemp() / f"worker-{number}"
    plugins.get_plugin("tmpdir").pytest_configure(config)

    def take() -> Iterator[pytest.Item]:
        while piece := os.read(numbers, _NUMBER):
            yield from pieces[int.from_bytes(piece, "big")]

    for item, following in pairwise(chain(take(), [None])):
        assert item is not None
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
