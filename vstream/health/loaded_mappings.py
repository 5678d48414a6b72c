"""Whether servers have loaded the mapping rules and accounts of the topology, and which operations depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from vstream.errors import VstreamError
from vstream.formatting import summarize_names
from vstream.health.snapshot import ServerSnapshot, Snapshot
from vstream.plan.model import ACCOUNT, RULE, USERS, RuleChange, kind_of
from vstream.plan.rules import OwnRules, diff_rules, list_account_entries, list_rule_entries
from vstream.subjects.algebra import overlaps
from vstream.topology.bundle import Bundle
from vstream.topology.model import Security, Topology, VirtualStream
from vstream.topology.naming import REGION_PREFIX
from vstream.value_class import value_class

_SHARED = frozenset({"$JS.API.>", "$JS.ACK.>", "$JS.API.DIRECT.GET.>", "$JS.API.CONSUMER.MSG.NEXT.>", "_INBOX.>"})
"""Subjects of rules and entries that all streams share."""


class MappedOperation(Enum):
    """What a client does by a virtual name, through a mapping rule."""

    PUBLISH = "publish"
    DIRECT_GET = "direct_get"
    CONSUME = "consumers"


@value_class
class MappingDifference:
    """Entries that the same servers have not loaded as the topology says."""

    servers: tuple[str, ...]
    sources: tuple[str, ...]
    """Sources of mapping rules, and keys of entries of accounts."""
    is_partial: bool
    """Whether other servers have loaded them."""
    matching: int
    """How many other servers have."""

    @property
    def noun(self) -> str:
        """`3 rules`, or `1 entry` where accounts are among them."""
        is_rules = {kind_of(source) for source in self.sources} == {RULE}
        singular, plural = ("rule", "rules") if is_rules else ("entry", "entries")
        return f"{len(self.sources):,} {singular if len(self.sources) == 1 else plural}"

    @property
    def evidence(self) -> str:
        """What was seen, for a person."""
        unlike = f", unlike the other {self.matching}" if self.is_partial else ""
        verb = "is" if len(self.sources) == 1 else "are"
        return f"{self.noun} {verb} not loaded as the topology says{unlike}: {summarize_names(list(self.sources))}"


@value_class
class ForeignToken:
    """In operator mode, tokens that servers have loaded and that differ from the topology's."""

    accounts: tuple[str, ...]
    evidence: str


@value_class
class BrokenEntries:
    """The subjects of entries that are not loaded as the topology says."""

    subjects: frozenset[str] = frozenset()
    wide: tuple[str, ...] = ()
    """Those that may concern any stream."""
    lacks_account: bool = False

    def break_for(self, stream: VirtualStream, operation: MappedOperation) -> bool:
        """Whether *operation* on *stream* fails where these are loaded."""
        used = _used_subjects(stream, operation)
        return (
            self.lacks_account
            or not self.subjects.isdisjoint(used)
            or any(overlaps(subject, used_subject) for subject in self.wide for used_subject in used)
        )


@value_class
class LoadedMappings:
    """How what servers have loaded compares with what the topology renders to."""

    changes: tuple[RuleChange, ...] = ()
    """Everything that some server has not loaded as the topology says."""
    servers: frozenset[str] = frozenset()
    """The servers whose rules were read and compared."""
    foreign_tokens: tuple[ForeignToken, ...] = ()
    """Those of the changes that are tokens: a finding of its own."""
    problem: str | None = None
    """Why nothing could be compared, for any server."""

    def is_ok(self, server: str) -> bool | None:
        """Whether *server* has loaded what the topology says; None where that is not known."""
        if server not in self.servers:
            return None
        return not any(server in change.servers for change in self.changes)

    def broken_on(self, servers: Iterable[str]) -> BrokenEntries:
        """The entries that fail for clients of any of *servers*."""
        names = set(servers)
        changes = [change for change in self.changes if not names.isdisjoint(change.servers) and change.kind != USERS]
        by_subject = [(_client_subject(change.source), change) for change in changes]
        return BrokenEntries(
            subjects=frozenset(name for name, _ in by_subject),
            # What the topology has says itself which stream it is for. Somebody else's rule may be for any of them.
            wide=tuple(name for name, change in by_subject if change.after is None or name in _SHARED),
            lacks_account=any(change.kind == ACCOUNT for change in changes),
        )

    def differences(self) -> tuple[MappingDifference, ...]:
        """The changes but for foreign tokens, one for each set of servers."""
        servers_of: dict[str, set[str]] = {}
        for change in self.changes:
            if not (self.foreign_tokens and change.kind == USERS):
                servers_of.setdefault(change.source, set()).update(change.servers)
        sources_of: dict[tuple[str, ...], list[str]] = {}
        for source, servers in servers_of.items():
            sources_of.setdefault(tuple(sorted(servers)), []).append(source)
        return tuple(self._difference(servers, sources) for servers, sources in sources_of.items())

    def _difference(self, servers: tuple[str, ...], sources: Sequence[str]) -> MappingDifference:
        return MappingDifference(
            servers=servers,
            sources=tuple(sources),
            is_partial=set(servers) < self.servers,
            matching=len(self.servers) - len(servers),
        )


