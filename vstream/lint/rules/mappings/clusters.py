"""The clusters of rules: clusters that do not exist, and regions that are left out."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from vstream.findings import Edit, Related, Severity
from vstream.formatting import quote_names, summarize_names
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.mappings import api
from vstream.lint.rules.mappings.entries import has_default, index_sources, view_block
from vstream.lint.rules.server_values import (
    cluster_of,
    directory_of,
    find_superclusters,
    group_connected,
    is_origin,
    list_whole,
    locate_server,
)
from vstream.lint.workspace import MappingEntry, MappingsBlock, ServerConf, StreamFile, StreamRole, Workspace
from vstream.subjects.algebra import SEPARATOR, SubjectTrie, is_subset, overlaps
from vstream.subjects.functions import FUNCTION
from vstream.subjects.transform import effective_source

_MIN_RULES = 2
"""The number of rules that must agree before a different one is reported."""
_PAIR_SIZE = 2
_CUTOFF = 0.7
"""From which similarity on a name is a slip of another one."""
_MAX_NAMES = 10
_MAX_DIFFERENCES = 50
"""How many differences between servers are listed."""
_DIGITS = re.compile(r"[0-9]+")


@rule("VS315", "unknown-cluster", Severity.ERROR)
def unknown_cluster(workspace: Workspace) -> Iterator[Violation]:
    """
    A destination is for a cluster that does not exist.

    ## Why is this bad?
    The server compares the name with that of its own cluster, including case. If they differ, the message keeps its
    subject: it is not stored, and no error is reported (server/accounts.go, selectMappedSubject; all versions).

    Known names are those of the topology, or else those in the `cluster` and `gateway` blocks of the servers. Without
    either, a name that only one rule uses is reported if it resembles a name that all others use.
    """
    for block in workspace.blocks:
        names = _Names.of(workspace, block)
        for entry in view_block(block).entries:
            named = entry.clusters
            for destination in entry.destinations:
                name = destination.model.cluster
                if name is None or destination.cluster is None or name not in names.unknown:
                    continue
                meant = names.unknown[name]
                clusters = summarize_names(names.clusters, _MAX_NAMES)
                # Gateways may learn of a region whose files are not here.
                unless = "" if meant or workspace.topology else "unless servers elsewhere have that name, "
                yield Violation(
                    at=destination.cluster.span,
                    message=f"unknown {names.origin} `{name}`: {unless}its messages keep their subject",
                    hint=f"did you mean `{meant}`?" if meant else f"known clusters: {clusters}",
                    fix=(Edit(span=destination.cluster.span, text=f'"{meant}"'),)
                    if meant and meant.lower() == name.lower() and meant not in named
                    else (),
                )


@dataclass(frozen=True, slots=True)
class _Names:
    """The cluster names of a block: those that are known, and the others with what each seems to mean."""

    clusters: tuple[str, ...]
    unknown: Mapping[str, str | None]
    origin: str

    @classmethod
    def of(cls, workspace: Workspace, block: MappingsBlock) -> _Names:
        used = Counter(name for entry in view_block(block).entries for name in entry.clusters)
        near = _restrict_to_readers(workspace, block)
        clusters = near.cluster_names
        # A server that names no gateways knows its own cluster only.
        complete = workspace.topology is not None or any(
            server.gateway and server.gateway.remotes for server in near.servers
        )
        if clusters and complete:
            close = {name: _find_closest(name, clusters) for name in used if name not in clusters}
            return cls(clusters, close, "region's cluster" if workspace.topology else "cluster of these servers")
        if clusters:
            close = {name: _find_closest(name, clusters) for name in used if name not in clusters}
            same = {name: meant for name, meant in close.items() if meant and meant.lower() == name.lower()}
            return cls(clusters, same, "cluster of these servers")
        return cls(tuple(used), _find_odd_ones(block, used), "cluster of the other rules")


def _restrict_to_readers(workspace: Workspace, block: MappingsBlock) -> Workspace:
    """*workspace* with the servers in the directories of those that read *block*: others may be of another system."""
    readers = (server for server in workspace.servers if _reads(server, block))
    directories = {directory_of(server) for server in readers if not server.is_fragment}
    if not directories:
        return workspace
    return replace(
        workspace, servers=tuple(server for server in workspace.servers if directory_of(server) in directories)
    )


def _find_odd_ones(block: MappingsBlock, used: Counter[str]) -> dict[str, str | None]:
    """Names that occur once, each with the one that it resembles and that every other rule has instead."""
    scoped = [entry.clusters for entry in view_block(block).entries if entry.clusters]
    if len(scoped) == _PAIR_SIZE:
        return _find_swapped_letters(*scoped)
    usual = [name for name, count in used.items() if count == len(scoped) - 1 >= _MIN_RULES]
    rules = {name: clusters for clusters in scoped for name in clusters}
    odd: dict[str, str | None] = {}
    for name, count in used.items():
        meant = _find_closest(name, usual) if count == 1 else None
        if meant and meant not in rules[name] and _DIGITS.findall(name) == _DIGITS.findall(meant):
            odd[name] = meant
    return odd


def _find_swapped_letters(first: frozenset[str], second: frozenset[str]) -> dict[str, str | None]:
    """Of two rules that agree but for one name each: the second name, if it has the letters of the first."""
    (rest, *more), (odd, *rest_of_second) = sorted(first - second) or [""], sorted(second - first) or [""]
    if more or rest_of_second or not first & second or rest == odd:
        return {}
    return {odd: rest} if sorted(rest.lower()) == sorted(odd.lower()) else {}


def _find_closest(name: str, names: tuple[str, ...] | list[str]) -> str | None:
    folded = next((candidate for candidate in names if candidate.lower() == name.lower()), None)
    return folded or next(iter(get_close_matches(name, names, n=1)), None)


@rule("VS316", "region-left-out", Severity.WARNING)
def region_left_out(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule leaves out a cluster that the topology or other rules have.

    ## Why is this bad?
    In that cluster, messages keep their subject: publishes are not stored, and requests by the virtual name find no
    stream (server/accounts.go, selectMappedSubject; all versions). Usually one rule was forgotten when the region was
    added. If the only rule leaves out a region of the gateways, that is a note: a stream need not be in every region.
    """
    for block in workspace.blocks:
        meant = {name: meaning for name, meaning in _Names.of(workspace, block).unknown.items() if meaning}
        scoped = {}
        for entry in view_block(block).entries:
            if entry.clusters and not has_default(entry):
                scoped[entry.source] = (
                    frozenset(meant.get(name, name) for name in entry.clusters) if meant else entry.clusters
                )
        expected_clusters = _expect_by_others(block, scoped)
        for source, clusters in _expect_by_servers(workspace, block, scoped).items():
            expected_clusters[source] = expected_clusters.get(source, frozenset()) | clusters
        expected_clusters.update(_expect_by_topology(workspace, block))
        reachable = _reached_by_gateways(workspace, block) if len(scoped) == 1 else frozenset[str]()
        for entry in view_block(block).entries:
            expected = expected_clusters.get(entry.source)
            if expected is None or entry.source not in scoped:
                continue
            missing = sorted(expected - scoped[entry.source])
            maybe_missing = sorted(reachable - scoped[entry.source]) if len(entry.clusters) >= _PAIR_SIZE else []
            if missing or maybe_missing:
                yield Violation(
                    at=entry.key_span,
                    message=f"`{entry.source}` has no destination for cluster{'s' * (len(missing or maybe_missing) > 1)} "
                    f"{summarize_names(missing or maybe_missing, _MAX_NAMES)}: it stays unmapped there",
                    hint="add one for each cluster, or one without `cluster` for all others",
                    severity=None if missing else Severity.NOTE,
                )


