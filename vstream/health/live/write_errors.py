"""Write errors that servers report: a disk is full, or a stream has stopped for good."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vstream.errors import VstreamError
from vstream.health.snapshot import ServerSnapshot, WriteError
from vstream.jetstream import monitoring

_CANNOT_WRITE = "write error"


async def find_write_errors(servers: Sequence[ServerSnapshot], deadline: float) -> tuple[WriteError, ...]:
    """
    Read write errors from *servers* before *deadline*, on the monotonic clock.

    Servers report them for Raft groups, and for streams and consumers with several replicas, once a write has failed. For
    others they report nothing: a refused publish is the only sign.
    """
    asked = [server for server in servers if server.url and server.is_reached]
    answers = await asyncio.gather(*(_read_problems(str(server.url), deadline) for server in asked))
    errors: list[WriteError] = []
    for server, problems in zip(asked, answers, strict=True):
        for problem in problems:
            error = str(problem.get("error"))
            if _CANNOT_WRITE in error:
                errors.append(WriteError(server=server.name, about=_name_subject(problem), error=error))
    return tuple(errors)


async def _read_problems(url: str, deadline: float) -> Sequence[Mapping[str, Any]]:
    try:
        return await monitoring.health_problems(url, max(0.05, deadline - time.monotonic()))
    except VstreamError:
        return ()  # that it does not answer is a finding of its own


def _name_subject(problem: Mapping[str, Any]) -> str:
    """What a server's *problem* is about: a stream, a consumer, or JetStream as a whole."""
    names = [str(problem[key]) for key in ("stream", "consumer") if problem.get(key)]
    return " > ".join(names) or "JetStream"
