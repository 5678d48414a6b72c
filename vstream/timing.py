"""
How servers and their clocks behave in time, as far as more than one package goes by it.

What a single wait needs stands beside that wait, and servers' own timers of sources in `health.source_retries`.
"""

from __future__ import annotations

from typing import Final

ALIVE_SECONDS: Final = 3.0
"""
Seconds in which a source, or a replica, that works is heard, messages or not.

Servers send a sign of life every second (server/stream.go, sourceHealthHB; server/raft.go, hbIntervalDefault): two may be late.
"""
SILENT_AFTER_SECONDS: Final = 5.0
"""Seconds after which a pair of a reader and an origin is called silent. Servers before 2.11 count messages only."""
BEHIND_AFTER_SECONDS: Final = 5.0
"""Seconds that a message may take to arrive before its reader is called behind."""
STUCK_SECONDS: Final = 30.0
"""Seconds that a message may wait while its source is active: a source that catches up needs less."""

MOVE_START_SECONDS: Final = 15.0
"""Seconds within which a moved stream gets another leader. Before that, it looks settled."""
RECORDING_SECONDS: Final = 70.0
"""Seconds after which a server has recorded what it holds, also one that nobody can ask: servers do that once a minute."""

CLOCK_SKEW_SECONDS: Final = 1.0
"""
Seconds by which the clocks of two servers may differ, with NTP by far less: a smaller difference proves no order.

Where a time decides what is lost or was there before, this much is given to whoever would be wronged.
"""
MAX_CLOCK_SKEW_SECONDS: Final = 5.0
"""The same where it costs only a few messages that are looked at besides, so that worse clocks are allowed for."""
EXPIRY_SKEW_SECONDS: Final = 60.0
"""
Seconds before a message is too old from which on servers may have removed it.

Their clocks differ, and what is compared was read some time ago. What is that old is left out of a comparison, no more.
"""
