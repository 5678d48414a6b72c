"""Transport: everything that speaks to NATS servers. The only package that imports nats."""

import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType


class _LateModule(ModuleType):
    """A module that is imported once something of it is used."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


# What nats imports for WebSockets is a fifth of what a command imports: `TidyClient` does for those who use them. Its own
# JetStream client is a twentieth, and is needed for the headers of messages alone; nkeys are for logins and tokens.
_absent = {"aiohttp": None, "nats.js": _LateModule("nats.js"), "nkeys": _LateModule("nkeys")}
if _absent.keys().isdisjoint(sys.modules):
    sys.modules.update(_absent)  # type: ignore[arg-type]  # None: as if it was not installed
    with suppress(ImportError):  # executors of Spark have no nats
        import_module("nats")
        vars(sys.modules["nats"])["js"] = _absent.pop("nats.js")
        del _absent["nkeys"]
    for _name in _absent:
        del sys.modules[_name]
