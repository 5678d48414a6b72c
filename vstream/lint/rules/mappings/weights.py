"""Weights, subjects that two rules map, and the cost of rules for every publish."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from vstream.findings import Edit, Related, Severity, Span
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.mappings.entries import (
    MAX_FINDINGS,
    find_errors,
    index_sources,
    pattern,
    sum_weights,
    view_block,
    with_server_wording,
)
from vstream.lint.workspace import MappingDestination, MappingEntry, MappingsBlock, ServerConf, Workspace
from vstream.subjects.algebra import PARTIAL_WILDCARD
from vstream.subjects.compile_mapping import MappingError, MappingErrorKind
from vstream.subjects.resolve import publish_cost_us
from vstream.topology.naming import OWN_API

_PERCENT = 100


def _locate_weight(block: MappingsBlock, error: MappingError) -> Span:
    """The weight that *error* is about."""
    destination = block.find_destination(error)
    return destination.weight.span if destination and destination.weight else block.locate_error(error)


@rule("VS311", "weight-out-of-range", Severity.ERROR)
def weight_out_of_range(workspace: Workspace) -> Iterator[Violation]:
    """
    A weight is not within 0 and 100.

    ## Why is this bad?
    The server does not start, and a reload keeps the old rules (server/opts.go,
    parseAccountMapDest; all versions).
    """
    hint = "write a percentage from 0% to 100%"
    yield from find_errors(workspace, MappingErrorKind.INVALID_WEIGHT, hint, _locate_weight)


@rule("VS312", "weights-over-100", Severity.ERROR)
def weights_over_100(workspace: Workspace) -> Iterator[Violation]:
    """
    The weights of one cluster add up to more than 100.

    ## Why is this bad?
    The server does not start, and a reload keeps the old rules
    (server/accounts.go, AddWeightedMappings; all versions). Destinations without a cluster are added up separately.
    """
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind is MappingErrorKind.TOTAL_WEIGHT and error.mapping.source not in view_block(block).faulty:
                entry = block.entry(error.mapping)
                cluster = (error.destination.cluster if error.destination else None) or ""
                yield Violation(
                    at=_locate_weight(block, error),
                    message=with_server_wording(error.message, error.server_message),
                    hint=f"they add up to {sum_weights(entry)[cluster]} %: make the total 100 %",
                )


@rule("VS313", "weights-below-100", Severity.WARNING)
def weights_below_100(workspace: Workspace) -> Iterator[Violation]:
    """
    The weights of one cluster add up to less than 100.

    ## Why is this bad?
    The remaining messages keep their subject, as without a rule: in a virtual stream they are not stored, and a request
    by the virtual name finds no stream. At 60 %, 394 of 1,000 messages were not mapped (server/accounts.go,
    AddWeightedMappings; all versions). To leave a share unmapped on purpose in a rule without clusters, add the source
    as a destination for the rest. A rule with a single destination and a weight below 100 is probably a canary rollout:
    the finding is then a note.
    """
    for block in workspace.blocks:
        for entry in view_block(block).accepted:
            if any(destination.model.subject == entry.source for destination in entry.destinations):
                continue
            totals = sum_weights(entry)
            if all(total >= _PERCENT for total in totals.values()):
                continue
            by_cluster: defaultdict[str, list[MappingDestination]] = defaultdict(list)
            for destination in entry.destinations:
                by_cluster[destination.model.cluster or ""].append(destination)
            is_scoped = len(by_cluster) > ("" in by_cluster)
            for cluster, total in totals.items():
                if total < _PERCENT:
                    yield _too_little(entry, cluster, total, by_cluster[cluster], is_scoped=is_scoped)


def _too_little(
    entry: MappingEntry, cluster: str, total: int, destinations: list[MappingDestination], *, is_scoped: bool
) -> Violation:
    where = f" in cluster `{cluster}`" if cluster else ""
    weight = destinations[-1].weight
    # A share of 0 may switch a cluster off, and a share everywhere may try something new: only the user knows.
    is_slip = len(destinations) == 1 and weight is not None and cluster and total
    is_trial = len(entry.destinations) == 1 and not is_scoped and total
    rest = f'{{destination: "{entry.source}", weight: {_PERCENT - total}%}}'
    return Violation(
        at=weight.span if weight else destinations[-1].locate(),
        message=f"the weights{where} add up to {total} %: {_PERCENT - total} % of `{entry.source}` is not mapped",
        hint="make the total 100 %" + ("" if is_scoped else f", or keep the rest on its subject: `{rest}`"),
        fix=(Edit(span=weight.span, text="100%"),) if is_slip and weight else (),
        severity=Severity.NOTE if is_trial else None,
    )


@rule("VS314", "rest-is-dropped", Severity.WARNING)
def rest_is_dropped(workspace: Workspace) -> Iterator[Violation]:
    """
    A source is a destination of its own rule, and the weights of a cluster do not add up to 100: the rest is dropped.

    ## Why is this bad?
    Normally, messages outside the weights keep their subject. If one destination equals the source, in any cluster,
    this is disabled for all clusters: the rest is dropped, without an error to the publisher. Clusters that the rule
    does not name lose everything (server/accounts.go, AddWeightedMappings, "meaning they want loss"; all versions).
    """
    clusters = frozenset(workspace.cluster_names)
    for block in workspace.blocks:
        for entry in view_block(block).accepted:
            unchanged = next(
                (destination for destination in entry.destinations if destination.model.subject == entry.source), None
            )
            if unchanged is None:
                continue
            named = entry.clusters
            totals = {"": 0, **sum_weights(entry)}
            if clusters and clusters <= named:
                del totals[""]
            short = [(cluster, total) for cluster, total in sorted(totals.items(), reverse=True) if total < _PERCENT]
            elsewhere = "in other clusters" if named else "everywhere"
            lost = [f"{_PERCENT - total} % {f'in cluster `{name}`' if name else elsewhere}" for name, total in short]
            if lost:
                yield Violation(
                    at=unchanged.locate(),
                    message=f"`{entry.source}` is its own destination, so messages outside the weights are dropped: {', '.join(lost)}",
                    hint="send the rest to a destination without `cluster`, or remove this one",
                )


NOTICEABLE_US = 10.0
"""An acknowledged publish costs a server about 4 µs without rules: beyond this limit, the search for a rule
dominates."""
TOO_MUCH_US = 1_000.0
"""At most 1,000 messages per second and connection, acknowledgements included."""
_PER_SECOND = 1_000_000


@rule("VS360", "many-rules", Severity.WARNING)
def many_rules(workspace: Workspace) -> Iterator[Violation]:
    """
    An account has so many rules that the search for one costs more than the rest of a publish.

    ## Why is this bad?
    The server compares each message of each client of the account with one rule after another, including
    acknowledgements and requests that belong to no virtual stream (server/accounts.go, selectMappedSubject; all
    versions). Measured with 2.15.1: 1.6 µs at 20 rules, 13 µs at 200, 105 µs at 2,000, 2.4 ms at 20,000.

    Without rules a message costs 0.2 µs, and a publish with its acknowledgement about 4 µs. The warning begins where
    the search takes 10 µs, at 151 rules: one connection is limited to 100,000 messages per second. From 1 ms on, at
    about 10,400 rules, it is an error: at 42,000 rules a message took 9.3 ms, a start 14 s and a reload 10.5 s.
    """
    for block in workspace.blocks:
        count = len(view_block(block).entries)
        cost = publish_cost_us(count)
        if cost >= NOTICEABLE_US:
            duration = f"{cost:.0f} µs" if cost < _PER_SECOND / 1_000 else f"{cost / 1_000:.1f} ms"
            yield Violation(
                at=block.key_span,
                message=f"{count:,} rules cost every message of every client of the account about {duration}: at most {_round_to_two_digits(_PER_SECOND / cost)} messages per second and connection",
                hint="give streams a common root and map it with one rule, remove rules for requests that nobody sends, or split the account",
                severity=Severity.ERROR if cost >= TOO_MUCH_US else None,
            )


def _round_to_two_digits(number: float) -> str:
    """Rounded to two significant digits."""
    step = 10 ** (len(str(int(number))) - 2)
    return f"{round(number / step) * step:,}"


_MAX_CACHED = 256
_ENOUGH_OPEN = 1_000
"""How many destinations that begin with a wildcard are compared: each may cost a walk over all first tokens."""
_GLOBAL = "$G"


@rule("VS350", "mapped-twice", Severity.WARNING)
def mapped_twice(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule also maps the destination of a rule.

    ## Why is this bad?
    A server maps each publish of a client once. But a client that publishes to the mapped subject itself, to repair or
    to replay, is mapped again: `foo.west.x` published in the east becomes `foo.east.west.x`, which looks like a new
    message (server/client.go, selectMappedSubject; all versions). Over leaf nodes it happens to every message: the hub
    maps what the leaf has mapped (server/parser.go, processInboundMsg for LEAF; server/leafnode.go, forceAddToSmap).
    That is an error if the files contain both sides with such a rule. A topology with `naming: blog` accepts this and
    is not warned.
    """
    over_leaves = _find_leaf_sides(workspace)
    sides = frozenset[str]().union(*over_leaves.values())
    is_chosen = workspace.topology is not None and not workspace.topology.naming.is_isolated
    for block in workspace.blocks:
        crosses = block.key_span in over_leaves
        if is_chosen and not crosses:
            continue
        when = "it crosses a leaf node connection" if crosses else "a client publishes to it"
        for entry, destination, taker in _find_remapped(block):
            yield Violation(
                at=destination.locate(),
                message=f"`{destination.model.subject}` is mapped again by `{taker.source}` if {when}",
                hint="use physical subjects that clients do not publish to, such as "
                f"`_vs.<stream>.{destination.model.cluster or '<region>'}.{entry.source}`",
                related=()
                if taker is entry
                else (Related(span=taker.key_span, message="the rule that maps it again"),),
                severity=Severity.ERROR if crosses and len(sides) > 1 else None,
            )