def _reached_by_gateways(workspace: Workspace, block: MappingsBlock) -> frozenset[str]:
    """The clusters that the gateways of servers with *block* lead to, without those of servers with other rules."""
    servers = list_whole(workspace) if workspace.topology is None else []
    readers = tuple(server for server in servers if _reads(server, block))
    elsewhere = {_cluster_name(server) for server in servers if server not in readers}
    return frozenset(replace(workspace, servers=readers).cluster_names if readers else ()) - elsewhere


def _expect_by_topology(workspace: Workspace, block: MappingsBlock) -> dict[str, frozenset[str]]:
    """The clusters that the topology requires for each source that belongs to one of its streams."""
    topology = workspace.topology
    if topology is None:
        return {}
    clusters = {region.name: region.cluster for region in topology.regions}
    # What has an origin is not mapped at all.
    mapped = [stream for stream in topology.streams if not stream.consistency.has_origin]
    clusters_of = {stream.name: frozenset(clusters[region] for region in stream.regions) for stream in mapped}
    expected: dict[str, frozenset[str]] = {}
    for api_rule in view_block(block).api:
        for name in api_rule.request.streams & clusters_of.keys():
            expected[api_rule.entry.source] = clusters_of[name]
    trie, entries = index_sources(block)
    for stream in mapped:
        for subject in stream.subjects:
            for number in trie.overlapping(subject):
                expected[entries[number].source] = clusters_of[stream.name]
    return expected


