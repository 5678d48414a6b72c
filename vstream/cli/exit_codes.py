"""What each exit code means."""

from __future__ import annotations

OK = 0
NO = 1
USAGE = 2
FAILED = 3
INTERRUPTED = 130
TERMINATED = 143
"""What a shell makes of a process that SIGTERM ended."""
