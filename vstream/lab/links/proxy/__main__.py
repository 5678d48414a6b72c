"""
The program: `python FILE STATE/labs/NAME`. It ends by SIGTERM; SIGUSR1 makes it read its file again, and answer.

It says in `links/answer.json` what it does (see `vstream.lab.links.state`), first when it listens at every front.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ is None or not __package__:
    # Started by its path, in a Python that looks for no packages: that takes half of the time.
    sys.path.insert(0, str(Path(__file__).parents[4]))

import asyncio
import os
import resource
import signal
from contextlib import suppress

from vstream.lab.links.proxy.fronts import Proxy, read_orders

_MAX_DESCRIPTORS = 16384


def main(place: Path) -> None:
    """Run until SIGTERM."""
    _raise_limit()

    async def run() -> None:
        proxy = Proxy(place, read_orders(place))
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        loop.add_signal_handler(signal.SIGUSR1, proxy.reread)
        await proxy.start()
        await stopped.wait()
        os._exit(0)  # the kernel closes what is open

    try:
        asyncio.run(run())
    except OSError as error:
        sys.exit(f"cannot make links: {error.strerror or error}")


def _raise_limit() -> None:
    """Each connection takes two descriptors, and macOS gives 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MAX_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
