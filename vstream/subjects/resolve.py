"""
What a publish becomes: an exact model of an account's subject mappings.

Source: `server/accounts.go` (AddWeightedMappings, selectMappedSubject) and
`server/opts.go` (parseAccountMappings, parseAccountMapDest).

A mapping is applied once, where a client or leaf node publishes. Rules live in
Go maps before the account gets them, so their order, and with it the choice
among several rules that match, is random at each start and reload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from math import exp, log

from vstream.subjects.algebra import SEPARATOR, SubjectTrie, is_deliverable, is_literal
from vstream.subjects.compile_mapping import CompiledMapping, MappingError, Route, compile_mapping
from vstream.subjects.functions import Function
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.subjects.transform import Expansion, effective_source
from vstream.value_class import value_class

_MEASURED_COST_US = ((20, 1.55), (200, 13.0), (2_000, 105.0), (20_000, 2_429.0), (42_000, 9_346.0))
_COST_WITHOUT_RULES_US = 0.21
_PERCENT = 100


class OutcomeKind(Enum):
    """What becomes of a message."""

    MAPPED = "mapped"
    """It goes to another subject."""
    IDENTITY = "identity"
    """It keeps its subject: no rule, the remainder of the weights, or a destination that gives the same."""
    DROPPED = "dropped"
    """Nobody gets it: the weights leave a gap, or the new subject has an empty token."""
    PANICS = "panics"
    """The server dies: the destination has no subject."""

    @property
    def is_lost(self) -> bool:
        """Whether nobody gets it."""
        return self in {OutcomeKind.DROPPED, OutcomeKind.PANICS}


@value_class
class Outcome:
    """
    One thing that can become of a message, in *probability_percent* of publishes.

    *destination* is None where no written destination leads here: no rule, the
    remainder, a gap in the weights.
    """

    probability_percent: int
    kind: OutcomeKind
    expansion: Expansion
    destination: Destination | None = None

    @property
    def subject(self) -> str:
        """The new subject; tokens that the server draws by lot are `*`; empty where there is none."""
        return self.expansion.subject


@value_class
class Candidate:
    """
    A rule that the server can choose, and its outcomes, which add up to 100 percent.

    *mapping* is None where no rule matches. *is_first* says that this holds only
    if the rule happens to be the account's first (or not the first): with a
    literal source, `partition` then hashes nothing instead of the subject.
    """

    mapping: MappingRule | None
    outcomes: tuple[Outcome, ...]
    is_first: bool | None = None


@value_class
class Resolution:
    """Everything that a publish to *subject* can become where the server's cluster is *cluster*."""

    subject: str
    cluster: str | None
    candidates: tuple[Candidate, ...]

    @property
    def is_ambiguous(self) -> bool:
        """Whether the next start or reload can choose differently."""
        return len(self.candidates) > 1

    @property
    def outcomes(self) -> Iterator[Outcome]:
        """The outcomes of all candidates."""
        return (outcome for candidate in self.candidates for outcome in candidate.outcomes)

    def admits(self, delivered: str | None) -> bool:
        """Whether a subscriber to `>` can see the message under this subject, None for not at all."""
        if delivered is None:
            return any(outcome.kind.is_lost for outcome in self.outcomes)
        return any(not outcome.kind.is_lost and outcome.expansion.admits(delivered) for outcome in self.outcomes)

    def share_out(self, percent: float | None) -> Iterator[tuple[str, float | None]]:
        """The subjects that *percent* of the messages get, each with its share; None where chance picks the rule."""
        is_exact = percent is not None and not self.is_ambiguous
        for outcome in self.outcomes:
            if not outcome.kind.is_lost:
                share = (percent or 0) * outcome.probability_percent / _PERCENT if is_exact else None
                yield outcome.subject, share


