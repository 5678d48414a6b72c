"""Transport: everything that speaks to NATS servers. The only package that imports nats."""

import sys
from contextlib import suppress
from importlib import import_module

if "aiohttp" not in sys.modules:
    # nats imports it for WebSockets, and that is a fifth of what a command imports: `TidyClient` does for those who use them.
    sys.modules["aiohttp"] = None  # type: ignore[assignment]  # as if it was not installed
    with suppress(ImportError):  # executors of Spark have no nats
        import_module("nats.aio.transport")
    del sys.modules["aiohttp"]
