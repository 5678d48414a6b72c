"""The manual pages of codes (rules, audit findings, doctor checks), in chapters; and the codes that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vstream.findings import Severity
from vstream.value_class import value_class

RETIRED: Final[Mapping[str, str]] = {
    "VS118": "VS109 covers it",
    "VS121": "a lab looks for free ports itself",
    "VS124": "VS244 covers it: it also checks what a topology renders to",
    "VS126": "VS224 covers it: it also checks what a topology renders to",
    "VS145": "VS123 covers it",
    "VS148": "VS109 covers it",
    "VS332": "a rule for a request that nobody answers changes nothing",
    "VS351": "VS350 covers it",
    "VS361": "VS360 covers it, as an error",
    "VS408": "VS407 covers it: it says which clusters are refused",
    "VS411": "VS410 covers it, as a note",
    "VS425": "`nats-server -t` refuses such accounts and users, and says why",
}
"""Codes that are no longer reported, and what replaced them or why. They are never given to anything else."""


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
