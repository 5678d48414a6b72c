"""
From how many seconds on a pair of a reader and an origin is called silent, behind or stuck.

When a stream that stands still is refreshed, and how soon again, is up to `refresh_policy`.
"""

from __future__ import annotations

SILENT_AFTER_SECONDS = 5.0
"""Seconds. A source that works is heard every second, messages or not; servers before 2.11 count messages only."""
BEHIND_AFTER_SECONDS = 5.0
"""Seconds that a message may take to arrive before its reader is called behind."""
STUCK_SECONDS = 30.0
"""Seconds that a message may wait while its source is active: a source that catches up needs less."""
