"""
What goes wrong in the world: one exception tree. `cli.failures` turns it into exit codes.

    VstreamError                    a command could not do its work
    ├── InvalidInputError           the user's files have errors: carries the findings
    ├── NotReachableError           no connection, or no answer before the deadline
    │   ├── MalformedAnswerError    an answer with the wrong form: not JSON, or values of other types
    │   ├── NotPermittedError       the user lacks a permission: nothing has happened
    │   └── HangingError            something takes connections, and does not answer
    ├── NoRespondersError           nobody listens on the subject: nothing has happened
    ├── NotConnectedError           not connected: nothing was sent
    ├── ServerError                 the JetStream API answered with an error
    ├── PlanError                   a plan cannot be used
    │   └── StalePlanError          the servers have changed since the plan was made
    ├── UnknownNameError            a command names something that does not exist
    ├── RefusedError                the command would do more than was asked for; nothing was done
    └── LabError                    a lab cannot be started, found or stopped
        └── UnsupportedError        this lab or this machine cannot do it

Each message is one sentence that names the thing and the place; `hint` says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vstream.findings import Finding

_MAX_LENGTH = 1_000


def shorten(text: str) -> str:
    """*text* from a server, cut to a length that people read."""
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}… ({len(text):,} characters)"


class VstreamError(Exception):
    """A command could not do its work."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInputError(VstreamError):
    """The user's files have errors."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        count = sum(finding.is_error for finding in findings)
        super().__init__(f"{count} error{'' if count == 1 else 's'}")
        self.findings = tuple(findings)


class NotReachableError(VstreamError):
    """No connection, or no answer before the deadline: what was asked may or may not have happened."""

    @classmethod
    def of_all(cls, errors: Iterable[VstreamError]) -> NotReachableError:
        """No region can be reached, for the reasons and with the hints of *errors*."""
        errors = sorted(errors, key=str)
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        return cls(f"no region can be reached: {'; '.join(map(str, errors))}", hint="; ".join(hints) or None)


class MalformedAnswerError(NotReachableError):
    """A server sent something that vstream cannot use: no better than no answer."""

    def __init__(self, origin: str, reason: str) -> None:
        super().__init__(
            f"the answer of `{origin}` cannot be used: {shorten(reason)}",
            hint="is it a nats-server that answers there, and one that vstream supports?",
        )


class NotPermittedError(NotReachableError):
    """The server refused a request because the user lacks the permission: nothing has happened."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="docs/security.md lists what each command needs")


NOT_PERMITTED: dict[str, None] = {}
"""What servers have not let this process do, in their order: a command that was refused something cannot say yes or no."""


class LoginRefusedError(NotReachableError):
    """The servers are there and refuse this user: what others can do is not known."""


class HangingError(NotReachableError):
    """Something takes connections, and does not answer: a process that is stopped or stuck, or a machine that is overloaded."""


class NoRespondersError(VstreamError):
    """Nobody listens on the subject: what was asked has not happened."""


class NotConnectedError(VstreamError):
    """Not connected. Nothing was sent, so nothing has happened."""


class ServerError(VstreamError):
    """The JetStream API answered with an error."""

    def __init__(self, *, code: int, err_code: int, description: str, subject: str, hint: str | None = None) -> None:
        description = shorten(description)
        super().__init__(f"{description} ({code}/{err_code}) on `{subject}`", hint=hint)
        self.code = code
        self.err_code = err_code
        self.description = description
        self.subject = subject


class PlanError(VstreamError):
    """A plan cannot be used."""


class StalePlanError(PlanError):
    """The servers have changed since the plan was made."""


class UnknownNameError(VstreamError):
    """A command names something that does not exist, or not there: invalid usage. Nothing was done."""

    @classmethod
    def of_region(cls, name: str, regions: Iterable[str], explanation: str = "") -> UnknownNameError:
        """There is no region *name*; *explanation*, perhaps of what it is, goes on after the *regions* that there are."""
        return cls(f"there is no region `{name}`", hint=f"regions: {', '.join(regions)}{explanation}")


class RefusedError(VstreamError):
    """The command would do more than was asked for. Nothing was done."""


class LabError(VstreamError):
    """A lab cannot be started, found or stopped."""


class UnsupportedError(LabError):
    """Something that this lab or this machine cannot do: it was not tried, and nothing has changed."""


_ASYNCIO_TEXTS = "Connect call failed", "attempting to bind on address"


def describe_system_error(error: BaseException) -> str:
    """What *error* says, without its number, and without the address that asyncio repeats as a Python value."""
    if not isinstance(error, OSError) or not error.strerror or error.filename is not None:
        return str(error)
    if any(text in error.strerror for text in _ASYNCIO_TEXTS):
        return os.strerror(error.errno or 0).lower()
    return error.strerror
