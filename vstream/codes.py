"""The manual pages of codes (rules, audit findings, doctor checks), in chapters."""

from __future__ import annotations

from vstream.findings import Severity
from vstream.value_class import value_class


@value_class
class Page:
    """What one code means, why it matters, and what to do, as Markdown without a title."""

    code: str
    name: str
    severity: Severity
    text: str

    @property
    def summary(self) -> str:
        """The first paragraph, on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())


@value_class
class Chapter:
    """Codes that belong together."""

    title: str
    pages: tuple[Page, ...]
