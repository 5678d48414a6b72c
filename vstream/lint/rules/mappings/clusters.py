"""Where rules apply: clusters that do not exist, and regions that are left out."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from vstream.diagnostics import Edit, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings import api
from vstream.lint.rules.mappings.entries import has_default, sources, view
from vstream.subjects.algebra import is_subset
from vstream.subjects.transform import effective_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.lint.workspace import MappingEntry, MappingsBlock, Workspace

_ENOUGH_RULES = 2
"""How many rules must agree before one that differs is the odd one out."""
_DIGITS = re.compile(r"[0-9]+")


@rule("VS315", "unknown-cluster", Severity.ERROR)
def unknown_cluster(workspace: Workspace) -> Iterator[Violation]:
    """
    A destination is for a cluster that does not exist.

    ## Why is this bad?
    The server compares the name with that of its own cluster, case and all. Where
    it differs, the message keeps its subject: it is not stored, and nobody is told
    (server/accounts.go, selectMappedSubject; all versions).

    Known names are those of the topology, else those in the `cluster` and
    `gateway` blocks of the servers. With neither, a name that one rule alone uses
    is reported if it resembles one that all others use.
    """
    for block in workspace.blocks:
        names = _Names.of(workspace, block)
        for entry in view(block).entries:
            named = entry.clusters
            for one in entry.destinations:
                name = one.model.cluster
                if name is None or one.cluster is None or name not in names.unknown:
                    continue
                meant = names.unknown[name]
                yield Violation(
                    at=one.cluster.span,
                    message=f"no {names.origin} is called `{name}`: messages keep their subject there",
                    hint=f"did you mean `{meant}`?" if meant else f"the clusters are {_listed(names.known)}",
                    fix=(Edit(span=one.cluster.span, text=f'"{meant}"'),)
                    if meant and meant.lower() == name.lower() and meant not in named
                    else (),
                )


@dataclass(frozen=True, slots=True)
class _Names:
    """The cluster names of a block: those that are known, and the others with what each seems to mean."""

    known: tuple[str, ...]
    unknown: Mapping[str, str | None]
    origin: str

    @classmethod
    def of(cls, workspace: Workspace, block: MappingsBlock) -> _Names:
        used = Counter(name for entry in view(block).entries for name in entry.clusters)
        known = workspace.cluster_names
        # A server that names no gateways knows its own cluster only.
        complete = workspace.topology is not None or any(
            one.gateway and one.gateway.remotes for one in workspace.servers
        )
        if known and complete:
            close = {name: _closest(name, known) for name in used if name not in known}
            return cls(known, close, "region's cluster" if workspace.topology else "cluster of these servers")
        if known:
            close = {name: _closest(name, known) for name in used if name not in known}
            same = {name: meant for name, meant in close.items() if meant and meant.lower() == name.lower()}
            return cls(known, same, "cluster of these servers")
        return cls(tuple(used), _odd_ones(block, used), "cluster of the other rules")


def _odd_ones(block: MappingsBlock, used: Counter[str]) -> dict[str, str | None]:
    """Names that occur once, each with the one that it resembles and that every other rule has instead."""
    scoped = [entry.clusters for entry in view(block).entries if entry.clusters]
    usual = [name for name, count in used.items() if count == len(scoped) - 1 >= _ENOUGH_RULES]
    owner = {name: one for one in scoped for name in one}
    found: dict[str, str | None] = {}
    for name, count in used.items():
        meant = _closest(name, usual) if count == 1 else None
        if meant and meant not in owner[name] and _DIGITS.findall(name) == _DIGITS.findall(meant):
            found[name] = meant
    return found


def _closest(name: str, known: tuple[str, ...] | list[str]) -> str | None:
    folded = next((one for one in known if one.lower() == name.lower()), None)
    return folded or next(iter(get_close_matches(name, known, n=1)), None)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


@rule("VS316", "region-left-out", Severity.WARNING)
def region_left_out(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule says nothing about a cluster that the topology or the other rules have.

    ## Why is this bad?
    In that cluster messages keep their subject: publishes are not stored, requests
    by the virtual name find no stream (server/accounts.go, selectMappedSubject;
    all versions). Whoever added the region forgot one rule.

    Rules are compared with the regions of their virtual stream in the topology.
    Without one, with the rules for the same virtual name, and a rule that is alone
    with its set of clusters with the others of its block.
    """
    for block in workspace.blocks:
        meant = {name: other for name, other in _Names.of(workspace, block).unknown.items() if other}
        scoped = {
            entry.source: frozenset(meant.get(name, name) for name in entry.clusters) if meant else entry.clusters
            for entry in view(block).entries
            if entry.clusters and not has_default(entry)
        }
        wanted = _by_others(block, scoped)
        wanted.update(_by_topology(workspace, block))
        for entry in view(block).entries:
            expected = wanted.get(entry.source)
            if expected is None or entry.source not in scoped:
                continue
            missing = sorted(expected - scoped[entry.source])
            if missing:
                yield Violation(
                    at=entry.key_span,
                    message=f"`{entry.source}` has no destination for cluster{'s' * (len(missing) > 1)} {_listed(missing)}: "
                    "it stays unmapped there",
                    hint="add one for each cluster, or one without a cluster for all the others",
                )


