"""One finding of a doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong. *evidence* is what servers said; *do* is what to do about this one."""

    code: str
    about: str
    evidence: str
    do: str


RESYNC = "`vstream resync`"
APPLY = "`vstream plan`, then `vstream apply`"
