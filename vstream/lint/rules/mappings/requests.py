"""Rules for the JetStream API: requests that do not exist, are mapped to other requests, or must not be mapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vstream.findings import Severity
from vstream.formatting import quote_names
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.mappings import api
from vstream.lint.rules.mappings.entries import ApiRule, view_block
from vstream.lint.workspace import MappingForm, MappingsBlock, Workspace
from vstream.subjects.algebra import SEPARATOR, matches
from vstream.subjects.transform import effective_source
from vstream.topology.naming import RESERVED_NAMES, with_placeholders

NEVER = ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.RESTORE")
_DIVERGING = ("STREAM.PURGE", "STREAM.MSG.DELETE")
_REPLIES = ("$JS.ACK.", "$JS.FC.")
_MIN_REPLY_TOKENS = 3


@rule("VS330", "unknown-api-subject", Severity.ERROR)
def unknown_api_subject(workspace: Workspace) -> Iterator[Violation]:
    """
    A source or destination looks like a JetStream request that no server knows.

    ## Why is this bad?
    As a source it never matches, and the intended requests are not mapped. As a destination it loses them: the server
    does not know the request and stays silent until the client times out (seen with 2.15). Known requests are those of
    server/jetstream_api.go, in any version from 2.9 to 2.15, including the tokens after the stream's name.
    """
    for block in workspace.blocks:
        mapped_sources = {entry.source for entry in view_block(block).entries}
        for api_rule in view_block(block).api:
            if not api_rule.request.operations:
                meant = api.suggest(api_rule.request)
                yield Violation(
                    at=api_rule.entry.key_span,
                    message=f"`{api_rule.entry.source}` is not a request of the JetStream API: the rule never matches",
                    hint=f"did you mean `{meant}`?"
                    + (" A rule for it already exists." if meant in mapped_sources else ""),
                )
        for destination, target in view_block(block).targets:
            if not target.operations:
                yield Violation(
                    at=destination.locate(),
                    message=f"`{target.subject}` is not a request of the JetStream API: requests of clients time out",
                    hint=f"did you mean `{api.suggest(target)}`?",
                )


@rule("VS331", "request-becomes-another", Severity.ERROR)
def request_becomes_another(workspace: Workspace) -> Iterator[Violation]:
    """
    A request is mapped to a request of another kind.

    ## Why is this bad?
    The server carries out the request in the destination: the client gets a reply of the wrong type, or its request
    body is refused (server/jetstream_api.go; all versions). `STREAM.MSG.GET` and `DIRECT.GET` are also different
    requests.
    """
    for block in workspace.blocks:
        for api_rule in view_block(block).api:
            for destination, target in api_rule.targets:
                if api_rule.request.operations and target.operations and not api_rule.request.names & target.names:
                    yield Violation(
                        at=destination.locate(),
                        message=f"{_name_requests(api_rule.request)} becomes {_name_requests(target)}",
                        hint=f"write `{_with_target_stream(api_rule.request, target)}`",
                    )


def _name_requests(request: api.Request) -> str:
    return " or ".join(f"`{name}`" for name in sorted(request.names)[:2])


def _with_target_stream(request: api.Request, target: api.Request) -> str:
    """The source as a destination, with the stream of the destination."""
    stream, target_stream = min(request.streams, default=""), min(target.streams, default="")
    tokens = request.subject.split(SEPARATOR)
    return with_placeholders(
        SEPARATOR.join(target_stream if token == stream and target_stream else token for token in tokens)
    )


@rule("VS333", "stream-management-mapped", Severity.ERROR)
def stream_management_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    Creating, updating, deleting or restoring a stream is mapped.

    ## Why is this bad?
    Deleting the virtual stream deletes the read stream of one region. Creating and updating fail, because the body and
    the mapped subject name different streams: error 10056 (server/jetstream_api.go, jsStreamCreateRequest; all
    versions).
    """
    for block in workspace.blocks:
        for api_rule in view_block(block).api:
            caught = _list_caught(api_rule, NEVER)
            if caught and api_rule.renames:
                yield Violation(
                    at=api_rule.entry.key_span,
                    message=f"`{api_rule.entry.source}` matches {quote_names(caught)}: clients would manage a physical stream under the name `{min(api_rule.renames)}`",
                    hint="write the intended requests instead of `*`"
                    if len(api_rule.request.names) > 1
                    else "remove the rule: streams are managed under their own names",
                )


@rule("VS334", "regions-diverge", Severity.WARNING)
def regions_diverge(workspace: Workspace) -> Iterator[Violation]:
    """
    Purging a virtual stream, or deleting one of its messages, is mapped.

    ## Why is this bad?
    The message is removed from the read stream of one region and stays in all others: the regions never converge again.
    Deleting an object purges its chunks in one region only (server/jetstream_api.go, jsStreamPurgeRequest and
    jsMsgDeleteRequest; all versions).
    """
    for block in workspace.blocks:
        for api_rule in view_block(block).api:
            caught = _list_caught(api_rule, _DIVERGING)
            if caught and api_rule.renames and not _list_caught(api_rule, NEVER):
                yield Violation(
                    at=api_rule.entry.key_span,
                    message=f"{quote_names(caught)} of `{min(api_rule.renames)}` changes the read stream of only one region: the regions diverge for ever",
                    hint="remove the rule, and delete with a stored message, such as a KV delete marker",
                )


