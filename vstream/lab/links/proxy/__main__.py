"""
The program: `python FILE STATE/labs/NAME`. It ends by SIGTERM; SIGUSR1 makes it read its file again, and answer.

`python FILE --probe` says what can be done with network namespaces here, and ends.

It says in `links/answer.json` what it does (see `vstream.lab.links.state`), first when it listens at every front.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ is None or not __package__:
    # Started by its path, in a Python that looks for no packages: that takes half of the time.
    sys.path.insert(0, str(Path(__file__).parents[4]))

import asyncio
import json
import os
import resource
import signal
from contextlib import suppress

from vstream.lab.links.proxy.program import Program, read_orders
from vstream.lab.links.state import Backend

_DESCRIPTORS = 16384


def main(place: Path) -> None:
    """Run until SIGTERM."""
    _raise_limit()

    async def run() -> None:
        program = _program(place)
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        loop.add_signal_handler(signal.SIGUSR1, program.reread)
        await program.start()
        await stopped.wait()
        os._exit(0)  # the kernel closes what is open

    try:
        asyncio.run(run())
    except OSError as error:
        sys.exit(f"links cannot be made: {error.strerror or error}")


def _program(place: Path) -> Program:
    links = read_orders(place)
    if links.backend is Backend.NETNS:
        from vstream.lab.links.proxy.spaces import Spaces  # noqa: PLC0415 - Linux only

        return Spaces(place, links)
    from vstream.lab.links.proxy.proxy import Proxy  # noqa: PLC0415

    return Proxy(place, links)


def probe() -> None:
    """Try out what `Spaces` needs, in namespaces of this process alone."""
    from vstream.lab.links.proxy import spaces  # noqa: PLC0415 - Linux only

    who = "root" if os.geteuid() == 0 else "an ordinary user"
    try:
        cannot = spaces.tried()
    except OSError as error:
        sys.exit(f"{error.strerror or error}")
    print(json.dumps({"cannot": cannot, "as": who}))  # noqa: T201 - it is asked on the command line


def _raise_limit() -> None:
    """Each connection takes two descriptors, and macOS gives 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    probe() if sys.argv[1] == "--probe" else main(Path(sys.argv[1]))
