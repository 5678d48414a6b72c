"""How the checks of a doctor make a finding: what it weighs, and what it is called, is on its page of the manual."""

from __future__ import annotations

from vstream.diagnostics import Finding
from vstream.health.doctor.codes import BY_CODE

RESYNC = "`vstream resync`"
APPLY = "`vstream plan`, then `vstream apply`"


def diagnose(*, code: str, about: str, evidence: str, do: str) -> Finding:
    """The finding *code* about a stream, region or server. *evidence* is what servers said; *do* is what to do now."""
    page = BY_CODE[code]
    return Finding(code=code, severity=page.severity, message=page.name, where=about, evidence=evidence, hint=do)
