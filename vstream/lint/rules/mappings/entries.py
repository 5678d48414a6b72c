"""A mappings block as rules see it: the effective entries, and the API request of each. Computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from vstream.findings import Span
from vstream.lint.rule import Violation
from vstream.lint.rules.mappings import api
from vstream.lint.rules.mappings.api import Request
from vstream.lint.workspace import MappingDestination, MappingEntry, MappingsBlock, Workspace
from vstream.subjects.algebra import PARTIAL_WILDCARD, SEPARATOR, SubjectTrie
from vstream.subjects.compile_mapping import MappingError, MappingErrorKind
from vstream.subjects.functions import TransformError, parse_token
from vstream.subjects.transform import effective_source

MAX_FINDINGS = 200
"""The maximum number of findings of one kind for a block."""
_MAX_CACHED = 256


@dataclass(frozen=True, slots=True, eq=False)
class ApiRule:
    """An entry whose source is an API subject, with those of its destinations that are API subjects."""

    entry: MappingEntry
    request: Request
    targets: tuple[tuple[MappingDestination, Request], ...]

    @property
    def renames(self) -> frozenset[str]:
        """The streams that it renames: virtual ones."""
        return frozenset(stream for stream in self.request.streams if self._renames(stream))

    def _renames(self, stream: str) -> bool:
        return any(target.streams and stream not in target.streams for _, target in self.targets)


@dataclass(frozen=True, slots=True, eq=False)
class BlockView:
    """What rules share about one block."""

    entries: tuple[MappingEntry, ...]
    """The effective entries: the last of each source, in the order written."""
    accepted: tuple[MappingEntry, ...]
    """The entries that the server accepts."""
    faulty: frozenset[str]
    """The sources of entries that the server cannot read."""
    api: tuple[ApiRule, ...]
    targets: tuple[tuple[MappingDestination, Request], ...]
    """Every destination that is an API subject."""


@lru_cache(maxsize=_MAX_CACHED)
def view_block(block: MappingsBlock) -> BlockView:
    """What rules share about *block*: its effective entries, and their API requests."""
    entries = tuple({entry.source: entry for entry in block.entries}.values())
    refused = {error.mapping.source for error in block.table.errors}
    faulty = frozenset(entry.source for entry in entries if any(entry.list_faults()))
    refused |= faulty
    rules: list[ApiRule] = []
    everything: list[tuple[MappingDestination, Request]] = []
    for entry in entries:
        request = api.parse_request(entry.source)
        read = [(destination, api.parse_request(destination.model.subject)) for destination in entry.destinations]
        targets = [(destination, target) for destination, target in read if target is not None]
        everything += targets
        if request is not None:
            rules.append(ApiRule(entry, request, tuple(targets)))
    return BlockView(
        entries=entries,
        accepted=tuple(entry for entry in entries if entry.source not in refused),
        faulty=faulty,
        api=tuple(rules),
        targets=tuple(everything),
    )


@lru_cache(maxsize=_MAX_CACHED)
def index_sources(block: MappingsBlock) -> tuple[SubjectTrie, tuple[MappingEntry, ...]]:
    """The entries that the server accepts, and an index of their sources."""
    entries = view_block(block).accepted
    return SubjectTrie(effective_source(entry.source) for entry in entries), entries


def find_errors(
    workspace: Workspace,
    kind: MappingErrorKind,
    hint: str,
    locate: Callable[[MappingsBlock, MappingError], Span] = MappingsBlock.locate_error,
) -> Iterator[Violation]:
    """Every error of *kind*, with the words of the server that refuses it, where *locate* says."""
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind is kind:
                message = with_server_wording(error.message, error.server_message)
                yield Violation(at=locate(block, error), message=message, hint=hint)


def pattern(destination: str) -> str | None:
    """
    The subjects that *destination* can become, as a pattern.

    None if it has no subject, or if a function can make several tokens of one.
    """
    if "{{" not in destination and "$" not in destination:
        return destination or None
    parts = []
    for token in destination.split(SEPARATOR):
        call = parse_token(token) if token[:1] in ("{", "$") else None
        if isinstance(call, TransformError) or (call is not None and api.splits(call)):
            return None
        parts.append(token if call is None else PARTIAL_WILDCARD)
    return SEPARATOR.join(parts)


def sum_weights(entry: MappingEntry) -> Mapping[str, int]:
    """The sum of weights by cluster, "" for destinations without one."""
    totals: dict[str, int] = {}
    for destination in entry.destinations:
        cluster = destination.model.cluster or ""
        totals[cluster] = totals.get(cluster, 0) + destination.model.weight
    return totals


def has_default(entry: MappingEntry) -> bool:
    """Whether *entry* says what happens at clusters that it does not name."""
    return any(destination.model.cluster is None for destination in entry.destinations)


def with_server_wording(message: str, wording: str) -> str:
    """*message*, and beside it what the server prints."""
    return f"{message} (nats-server: {wording.strip()})" if wording else message