def _find_leaf_sides(workspace: Workspace) -> dict[object, set[str]]:
    """Where blocks begin whose messages cross leaf nodes, each with the sides on which its servers are."""
    sides_of: dict[object, set[str]] = {}
    for server in workspace.servers:
        for block in server.mappings:
            sides = set(_list_sides(server, block.account))
            if sides:
                sides_of.setdefault(block.key_span, set()).update(sides)
    return sides_of


def _list_sides(server: ServerConf, account: str | None) -> Iterator[str]:
    if any(listener.block == "leafnodes" for listener in server.listeners):
        yield "hub"
    bound = (remote.account.text if remote.account else None for remote in server.leaf_remotes)
    if any((name or _GLOBAL) == (account or _GLOBAL) for name in bound):
        yield "leaf"


@lru_cache(maxsize=_MAX_CACHED)
def _find_remapped(block: MappingsBlock) -> tuple[tuple[MappingEntry, MappingDestination, MappingEntry], ...]:
    """Destinations that rules take, each with its entry and the first rule that takes it and changes it."""
    inside: list[tuple[MappingEntry, MappingDestination, MappingEntry]] = []
    trie, entries = index_sources(block)
    takers: dict[str, MappingEntry | None] = {}
    open_ones = 0
    for entry in entries:
        for destination in entry.destinations:
            subject = pattern(destination.model.subject)
            if subject is None or subject == entry.source or not destination.model.weight or entry.source == OWN_API:
                continue
            if subject not in takers:
                open_ones += subject.startswith(PARTIAL_WILDCARD)
                numbers = trie.overlapping(subject) if open_ones <= _ENOUGH_OPEN else []
                takers[subject] = next((entries[number] for number in numbers if _changes(entries[number])), None)
            taker = takers[subject]
            if taker is not None:
                inside.append((entry, destination, taker))
                if len(inside) == MAX_FINDINGS:
                    return tuple(inside)
                break
    return tuple(inside)


def _changes(entry: MappingEntry) -> bool:
    """Whether a message that *entry* takes can get another subject."""
    return any(destination.model.subject != entry.source for destination in entry.destinations)
