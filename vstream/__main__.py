"""`python -m vstream`, and the `vstream` command."""

from __future__ import annotations

import os
import signal
from importlib import import_module

_INTERRUPTED = 130
"""As in `cli.exit_codes`, which cannot be imported yet."""


def main() -> None:
    """Run the command line. Ctrl-C while its modules are loaded ends it with its exit code, and without a traceback."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # a shell's background jobs ignore Ctrl-C
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    app = import_module("vstream.cli.app")
    signal.signal(signal.SIGINT, usual)
    app.run()


if __name__ == "__main__":
    main()
