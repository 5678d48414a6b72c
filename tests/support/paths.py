"""Where things are in the checkout."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
CERTIFICATES = TESTS / "fixtures" / "certificates"
