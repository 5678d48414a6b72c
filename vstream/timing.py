"""
How servers and their clocks behave in time, as far as more than one package goes by it.

What a single wait needs stands beside that wait. `health.source_retries` has what only a simulation of sources needs.
"""

from __future__ import annotations

from typing import Final

SECOND_NS: Final = 1_000_000_000
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

ELECTION_SECONDS: Final = (4.0, 9.0)
"""Seconds after which replicas that hear no leader elect another: at least, and at most (server/raft.go, minElectionTimeout)."""
LONGEST_BACKOFF_SECONDS: Final = 120.0
"""Seconds at most until a source that failed is asked for again: 10 more after each failure (server/stream.go, calculateRetryBackoff)."""
SOURCE_ANSWER_SECONDS: Final = 30.0
"""Seconds that such a request waits: over a link that is down, nobody refuses it (server/stream.go, srcConsumerWaitTime)."""
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