def _list_caught(rule: ApiRule, names: Iterable[str]) -> list[str]:
    """The requests among *names* that the rule sends to another stream."""
    targets = frozenset[str]().union(*(target.names for _, target in rule.targets))
    return [name for name in names if name in rule.request.names and name in targets]


@rule("VS335", "dead-reply-rule", Severity.WARNING)
def dead_reply_rule(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule renames acknowledgements or flow control of a virtual stream.

    ## Why is this bad?
    Clients acknowledge to the reply subject of the message, which names the real stream: `$JS.ACK.foo-read-west.…`. No
    client ever publishes to `$JS.ACK.foo.>`, but every publish of every client is compared with the rule
    (server/consumer.go, jsAckT; all versions). If a real stream `foo` existed, the rule would divert its
    acknowledgements.
    """
    for block in workspace.blocks:
        for entry in view_block(block).entries:
            prefix = next((reply for reply in _REPLIES if entry.source.startswith(reply)), None)
            stream = entry.source.split(SEPARATOR)[_MIN_REPLY_TOKENS - 1 : _MIN_REPLY_TOKENS] if prefix else []
            if prefix is None or not stream or effective_source(stream[0])[:1] in ("*", ">"):
                continue
            replies = [reply.model.subject for reply in entry.destinations]
            if any(reply.startswith(prefix) and not reply.startswith(f"{prefix}{stream[0]}.") for reply in replies):
                yield Violation(
                    at=entry.key_span,
                    message=f"`{entry.source}` never matches: replies name the real stream, never `{stream[0]}`",
                    hint="remove the rule: acknowledgements and flow control work without one",
                )


@rule("VS336", "catches-other-streams", Severity.ERROR)
def catches_other_streams(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule for one virtual stream also matches requests about other streams.

    ## Why is this bad?
    A `*` in place of the verb makes keywords of the API ambiguous. `$JS.API.CONSUMER.*.NEXT.>`, for a stream called
    `NEXT`, also matches `$JS.API.CONSUMER.MSG.NEXT.orders.app`: all fetches from all streams fail. This affects the
    names CREATE, DELETE, GET, INFO, LIST, NAMES, NEXT, PEER, STEPDOWN and UPDATE (server/jetstream_api.go; all
    versions), and any name if the rule has two `*` in a row.
    """
    for block in workspace.blocks:
        for api_rule in view_block(block).api:
            names = api_rule.request.streams
            stray = sorted({operation.name for operation in api_rule.request.catches_all_streams}) if names else []
            if stray:
                name = min(names)
                yield Violation(
                    at=api_rule.entry.key_span,
                    message=f"`{api_rule.entry.source}` also matches {quote_names(stray[:3])} of every other stream",
                    hint=f"`{name}` is a keyword of the API: give the virtual stream another name"
                    if name in RESERVED_NAMES
                    else "write the intended requests instead of `*`",
                )


_PROBES = (
    ("$JS.API.INFO", "every request of JetStream", "no client of the account can use JetStream"),
    ("$JS.ACK.s.c.1.1.1.1.1", "every acknowledgement", "messages are delivered again and again"),
    ("$JS.FC.s.c.x", "every reply of flow control", "push consumers and sources stop"),
    ("$KV.b.k", "every key of every key/value bucket", "no client of the account can write to a bucket"),
    ("$O.b.C.x", "every chunk of every object", "no client of the account can write to an object store"),
    ("$SYS.REQ.USER.INFO", "every request to the server itself", "clients cannot ask who they are"),
    ("_INBOX.a", "every reply", "requests of clients time out"),
    ("_INBOX.a.b", "every reply", "requests of clients time out"),
)
"""A subject that clients of any account use, what it stands for, and what fails if it is mapped."""


@rule("VS337", "system-subjects-mapped", Severity.ERROR)
def system_subjects_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule maps subjects that clients and servers need: JetStream requests, acknowledgements, replies, or buckets.

    ## Why is this bad?
    A rule maps everything that matches its source (server/client.go, selectMappedSubject; all versions). `_INBOX.>`
    matches the replies to all requests, `$JS.API.>` all JetStream requests, and `>` both. Only requests to the API of
    another domain, over a leaf node, are mapped on purpose: `$JS.hub.API.>`.
    """
    for block in workspace.blocks:
        is_handled_elsewhere = _reaches_other_accounts(workspace, block)
        for entry in view_block(block).accepted:
            source = effective_source(entry.source)
            for probe, subjects, effect in _PROBES:
                if probe.startswith("$JS") and is_handled_elsewhere:
                    continue
                if matches(probe, source) and any(
                    destination.model.subject != entry.source for destination in entry.destinations
                ):
                    yield Violation(
                        at=entry.key_span,
                        message=f"`{entry.source}` maps {subjects}, which `{probe.partition('.')[0]}` subjects are: {effect}",
                        hint="map only the subjects of your own streams, such as `orders.>`",
                    )
                    break


def _reaches_other_accounts(workspace: Workspace, block: MappingsBlock) -> bool:
    """Whether the account imports services or crosses leaf nodes, so that mapped requests may be answered elsewhere."""
    for server in workspace.servers:
        if any(mapping.key_span == block.key_span for mapping in server.mappings):
            account = next((account for account in server.accounts if account.name == block.account), None)
            if account is not None and account.conf.get_folded("imports") is not None:
                return True
            if server.leafnodes is not None:
                return True
    return block.form is MappingForm.CLAIMS