class MappingTable:
    """
    The rules of one account, indexed.

    *mappings* are the rules that work, *errors* what is wrong with the others
    (and with those that panic), *overridden* the rules that the server forgets
    because a later one has the same source.
    """

    __slots__ = ("_compiled", "_trie", "errors", "overridden")

    def __init__(
        self,
        compiled: Sequence[CompiledMapping],
        *,
        errors: Sequence[MappingError] = (),
        overridden: Sequence[MappingRule] = (),
    ) -> None:
        self.errors = tuple(errors)
        self.overridden = tuple(overridden)
        self._compiled = tuple(compiled)
        self._trie = SubjectTrie(effective_source(rule.mapping.source) for rule in self._compiled)

    @property
    def mappings(self) -> tuple[MappingRule, ...]:
        """The rules that work, in the order given."""
        return tuple(rule.mapping for rule in self._compiled)

    @property
    def compiled_mappings(self) -> tuple[CompiledMapping, ...]:
        """The rules that work, made ready, in the order given."""
        return self._compiled

    def overlapping(self) -> Iterator[tuple[MappingRule, MappingRule]]:
        """Each pair of rules between which the server chooses at random for some subject."""
        for left, right in self._trie.overlapping_pairs():
            yield self._compiled[left].mapping, self._compiled[right].mapping

    def resolve(self, subject: str, cluster: str | None = None) -> Resolution:
        """
        Everything that a publish to the literal *subject* can become in *cluster*.

        None is a server without a cluster name. Raises ValueError for a subject
        that is not literal.
        """
        if not is_literal(subject):
            raise ValueError(f"`{subject}` is not a literal subject")
        candidates: list[Candidate] = []
        for number in self._trie.matching(subject):
            candidates.extend(self._list_candidates(self._compiled[number], subject, cluster or ""))
        if not candidates:
            unmapped = Outcome(
                probability_percent=_PERCENT, kind=OutcomeKind.IDENTITY, expansion=Expansion(subject=subject)
            )
            candidates.append(Candidate(mapping=None, outcomes=(unmapped,)))
        return Resolution(subject=subject, cluster=cluster, candidates=tuple(candidates))

    def _list_candidates(self, rule: CompiledMapping, subject: str, cluster: str) -> Iterator[Candidate]:
        routes = rule.routes.get(cluster, rule.routes[""])
        tokens = subject.split(SEPARATOR)
        hashes_by_order = rule.mapping.source == subject and any(_is_partition(route) for route in routes)
        if not hashes_by_order:
            yield Candidate(mapping=rule.mapping, outcomes=_find_outcomes(routes, subject, tokens))
            return
        # The server compares literal sources before it cuts the subject into
        # tokens: for the first rule of the account there are none to hash.
        yield Candidate(mapping=rule.mapping, outcomes=_find_outcomes(routes, subject, ()), is_first=True)
        if len(self._compiled) > 1:
            yield Candidate(mapping=rule.mapping, outcomes=_find_outcomes(routes, subject, tokens), is_first=False)


def compile_mappings(mappings: Iterable[MappingRule]) -> MappingTable:
    """
    The table that an account makes of *mappings*.

    As in a configuration file, the last of several mappings with one source
    wins; the others are not looked at. Rules with errors are left out.
    """
    winners: dict[str, MappingRule] = {}
    overridden: list[MappingRule] = []
    for mapping in mappings:
        if mapping.source in winners:
            overridden.append(winners[mapping.source])
        winners[mapping.source] = mapping
    compiled: list[CompiledMapping] = []
    errors: list[MappingError] = []
    for mapping in winners.values():
        rule, problems = compile_mapping(mapping)
        errors.extend(problems)
        if rule is not None:
            compiled.append(rule)
    return MappingTable(compiled, errors=errors, overridden=overridden)


def publish_cost_us(rule_count: int) -> float:
    """
    Microseconds that *rule_count* rules cost the server for each message a client publishes in the account.

    The rules are scanned one by one. Measured with nats-server 2.15.1 on one
    core at 0, 20, 200, 2,000, 20,000 and 42,000 rules; in between, and beyond,
    a straight line on a log-log scale (below 20 rules on a linear one).
    """
    counts = [count for count, _ in _MEASURED_COST_US]
    smallest, first_us = _MEASURED_COST_US[0]
    if rule_count <= smallest:
        return _COST_WITHOUT_RULES_US + (first_us - _COST_WITHOUT_RULES_US) * max(rule_count, 0) / smallest
    upper = min(bisect_left(counts, rule_count), len(counts) - 1)
    (left, left_us), (right, right_us) = _MEASURED_COST_US[upper - 1 : upper + 1]
    slope = log(right_us / left_us) / log(right / left)
    return left_us * exp(slope * log(rule_count / left))


def _is_partition(route: Route) -> bool:
    steps = route.transform.steps if route.transform else ()
    return route.weight > 0 and any(not isinstance(s, str) and s.function is Function.PARTITION for s in steps)


def _find_outcomes(routes: Sequence[Route], subject: str, tokens: Sequence[str]) -> tuple[Outcome, ...]:
    """The outcomes of one rule at one cluster. The server draws 0…99 and takes the first cumulated weight above it."""
    outcomes = [_make_outcome(route, subject, tokens) for route in routes if route.weight]
    gap = _PERCENT - sum(route.weight for route in routes)
    if gap:
        nothing = Expansion(subject="")
        outcomes.append(Outcome(probability_percent=gap, kind=OutcomeKind.DROPPED, expansion=nothing))
    return tuple(outcomes)


def _make_outcome(route: Route, subject: str, tokens: Sequence[str]) -> Outcome:
    if route.transform is None:
        kind, expansion = OutcomeKind.PANICS, Expansion(subject="")
    else:
        expansion = route.transform.expand(tokens)
        if not is_deliverable(expansion.subject):
            kind = OutcomeKind.DROPPED
        elif expansion.subject == subject and not expansion.draws:
            kind = OutcomeKind.IDENTITY
        else:
            kind = OutcomeKind.MAPPED
    return Outcome(probability_percent=route.weight, kind=kind, expansion=expansion, destination=route.destination)