def compare_mappings(topology: Topology, bundle: Bundle | VstreamError, snapshot: Snapshot) -> LoadedMappings:
    """Compare what servers have loaded with *bundle*; an error instead of it says why there is none."""
    if isinstance(bundle, VstreamError):
        return LoadedMappings(problem=bundle.message)
    expected = {**list_rule_entries(bundle.mappings), **list_account_entries(bundle.accounts)}
    loaded = {}
    for server in snapshot.servers:
        if server.rules is not None:
            loaded[server.name] = _without_other_clusters(topology, expected, server.rules)
    changes = tuple(diff_rules(expected, loaded, OwnRules(bundle.streams, {})))
    tokens = [change for change in changes if change.kind == USERS and topology.security is Security.OPERATOR]
    return LoadedMappings(changes=changes, servers=frozenset(loaded), foreign_tokens=tuple(map(_foreign_token, tokens)))


def _without_other_clusters(
    topology: Topology, expected: Mapping[str, tuple[str, ...]], rules: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """
    *rules* but for destinations in clusters that *topology* does not have.

    A server goes by those of its own cluster. Where more regions are deployed than the topology names, clients of
    its own miss nothing, and `plan` has the difference.
    """
    clusters = {"*", *topology.clusters}
    relevant = dict(rules)
    for source in expected.keys() & rules.keys():
        if kind_of(source) == RULE:
            relevant[source] = tuple(entry for entry in rules[source] if entry.partition(" ")[0] in clusters)
    return relevant


def _foreign_token(change: RuleChange) -> ForeignToken:
    """The foreign tokens in *change*, which lists each with its account, its content, and its signer."""
    expected = dict(entry.split(".", 1) for entry in change.after or ())
    loaded = dict(entry.split(".", 1) for entry in change.before or ())
    names = sorted(name for name, token in expected.items() if loaded.get(name) != token)
    own_signers = {token.rpartition(".")[2] for token in expected.values()}
    signers = sorted({token.rpartition(".")[2] for token in loaded.values()} - own_signers)
    by = f"signed by {summarize_names(signers)}" if signers else "signed by the topology's own key"
    return ForeignToken(
        accounts=tuple(names or sorted(loaded.keys() - expected.keys())),
        evidence=f"{summarize_names(list(change.servers))}: {by}, and not what the topology says",
    )


def list_serving(topology: Topology, region: str, servers: Iterable[ServerSnapshot]) -> tuple[ServerSnapshot, ...]:
    """The *servers* to which clients of *region* connect: neither members of the stretch cluster nor hubs."""
    names = {
        seat.server.name for seat in topology.seats if seat.region == region and not (seat.is_stretch or seat.is_hub)
    }
    return tuple(server for server in servers if server.name in names)


def _used_subjects(stream: VirtualStream, operation: MappedOperation) -> tuple[str, ...]:
    """Where a client that means the virtual stream sends its requests."""
    name = stream.name
    match operation:
        case MappedOperation.PUBLISH:
            return stream.subjects
        case MappedOperation.DIRECT_GET:
            return (f"$JS.API.DIRECT.GET.{name}", f"$JS.API.DIRECT.GET.{name}.>")
        case MappedOperation.CONSUME:
            return (f"$JS.API.CONSUMER.MSG.NEXT.{name}.*", f"$JS.API.CONSUMER.*.{name}.>")


def _client_subject(source: str) -> str:
    """The subject of a rule or an entry, as clients use it: without the region that it leads to."""
    subject = source.rpartition(" ")[2]
    if subject.startswith(f"{REGION_PREFIX}."):
        return subject.removeprefix(f"{REGION_PREFIX}.").partition(".")[2]
    return subject
