"""Repeat requests that have had no effect, or may be made twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, ServerError
from vstream.jetstream import error_codes
from vstream.jetstream.error_codes import ELECTION_TIMEOUT

_Answer = TypeVar("_Answer")
MAX_ATTEMPTS = 3
"""How often a request is sent that gets no answer."""
PAUSE_SECONDS = 0.5
_REFUSAL_TIMEOUTS = {
    error_codes.CLUSTER_NOT_AVAILABLE: ELECTION_TIMEOUT,
    error_codes.CLUSTER_NOT_LEADER: ELECTION_TIMEOUT,
    # Servers report every 10 seconds that they are there: of one that has just started, two reports may be lost or late.
    error_codes.NO_SUITABLE_PEERS: 32.0,
    # Until its former servers let the stream go.
    error_codes.STREAM_MOVE_IN_PROGRESS: 60.0,
}
"""Seconds for which a request is repeated that was refused with one of these codes: nothing has happened."""


async def retry(request: Callable[[], Awaitable[_Answer]], *, is_repeatable: bool = True) -> _Answer:
    """The result of *request*: repeated where nothing has happened yet, and where it may be, also without an answer."""
    began, unanswered = time.monotonic(), 0
    while True:
        try:
            return await request()
        except NotPermittedError:
            raise
        except NotReachableError:
            unanswered += 1
            if not is_repeatable or unanswered == MAX_ATTEMPTS:
                raise
        except NoRespondersError:
            if time.monotonic() - began > ELECTION_TIMEOUT:
                raise
        except ServerError as failure:
            if time.monotonic() - began > _REFUSAL_TIMEOUTS.get(failure.err_code, -1):
                raise
        await asyncio.sleep(PAUSE_SECONDS)
