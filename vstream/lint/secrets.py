"""Secrets: values of the environment may be used to read a configuration. They, and keys and logins, are never shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from vstream.findings import Finding, Severity, Span, mask_secrets
from vstream.syntax.natsconf.nodes import ConfMap, ConfScalar, Reference

_UNDEFINED: Final = re.compile(r"the variable `([A-Za-z_]\w*)` is not defined")
_CHART_VARIABLES: Final = frozenset({"POD_NAME", "SERVER_NAME"})
"""What the NATS Helm chart sets in each pod (files/stateful-set/nats-container.yaml)."""
_CHART_PID_FILE: Final = "/var/run/nats/nats.pid"
"""What it has every server write, and lets nobody change."""
_BREAK: Final = re.compile(r"""[\s"'{}\[\],;]+""")
_QUOTED: Final = re.compile(r"`[^`]*`")
_LONG: Final = 4
"""From here on, a value is masked inside of words too."""


def downgrade_undefined_variables(findings: Iterable[Finding]) -> Iterator[Finding]:
    """
    *findings* about a file whose environment nobody gave: a variable that nothing defines is a note, once for each.

    The environment of whoever checks a file is not that of the server.
    """
    seen: set[str] = set()
    for finding in findings:
        name = _undefined_in(finding)
        if name is None:
            yield finding
        elif name not in seen:
            seen.add(name)
            yield replace(
                finding,
                severity=Severity.NOTE,
                message=f"the value of `{name}` comes from the environment and is not checked",
                hint=(
                    f"`--env {name}` checks it with its value in this shell, `--env-file FILE` with the value in a file"
                ),
            )


def without_chart_variables(findings: Iterable[Finding], root: ConfMap) -> tuple[Finding, ...]:
    """*findings* without those about variables that the NATS Helm chart defines, if it has made the configuration *root*."""
    pid_file = root.get("pid_file")
    if not isinstance(pid_file, ConfScalar) or pid_file.value != _CHART_PID_FILE:
        return tuple(findings)
    return tuple(finding for finding in findings if _undefined_in(finding) not in _CHART_VARIABLES)


def _undefined_in(finding: Finding) -> str | None:
    """The variable that nothing defines, if *finding* says so of one."""
    undefined = _UNDEFINED.fullmatch(finding.message) if finding.code == "VS012" else None
    return undefined[1] if undefined else None


def find_undefined_variables(references: Iterable[Reference], env: Mapping[str, str]) -> set[Span]:
    """Where variables are used that neither the files nor *env* define."""
    return {reference.span for reference in references if reference.definition is None and reference.name not in env}


def mask_findings(
    findings: Iterable[Finding], references: Iterable[Reference], unquoted: Collection[str], env: Mapping[str, str]
) -> Iterator[Finding]:
    """*findings* without secrets, which quote neither files that are *unquoted* nor variables that these define."""
    used = {
        reference.span for reference in references if reference.definition and reference.definition.file in unquoted
    }
    for finding in findings:
        span = finding.span
        yield _mask(finding, env, quotes=span is None or not (span in used or span.file in unquoted))


def _mask(finding: Finding, env: Mapping[str, str], *, quotes: bool) -> Finding:
    """*finding* with `$NAME` in the place of each value of *env*, and without anything quoted unless it *quotes*."""

    def mask_text(text: str) -> str:
        return mask_secrets(_mask_text(text, env))

    message = finding.message
    if finding.code == "VS012" and " cannot be read: " in message:
        message = message.partition(": ")[0]
    if not quotes:
        return replace(finding, message=_QUOTED.sub("`…`", message), hint=None, related=(), fix=())
    return replace(
        finding,
        message=mask_text(message),
        hint=mask_text(finding.hint) if finding.hint else finding.hint,
        related=tuple(replace(related, message=mask_text(related.message)) for related in finding.related),
        fix=() if any(mask_text(edit.text) != edit.text for edit in finding.fix) else finding.fix,
    )


def _mask_text(text: str, env: Mapping[str, str]) -> str:
    for name, value in sorted(env.items(), key=lambda item: -len(item[1])):
        for part in {value, *_BREAK.split(value)}:
            if part and part in text:
                pattern = re.escape(part) if len(part) >= _LONG else rf"(?<!\w){re.escape(part)}(?!\w)"
                # In two pieces: a dollar is nothing special in a replacement, a backslash is.
                text = f"${name}".join(re.split(pattern, text))
    return text
