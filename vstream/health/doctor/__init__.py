"""Findings on a live system: values and judgement, no I/O."""

from __future__ import annotations

from typing import Final

from vstream.health.doctor import configs, servers, sourcing, streams
from vstream.health.doctor.check import list_checks

CHECKS: Final = list_checks(streams, sourcing, servers, configs)
"""All checks, by their codes."""
