"""
What goes wrong in the world: one exception tree.

    VstreamError                    a command could not do its work (exit code 3)
    ├── InvalidInputError           the user's files have errors: carries the diagnostics (exit code 1)
    ├── NotReachableError           no connection, or no answer before the deadline
    ├── NoRespondersError           nobody listens on a subject: what was asked has not happened
    ├── NotConnectedError           not connected: nothing was sent
    │   └── MalformedAnswerError    an answer that has the wrong form: not JSON, or values of other types
    ├── ServerError                 the JetStream API answered with an error
    ├── PlanError                   a plan cannot be used
    │   └── StalePlanError          the servers have changed since the plan was made
    ├── UnknownNameError            a command names something that there is not (exit code 2)
    ├── RefusedError                it would do more than was asked for; nothing was done (exit code 1)
    └── LabError                    a lab cannot be started, found or stopped
        └── UnsupportedError        what was asked is beyond this lab or this machine

Each message is one sentence that names the thing and the place; `hint` is the way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.diagnostics import Finding

_LONGEST = 1_000


def shorten(text: str) -> str:
    """*text*, which a server chose, as far as anybody reads it: no message says more of it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


class VstreamError(Exception):
    """A command could not do its work."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInputError(VstreamError):
    """The user's files have errors."""

    def __init__(self, diagnostics: Sequence[Finding]) -> None:
        count = sum(diagnostic.is_error for diagnostic in diagnostics)
        super().__init__(f"{count} error{'' if count == 1 else 's'}")
        self.diagnostics = tuple(diagnostics)


class NotReachableError(VstreamError):
    """No connection, or no answer before the deadline: what was asked may or may not have happened."""


class MalformedAnswerError(NotReachableError):
    """What answered on a subject or at an address sent something that vstream cannot use: as good as no answer."""

    def __init__(self, origin: str, reason: str) -> None:
        super().__init__(
            f"the answer of `{origin}` cannot be used: {shorten(reason)}",
            hint="is it a nats-server that answers there, and one that vstream supports?",
        )


class NotPermittedError(NotReachableError):
    """The server refused what was sent, as the user has no permission for it: nothing has happened."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="docs/security.md lists what each command needs")


NOT_PERMITTED: dict[str, None] = {}
"""What servers have not let this process do, in their order: a command that was refused something cannot say yes or no."""


class NoRespondersError(VstreamError):
    """Nobody listens on the subject: what was asked has not happened."""


class NotConnectedError(VstreamError):
    """Not connected. Nothing was sent, so nothing has happened."""


class ServerError(VstreamError):
    """The JetStream API answered with an error."""

    def __init__(self, *, code: int, err_code: int, description: str, subject: str) -> None:
        description = shorten(description)
        super().__init__(f"{description} ({code}/{err_code}) on `{subject}`")
        self.code = code
        self.err_code = err_code
        self.description = description
        self.subject = subject


class PlanError(VstreamError):
    """A plan cannot be used."""


class StalePlanError(PlanError):
    """The servers have changed since the plan was made."""


class UnknownNameError(VstreamError):
    """A command names something that there is not, or not in that place: wrong usage. Nothing was done."""


class RefusedError(VstreamError):
    """What was asked would do more than that. Nothing was done."""


class LabError(VstreamError):
    """A lab cannot be started, found or stopped."""


class UnsupportedError(LabError):
    """What was asked is beyond this lab or this machine: it was not tried, and nothing has changed."""
