"""
Where a message goes beyond its account: an exact model of imports and exports.

Source: `server/accounts.go` (AddServiceImportWithClaim, AddMappedStreamImportWithClaim) and `server/client.go`
(processServiceImport, addShadowSubscriptions).

A service import is a subscriber of the importing account: it takes what is published under its local subject to the
exporting account, whose mappings then apply, and whose service imports follow. A stream import lets subscribers of the
importing account see what clients of the exporting account publish, and not what a service import brings there. No
mapping of the importing account applies to that, and no import passes it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import Enum

from vstream.findings import Span
from vstream.subjects.algebra import (
    PARTIAL_WILDCARD,
    SEPARATOR,
    SubjectTrie,
    has_wildcards,
    is_deliverable,
    is_subset,
    matches,
    overlaps,
)
from vstream.subjects.functions import TransformError
from vstream.subjects.resolve import MappingTable, compile_mappings
from vstream.subjects.transform import SubjectTransform, numbered_wildcards
from vstream.value_class import value_class

GLOBAL_ACCOUNT = "$G"
"""The account of a configuration without accounts."""
_PERCENT = 100


class ImportKind(Enum):
    """Which way messages go: services to the exporting account, streams to the importing one."""

    SERVICE = "service"
    STREAM = "stream"


@value_class
class AccountLink:
    """
    An import that the server accepts.

    *exported* is the subject in the account *exporter*, *local* that in the account *importer*, with wildcards.
    """

    kind: ImportKind
    importer: str
    exporter: str
    exported: str
    local: str
    transform: SubjectTransform | None
    """From the account where messages are published to the other one; None where the subject stays."""
    span: Span | None = field(default=None, compare=False)

    @property
    def source(self) -> str:
        """The subject in the account that messages come from."""
        return self.local if self.kind is ImportKind.SERVICE else self.exported

    @property
    def destination(self) -> str:
        """The subject in the account that messages go to."""
        return self.exported if self.kind is ImportKind.SERVICE else self.local

    def carry(self, subject: str) -> str | None:
        """What the literal *subject* is in the other account; None where the import does not take it."""
        if not matches(subject, self.source):
            return None
        if self.transform is None:
            return subject if has_wildcards(self.destination) else self.destination
        return self.transform.expand(subject.split(SEPARATOR)).subject

    def carry_pattern(self, pattern: str) -> str | None:
        """What subjects of *pattern* can be in the other account; None where the import takes none of them."""
        if not overlaps(pattern, self.source):
            return None
        if not is_subset(pattern, self.source):
            return self.destination
        if self.transform is None:
            return pattern if has_wildcards(self.destination) else self.destination
        return self.transform.expand(pattern.split(SEPARATOR)).subject


@value_class
class ExportedSubject:
    """What *account* lets others import."""

    kind: ImportKind
    account: str
    subject: str
    span: Span | None = field(default=None, compare=False)


@value_class
class AccountArrival:
    """
    *percent* of the messages are seen in *account* under *subject*, by way of *links*.

    *percent* is None where the server picks one of several rules at random.
    """

    account: str
    subject: str
    percent: float | None
    links: tuple[AccountLink, ...]


def link_accounts(
    kind: ImportKind,
    *,
    importer: str,
    exporter: str,
    exported: str,
    to: str | None = None,
    prefix: str | None = None,
    span: Span | None = None,
) -> AccountLink | None:
    """The import of *exported*; *to* or *prefix* say what it is in the importing account. None if it is refused."""
    local = to or exported
    if prefix:
        local = f"{prefix.removesuffix(SEPARATOR)}{SEPARATOR}{local}"
    pattern = _as_pattern(local)
    transform = None
    if local != exported and has_wildcards(exported):
        parsed = SubjectTransform.parse(exported, numbered_wildcards(local), strict=True)
        if kind is ImportKind.SERVICE and not isinstance(parsed, TransformError):
            parsed = SubjectTransform.parse(pattern, _reverse_destination(exported, numbered_wildcards(local)))
        if isinstance(parsed, TransformError):
            return None
        transform = parsed
    return AccountLink(
        kind=kind,
        importer=importer,
        exporter=exporter,
        exported=exported,
        local=pattern,
        transform=transform,
        span=span,
    )


class AccountFlow:
    """The accounts of one server: their mappings, and the imports between them."""

    __slots__ = ("_by_source", "exports", "links", "tables")

    def __init__(
        self, tables: dict[str, MappingTable], links: Iterable[AccountLink], exports: Iterable[ExportedSubject] = ()
    ) -> None:
        self.exports = tuple(exports)
        self.tables = tables
        self.links = tuple(links)
        groups: dict[str, list[AccountLink]] = {}
        for link in self.links:
            groups.setdefault(link.importer if link.kind is ImportKind.SERVICE else link.exporter, []).append(link)
        self._by_source = {name: (group, SubjectTrie(link.source for link in group)) for name, group in groups.items()}
        """By account, the links that take messages from it, and an index of their sources: there may be thousands."""

    def arrivals(self, account: str, subject: str, cluster: str | None = None) -> Iterator[AccountArrival]:
        """Who else sees what has the literal *subject* in *account*, after its mappings, on a server of *cluster*."""
        yield from self._follow(AccountArrival(account=account, subject=subject, percent=_PERCENT, links=()), cluster)

    def can_leave(self, account: str, subject: str) -> bool:
        """Whether an import may take some of *subject*, which may have wildcards, out of *account*."""
        return any(True for _ in self._links_from(account, subject))

    def unused_exports(self, account: str) -> Iterator[ExportedSubject]:
        """What *account* exports and no other account imports."""
        imported = [link for link in self.links if link.exporter == account]
        index = SubjectTrie(link.exported for link in imported)
        for export in (export for export in self.exports if export.account == account):
            near = (imported[number] for number in index.overlapping(export.subject))
            if not any(link.kind is export.kind and is_subset(link.exported, export.subject) for link in near):
                yield export

    def reachable_by_services(self, account: str, pattern: str) -> list[tuple[str, str]]:
        """
        Each account and pattern that service imports bring messages with *pattern* in *account* to.

        Mappings of exporting accounts are not followed here.
        """
        places = [(account, pattern)]
        for importer, subjects in places:
            for link in self._links_from(importer, subjects):
                carried = link.carry_pattern(subjects) if link.kind is ImportKind.SERVICE else None
                if carried is not None and (link.exporter, carried) not in places:
                    places.append((link.exporter, carried))
        return places[1:]

    def _links_from(self, account: str, subject: str) -> Iterator[AccountLink]:
        """The links that may take some of *subject*, which may have wildcards, from *account*, in the order written."""
        links, sources = self._by_source.get(account, ((), SubjectTrie(())))
        for number in sources.overlapping(subject):
            yield links[number]

    def _follow(self, message: AccountArrival, cluster: str | None) -> Iterator[AccountArrival]:
        for link in self._links_from(message.account, message.subject):
            if link.kind is ImportKind.STREAM and message.links:
                continue  # What a service import brought is not exported again.
            subject = link.carry(message.subject)
            if subject is None or link in message.links:  # The server refuses cycles.
                continue
            links = (*message.links, link)
            if link.kind is ImportKind.STREAM:
                yield AccountArrival(account=link.importer, subject=subject, percent=message.percent, links=links)
                continue
            for arrival in self._apply_mappings(link.exporter, subject, message.percent, links, cluster):
                yield arrival
                yield from self._follow(arrival, cluster)

    def _apply_mappings(
        self, account: str, subject: str, percent: float | None, links: tuple[AccountLink, ...], cluster: str | None
    ) -> Iterator[AccountArrival]:
        """What the mappings of *account* make of a message that a service import brings."""
        table = self.tables.get(account) or compile_mappings(())
        if not is_deliverable(subject):
            return
        for mapped_subject, share in table.resolve(subject, cluster).share_out(percent):
            yield AccountArrival(account=account, subject=mapped_subject, percent=share, links=links)


def _as_pattern(local: str) -> str:
    """*local* with `*` for each `$1`, as the server subscribes to it."""
    tokens = local.split(SEPARATOR)
    return SEPARATOR.join(PARTIAL_WILDCARD if _parse_number(token) else token for token in tokens)


def _parse_number(token: str) -> int | None:
    digits = token.removeprefix("$")
    return int(digits) if digits != token and digits.isdecimal() else None


def _reverse_destination(exported: str, local: str) -> str:
    """*exported* with the wildcards of *local*, where they have numbers, in the places that these numbers name."""
    numbers = [number for number in map(_parse_number, local.split(SEPARATOR)) if number]
    tokens = exported.split(SEPARATOR)
    wildcards = [position for position, token in enumerate(tokens) if token == PARTIAL_WILDCARD]
    for local_number, exported_number in enumerate(numbers, start=1):
        tokens[wildcards[exported_number - 1]] = f"${local_number}"
    return SEPARATOR.join(tokens)
