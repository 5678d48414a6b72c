"""Account subject mappings: what a `mappings { … }` block says, as values."""

from __future__ import annotations

from dataclasses import field

from vstream.diagnostics import Span
from vstream.value_class import value_class


@value_class
class Destination:
    """
    Where *weight* percent of a mapping's messages go (`server/accounts.go` MapDest).

    *subject* may hold mapping functions and is empty where the file names no
    destination. *weight* is as written, so it may be out of range. *cluster*
    limits the destination to publishes that enter at that cluster; None means
    everywhere else.
    """

    subject: str
    weight: int = 100
    cluster: str | None = None
    span: Span | None = field(default=None, compare=False)


@value_class
class Mapping:
    """One rule: messages published to *source* go to one of *destinations*, which may be none."""

    source: str
    destinations: tuple[Destination, ...]
    span: Span | None = field(default=None, compare=False)