def _expect_by_servers(
    workspace: Workspace, block: MappingsBlock, scoped: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """Each rule for several clusters that leaves out the one of a server which reads it: that cluster is wanted too."""
    if workspace.topology is not None:
        return {}
    readers = {_cluster_name(server) for server in list_whole(workspace) if _reads(server, block)}
    elsewhere = _find_mapped_elsewhere(workspace, block)
    # A stream need not be in every region: the rules of other servers say whether this one is.
    return {source: clusters | (readers & elsewhere.get(source, set())) for source, clusters in scoped.items()}


def _reads(server: ServerConf, block: MappingsBlock) -> bool:
    return any(read.key_span == block.key_span for read in server.mappings)


def _find_mapped_elsewhere(workspace: Workspace, block: MappingsBlock) -> dict[str, set[str]]:
    """The clusters for which the other blocks have a rule, by its source."""
    clusters: dict[str, set[str]] = {}
    for other_block in workspace.blocks:
        if other_block is not block:
            for entry in other_block.entries:
                clusters.setdefault(entry.source, set()).update(entry.clusters)
    return clusters


def _expect_by_others(block: MappingsBlock, scoped: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The clusters that the rules for the same virtual name have, and most rules where one stands alone."""
    expected: dict[str, frozenset[str]] = {}
    how_many = Counter(scoped.values())
    usual = max(how_many, key=lambda api_rule: (how_many[api_rule], sorted(api_rule)), default=frozenset[str]())
    if len(scoped) == _PAIR_SIZE:
        # Of two rules, the one with fewer clusters is the one where somebody forgot one.
        usual = frozenset[str]().union(*scoped.values())
        expected.update(
            {source: usual for source, clusters in scoped.items() if clusters < usual and usual in how_many}
        )
    elif how_many[usual] >= _MIN_RULES:
        expected.update(
            {source: usual for source, clusters in scoped.items() if how_many[clusters] == 1 and clusters < usual}
        )
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for api_rule in view_block(block).api:
        for name in api_rule.request.streams:
            if api_rule.entry.source in scoped:
                groups[name].append(api_rule.entry.source)
    for members in groups.values():
        everywhere = frozenset[str]().union(*(scoped[source] for source in members))
        expected.update(dict.fromkeys(members, everywhere))
    return expected


@rule("VS317", "stream-not-mapped", Severity.ERROR)
def stream_not_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    No rule maps a virtual stream's subjects, or a rule maps them to subjects that its write stream does not store.

    ## Why is this bad?
    Publishes to these subjects reach no write stream: they are lost, or stored
    where nobody reads, or in another region. The first is found with a topology (`--topology`), the second if the files
    contain the JSON of the write streams, or if a destination has a wrong name where others have that of their cluster.
    """
    topology = workspace.topology
    for block in workspace.blocks:
        yield from _check_mapped_past(block, workspace.streams)
        yield from _check_named_after_another(block)
    blocks = workspace.blocks
    if topology is None or not blocks:
        return
    indexed = [index_sources(block) for block in blocks]
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


def _check_named_after_another(block: MappingsBlock) -> Iterator[Violation]:
    """Destinations with the name of another cluster, or a slip, where others of the same cluster have its own."""
    scoped = []
    for entry in view_block(block).accepted:
        for destination in entry.destinations:
            if destination.model.cluster and destination.subject is not None:
                scoped.append((destination.model.cluster, destination.model.subject.split(SEPARATOR), destination))
    places = Counter(tokens.index(name) for name, tokens, _ in scoped if name in tokens)
    place, count = max(places.items(), key=lambda item: item[1], default=(0, 0))
    names = {name for name, tokens, _ in scoped if tokens[place : place + 1] == [name]}
    for name, tokens, destination in scoped if count >= _MIN_RULES else ():
        token = tokens[place] if place < len(tokens) else ""
        if name in names.difference(tokens) and (token in names or get_close_matches(token, [name], cutoff=_CUTOFF)):
            corrected = SEPARATOR.join((*tokens[:place], name, *tokens[place + 1 :]))
            yield Violation(
                at=destination.subject.span if destination.subject else destination.span,
                message=f"in cluster `{name}` this maps to `{token}`, where other rules have the cluster's own name",
                hint=f"write `{corrected}`",
                severity=Severity.WARNING,
            )


def _check_mapped_past(block: MappingsBlock, streams: Sequence[StreamFile]) -> Iterator[Violation]:
    """Destinations of a cluster that its write stream does not store, where one of the same rule stays in the virtual stream."""
    by_virtual: defaultdict[str, dict[str, StreamFile]] = defaultdict(dict)
    stored: list[tuple[str, str]] = []
    for stream in streams:
        cluster_name = stream.config.placement_cluster
        if stream.role is StreamRole.WRITE and stream.virtual and cluster_name:
            by_virtual[stream.virtual][cluster_name] = stream
            stored += [(stream.virtual, subject) for subject in stream.config.subjects]
    trie = SubjectTrie(subject for _, subject in stored)
    for entry in view_block(block).accepted if by_virtual else ():
        targets = [(destination, FUNCTION.sub("*", destination.model.subject)) for destination in entry.destinations]
        for virtual in dict.fromkeys(stored[number][0] for _, target in targets for number in trie.overlapping(target)):
            for destination, target in targets:
                stream_here = by_virtual[virtual].get(destination.model.cluster or "")
                if stream_here and not any(overlaps(target, subject) for subject in stream_here.config.subjects):
                    yield Violation(
                        at=destination.subject.span if destination.subject else destination.span,
                        message=f"`{stream_here.config.name}`, the write stream in this cluster, does not store `{target}`",
                        hint=f"write the subject that it stores: {quote_names(stream_here.config.subjects[:_PAIR_SIZE])}",
                        related=(Related(span=stream_here.locate("subjects"), message="what it stores"),),
                    )


def _covers(entry: MappingEntry, subject: str) -> bool:
    return is_subset(subject, effective_source(entry.source)) and not api.is_api(entry.source)


@rule("VS319", "servers-map-differently", Severity.WARNING)
def servers_map_differently(workspace: Workspace) -> Iterator[Violation]:
    """
    Two servers of one cluster or super-cluster have different rules for the same account.

    ## Why is this bad?
    A server maps the publishes of its own clients, with its own file (server/accounts.go, selectMappedSubject; all
    versions). If files differ, the result depends on the server to which a client is connected. This rule compares the
    destinations for the same cluster, and reports rules that one of the servers lacks, and servers without any for
    their cluster. Include the same mappings file in all server configurations.
    """
    # By name: where two servers differ, the first is taken for right.
    servers = sorted(list_whole(workspace), key=lambda server: server.file)
    groups = {name: number for number, names in enumerate(find_superclusters(workspace)) for name in names}
    # A cluster without gateways is no super-cluster: its servers are known by their routes.
    connected = group_connected(servers, "cluster")
    alone = {server.file: -number for number, group in enumerate(connected, 1) for server in group}
    seen_blocks: dict[tuple[int, str | None], tuple[ServerConf, MappingsBlock]] = {}
    systems: dict[tuple[int, str], list[ServerConf]] = defaultdict(list)
    findings: list[Violation] = []
    for server in servers:
        name = _cluster_name(server)
        if name in groups:
            systems[groups[name], directory_of(server)].append(server)
        number = groups.get(name, alone.get(server.file, 0))
        for block in server.mappings if name in groups or number else ():
            earlier, earlier_block = seen_blocks.setdefault((number, block.account), (server, block))
            if earlier_block.key_span != block.key_span and earlier is not server and not is_origin(earlier, server):
                is_same = name == _cluster_name(earlier)
                findings += _check_differences(block, earlier_block, is_same_cluster=is_same)
    for group in (*connected, *systems.values()):
        findings += _find_servers_without_rules(group)
    yield from {finding.at: finding for finding in findings[:_MAX_DIFFERENCES]}.values()


def _cluster_name(server: ServerConf) -> str:
    name = cluster_of(server)
    return (name.text if name else None) or ""


def _find_servers_without_rules(group: list[ServerConf]) -> Iterator[Violation]:
    """Servers that have an account and none of its rules, while others of their cluster have some, or rules name the cluster."""
    holders = {
        block.account: (holder, block) for holder in reversed(group) for block in holder.mappings if block.entries
    }
    for account, (holder, block) in holders.items():
        named = {name for entry in block.entries for name in entry.clusters} | {_cluster_name(holder)}
        for server in group:
            # VS353 reports rules of the global account that are missing beside other accounts.
            has_account = not server.accounts if account is None else account in {conf.name for conf in server.accounts}
            is_meant = has_account and _cluster_name(server) in named
            if is_meant and all(mapping.account != account for mapping in server.mappings):
                rules = f"rules of account `{account}`" if account else "rules"
                yield Violation(
                    at=locate_server(server),
                    message=f"`{holder.file}` has {rules} for cluster `{_cluster_name(server)}`, and this server of it has none",
                    hint="let all servers include the same mappings file",
                    related=(Related(span=block.key_span, message="the rules"),),
                )


def _check_differences(block: MappingsBlock, second: MappingsBlock, *, is_same_cluster: bool) -> Iterator[Violation]:
    entries, other_entries = (
        {entry.source: entry for entry in view_block(either).entries} for either in (block, second)
    )
    missing = [source for source in other_entries if source not in entries]
    if missing:
        yield Violation(
            at=block.key_span,
            message=f"{len(missing):,} rules of `{second.file}` are missing here, such as `{missing[0]}`"
            if len(missing) > 1
            else f"the rule `{missing[0]}` of `{second.file}` is missing here",
            hint="let all servers include the same mappings file",
            related=(Related(span=other_entries[missing[0]].key_span, message="the rule"),),
        )
    for source, entry in entries.items():
        if source not in other_entries:
            yield Violation(
                at=entry.key_span,
                message=f"`{second.file}` has no rule for `{source}`",
                hint="let all servers include the same mappings file",
                related=(Related(span=second.key_span, message="the other rules"),),
            )
            continue
        mine, theirs = _group_by_cluster(entry), _group_by_cluster(other_entries[source])
        shared = [name for name in mine.keys() & theirs.keys() if name or is_same_cluster]
        name = next((name for name in sorted(shared) if mine[name] != theirs[name]), None)
        if name is not None:
            where = f" at cluster `{name}`" if name else ""
            yield Violation(
                at=entry.key_span,
                message=f"`{source}` is mapped to another subject{where} by the rule of `{second.file}`",
                hint="let all servers include the same mappings file",
                related=(Related(span=other_entries[source].key_span, message="the other rule"),),
            )


def _group_by_cluster(entry: MappingEntry) -> Mapping[str, frozenset[tuple[str, int]]]:
    """The result of a rule for a subject, by cluster; "" stands for the clusters that it does not name."""
    destinations: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for destination in entry.destinations:
        destinations[destination.model.cluster or ""].add((destination.model.subject, destination.model.weight))
    return {name: frozenset(pairs) for name, pairs in destinations.items()}
