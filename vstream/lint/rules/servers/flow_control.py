"""JetStream subjects that accounts share: whether the flow control of sourced streams comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from vstream.findings import Severity
from vstream.lint.reading.accounts import exports_of, imports_of
from vstream.lint.reading.nodes import entry
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.mappings.api import is_api
from vstream.lint.workspace import AccountConf, ConfValue, Workspace
from vstream.subjects.algebra import PARTIAL_WILDCARD, SEPARATOR, is_literal, overlaps
from vstream.topology.naming import PHYSICAL_PREFIX

_CREATE: Final = ("CONSUMER.CREATE.>", "CONSUMER.DURABLE.CREATE.>")
_APIS: Final = ("$JS.API.", "$JS.*.API.")
_CONSUMER: Final = ".CONSUMER."
_AFTER_CREATE: Final = ".CREATE."
_FLOW_CONTROL: Final = "$JS.FC."
_SHAPE: Final = "$JS.FC.<stream>.<consumer>.<id>"
_OWN: Final = f"{PHYSICAL_PREFIX}."
"""Begins the names through which vstream leads its clients, while nobody sources through them."""
_LOSS: Final = "sourcing stops for ever after about 2 MB, without an error"


class SharedSubject(NamedTuple):
    """An export, or an import: its subject in the account that exports it, and under which name it is imported."""

    is_service: bool
    subject: ConfValue
    account: str | None = None
    name: ConfValue | None = None

    @property
    def text(self) -> str:
        """The subject."""
        return self.subject.text or ""


@rule("VS423", "flow-control-not-shared", Severity.WARNING)
def flow_control_not_shared(workspace: Workspace) -> Iterator[Violation]:
    """
    An account can source streams of another account, but not answer its flow control.

    ## Why is this bad?
    A stream that sources or mirrors from another account needs three imports: the request to create a consumer, its
    deliveries, and `$JS.FC.>`, on which servers acknowledge flow control. Without the last one, the source stalls for
    ever after about 2 MB: 1,890 of 6,000 messages of 1 kB arrived, on 2.15.1. Up to that version, servers report no
    error, and the lag stays 0 (nats-server issues 8630 and 7326). Flow control uses exactly
    `$JS.FC.<stream>.<consumer>.<id>`, so an import under another name (`to`) does not work.
    """
    for server in workspace.servers:
        # Where it is shared at all, whoever wrote the file knows of it: an account may answer on some servers only,
        # since accounts that import it from each other are a cycle, which the server refuses.
        shared = (share for account in server.accounts for share in (*_read_exports(account), *_read_imports(account)))
        is_shared = any(map(_is_flow_control, shared))
        for account in server.accounts:
            if not is_shared:
                yield from _check_flow_control_exports(account)
            # Without JetStream an account has no streams that could source anything.
            imports = list(_read_imports(account)) if entry(account.conf, "jetstream") else []
            for origin in dict.fromkeys(share.account for share in imports if share.account):
                shares = [share for share in imports if share.account == origin]
                if any(map(_is_flow_control, shares)):
                    yield from _check_flow_control_answers(account, origin, shares)
                elif not is_shared:
                    yield from _check_flow_control_imports(account, origin, shares)


def _is_flow_control(share: SharedSubject) -> bool:
    return share.is_service and share.text.startswith(_FLOW_CONTROL)


def _check_flow_control_exports(account: AccountConf) -> Iterator[Violation]:
    exports = _read_exports(account)
    creates = _find_create(exports)
    # The whole API is exported to manage streams as well.
    if creates is None or _CONSUMER not in creates.text or not _delivers(exports):
        return
    yield Violation(
        at=creates.subject.span,
        message=f"account `{account.name}` lets others source its streams, but exports no flow control: {_LOSS}",
        hint='export `{service: "$JS.FC.>"}` to the same accounts',
    )


def _check_flow_control_imports(account: AccountConf, origin: str, imports: list[SharedSubject]) -> Iterator[Violation]:
    creates = _find_create(imports)
    if creates is not None and _delivers(imports):
        yield Violation(
            at=creates.subject.span,
            message=f"account `{account.name}` can source streams of `{origin}`, but imports no flow control: {_LOSS}",
            hint=_describe_import(origin),
        )


def _check_flow_control_answers(account: AccountConf, origin: str, imports: list[SharedSubject]) -> Iterator[Violation]:
    """Whether what *account* imports of the flow control of *origin* is of use."""
    creates = _find_create(imports)
    if creates is None or not _delivers(imports):
        return
    answers = [share for share in imports if _is_flow_control(share)]
    fitting = [share for share in answers if overlaps(share.text, _flow_control_of(creates))]
    renamed = [share.name for share in fitting if share.name and share.name.text != share.text]
    if not fitting:
        message = f"`{answers[0].text}` is not the flow control of the sourced stream, which is `{_SHAPE}`: {_LOSS}"
        yield Violation(at=answers[0].subject.span, message=message, hint=_describe_import(origin))
    elif len(renamed) == len(fitting) and not _maps_flow_control(account) and not str(renamed[0].text).startswith(_OWN):
        message = f"servers send flow control replies to `{fitting[0].text}`, not to `{renamed[0].text}`: {_LOSS}"
        yield Violation(at=renamed[0].span, message=message, hint="remove `to`")


def _describe_import(origin: str) -> str:
    return f'import `{{service: {{account: "{origin}", subject: "$JS.FC.>"}}}}`, and export it there'


def _maps_flow_control(account: AccountConf) -> bool:
    """Whether answers get another name by a mapping, as an import with `to` needs."""
    sources = (mapping.source for block in account.mappings for mapping in block.entries)
    return any(overlaps(source, f"{_FLOW_CONTROL}*.*.*") for source in sources if source.startswith("$JS."))


def _find_create(shares: Iterable[SharedSubject]) -> SharedSubject | None:
    """The first that lets consumers be created, which every source needs."""
    subjects = [f"{api}{request}" for api in _APIS for request in _CREATE]
    services = (share for share in shares if share.is_service and is_api(share.text))
    return next((share for share in services if any(overlaps(share.text, subject) for subject in subjects)), None)


def _delivers(shares: Iterable[SharedSubject]) -> bool:
    """Whether messages pass: a stream of subjects other than the server's own."""
    return any(not share.is_service and not share.text.startswith("$") for share in shares)


def _flow_control_of(creates: SharedSubject) -> str:
    """The subjects of flow control that belong to the streams whose consumers may be created."""
    _, separator, rest = creates.text.partition(_AFTER_CREATE)
    stream = rest.split(SEPARATOR)[0] if separator else PARTIAL_WILDCARD
    return f"{_FLOW_CONTROL}{stream if is_literal(stream) else PARTIAL_WILDCARD}.*.*"


def _read_exports(account: AccountConf) -> list[SharedSubject]:
    return [SharedSubject(is_service=share.kind == "service", subject=share.subject) for share in exports_of(account)]


def _read_imports(account: AccountConf) -> Iterator[SharedSubject]:
    for share in imports_of(account):
        is_service = share.kind == "service"
        yield SharedSubject(is_service=is_service, subject=share.subject, account=share.account.text, name=share.to)
