"""Running a command's asynchronous part, so that it can be stopped."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from vstream.cli.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, interrupted: str | None = "interrupted") -> T:
    """
    Run *work* to its end. Ctrl-C, SIGTERM and SIGHUP cancel it, and it may clean up; then the exit code is 130.

    Terminals and CI systems stop programs by all three. *interrupted* is printed then, unless it is None.
    """

    async def main() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        if interrupted is not None:
            typer.echo(interrupted, err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let the block clean up after Ctrl-C, SIGTERM and SIGHUP, as `run` does; then the exit code is 130."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