def _by_topology(workspace: Workspace, block: MappingsBlock) -> dict[str, frozenset[str]]:
    """The clusters that the topology wants for each source that belongs to one of its streams."""
    topology = workspace.topology
    if topology is None:
        return {}
    cluster = {region.name: region.cluster for region in topology.regions}
    # What has an origin is not mapped at all.
    mapped = [stream for stream in topology.streams if not stream.consistency.has_origin]
    wanted = {stream.name: frozenset(cluster[region] for region in stream.regions) for stream in mapped}
    found: dict[str, frozenset[str]] = {}
    for one in view(block).api:
        for name in one.request.streams & wanted.keys():
            found[one.entry.source] = wanted[name]
    trie, entries = sources(block)
    for stream in mapped:
        for subject in stream.subjects:
            for number in trie.overlapping(subject):
                found[entries[number].source] = wanted[stream.name]
    return found


def _by_others(block: MappingsBlock, scoped: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The clusters that the rules for the same virtual name have, and most rules where one stands alone."""
    found: dict[str, frozenset[str]] = {}
    how_many = Counter(scoped.values())
    usual = max(how_many, key=lambda one: (how_many[one], sorted(one)), default=frozenset[str]())
    if how_many[usual] >= _ENOUGH_RULES:
        found.update({source: usual for source, own in scoped.items() if how_many[own] == 1 and own < usual})
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for one in view(block).api:
        for name in one.request.streams:
            if one.entry.source in scoped:
                groups[name].append(one.entry.source)
    for members in groups.values():
        everywhere = frozenset[str]().union(*(scoped[source] for source in members))
        found.update(dict.fromkeys(members, everywhere))
    return found


@rule("VS317", "stream-not-mapped", Severity.ERROR)
def stream_not_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    The topology has a virtual stream whose subjects no rule maps.

    ## Why is this bad?
    Publishes to these subjects reach no write stream: they are lost, or stored
    where nobody reads. Only files that are checked against a topology
    (`--topology`) can show this.
    """
    topology = workspace.topology
    blocks = workspace.blocks
    if topology is None or not blocks:
        return
    indexed = [sources(block) for block in blocks]
    for stream in topology.streams:
        for subject in stream.subjects if not stream.consistency.has_origin else ():
            if not any(
                _covers(entries[number], subject) for trie, entries in indexed for number in trie.overlapping(subject)
            ):
                yield Violation(
                    at=blocks[0].key_span,
                    message=f"no rule maps `{subject}` of virtual stream `{stream.name}`",
                    hint="render the topology again, or add the rule",
                )


def _covers(entry: MappingEntry, subject: str) -> bool:
    return is_subset(subject, effective_source(entry.source)) and not api.is_api(entry.source)
