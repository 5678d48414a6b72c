"""Requests that no rule maps, by client library, and streams that need no rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vstream.findings import Severity
from vstream.formatting import quote_names
from vstream.lint import late
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.mappings import api
from vstream.lint.rules.mappings.entries import ApiRule, index_sources, pattern, view_block
from vstream.lint.workspace import MappingDestination, MappingEntry, MappingsBlock, StreamRole, Workspace
from vstream.subjects.algebra import is_subset, overlaps
from vstream.subjects.transform import effective_source

_MAX_CACHED = 256
_LOOKUP = frozenset({"STREAM.INFO"})


@dataclass(frozen=True, slots=True)
class _Need:
    """A form of a request, with `<V>` for the virtual name, and what fails if it is not or only partly mapped."""

    form: str
    users: str
    users_of_rest: str | None = None


_DIRECT = (
    _Need(
        "DIRECT.GET.<V>",
        "direct reads by sequence: nats.py `get_msg(direct=True)`, nats.go `GetMsg`, nats.js `direct.getMessage`",
    ),
    _Need("DIRECT.GET.<V>.>", "direct reads by subject: KV `get` of nats.py, nats.go, nats.js and the CLI"),
)
_CREATE = (
    _Need("CONSUMER.CREATE.<V>", "consumers without a name: nats.py `subscribe` and ordered consumers"),
    _Need(
        "CONSUMER.CREATE.<V>.>",
        "named consumers, with a filter or without: nats.go, nats.js and the CLI",
        "named consumers with a filter: nats.go, nats.js, nats.py with `name=` and the CLI",
    ),
    _Need("CONSUMER.DURABLE.CREATE.<V>.*", "durable consumers: nats.py `pull_subscribe(durable=…)`"),
)
_MORE_OPERATIONS = (
    _Need(
        "STREAM.INFO.<V>",
        "looking up the stream: nats.py `stream_info`, nats.go `Stream`, nats.js `streams.get`, most of the CLI",
    ),
    _Need(
        "STREAM.MSG.GET.<V>",
        "reads that are not direct: nats.py `get_msg`, nats.js `streams.getMessage`, `nats stream get`",
    ),
    _Need(
        "CONSUMER.INFO.<V>.*",
        "binding to a consumer: nats.py `pull_subscribe`, nats.go `Consumer`, nats.js `consumers.get`",
    ),
    _Need("CONSUMER.MSG.NEXT.<V>.*", "fetching messages, in every client library"),
    _Need("CONSUMER.NAMES.<V>", "choosing a consumer: nats.go `ConsumerNames`, the CLI"),
    _Need("CONSUMER.LIST.<V>", "listing consumers, in every client library"),
    _Need("CONSUMER.DELETE.<V>.*", "ending a subscription or an ordered consumer, in every client library"),
)


@dataclass(frozen=True, slots=True, eq=False)
class _Virtual:
    """A virtual name, and the rules that mention it."""

    name: str
    rules: Sequence[ApiRule]

    def list_unmapped(self, needs: Sequence[_Need]) -> list[tuple[_Need, bool]]:
        """The forms that no rule matches in full, each with whether a rule matches some of it."""
        mapped = [effective_source(api_rule.request.subject) for api_rule in self.rules]
        lacking = []
        for need in needs:
            subject = api.PREFIX + need.form.replace("<V>", self.name)
            if not any(is_subset(subject, source) for source in mapped):
                lacking.append((need, any(overlaps(subject, source) for source in mapped)))
        return lacking


@lru_cache(maxsize=_MAX_CACHED)
def _find_virtuals(block: MappingsBlock) -> tuple[_Virtual, ...]:
    """
    The virtual names of *block*, in the order written.

    A name with only STREAM.INFO mapped is left out: its clients look up the real name first and need no other rule.
    """
    by_name: defaultdict[str, list[ApiRule]] = defaultdict(list)
    renamed: set[str] = set()
    for api_rule in view_block(block).api:
        for name in api_rule.request.streams:
            by_name[name].append(api_rule)
        renamed |= api_rule.renames
    virtuals = []
    for name, rules in by_name.items():
        if name in renamed and frozenset[str]().union(*(api_rule.request.names for api_rule in rules)) > _LOOKUP:
            virtuals.append(_Virtual(name, rules))
    return tuple(virtuals)


def _report_unmapped(workspace: Workspace, needs: Sequence[_Need], clients: str) -> Iterator[Violation]:
    for virtual in (virtual for block in workspace.blocks for virtual in _find_virtuals(block)):
        lacking = virtual.list_unmapped(needs)
        if not lacking:
            continue
        shown = ((need.form.replace("<V>", virtual.name), " (mapped in part)" * in_part) for need, in_part in lacking)
        forms = ", ".join(f"`{form}`{remark}" for form, remark in shown)
        users = "; ".join((in_part and need.users_of_rest) or need.users for need, in_part in lacking)
        yield Violation(
            at=virtual.rules[0].entry.key_span,
            message=f"{clients} of `{virtual.name}` is not mapped: {forms}. These fail: {users}",
            hint="add the missing rules, each for `$JS.API.` and the form shown, to the region's read stream",
        )


@rule("VS340", "direct-get-not-mapped", Severity.WARNING)
def direct_get_not_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    A virtual stream lacks one or both forms of Direct Get.

    ## Why is this bad?
    Direct Get is the only way to read a message that works in a region that is cut
    off from the others. It has two forms: `DIRECT.GET.<stream>` takes a sequence or
    a subject in the body, `DIRECT.GET.<stream>.<subject>` reads the last message of
    a subject, as KV does. Requests that no rule maps end in `no responders`
    (server/jetstream_api.go, JSDirectMsgGet and JSDirectGetLastBySubject; 2.9 and
    later). The read streams need `allow_direct` as well.
    """
    yield from _report_unmapped(workspace, _DIRECT, "Direct Get")


@rule("VS341", "consumer-creation-not-mapped", Severity.WARNING)
def consumer_creation_not_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    One of the requests with which clients create consumers is not mapped.

    ## Why is this bad?
    There are three: `CREATE.<stream>`, `CREATE.<stream>.<name>` followed by the tokens of the filter, and
    `DURABLE.CREATE.<stream>.<name>`. A rule for `CREATE.<stream>.*` misses the first, and the second if it has a
    filter. Requests that are not mapped fail with 10059, stream not found (server/jetstream_api.go, JSApiConsumerCreate
    and JSApiConsumerCreateEx; 2.9 and later).
    """
    yield from _report_unmapped(workspace, _CREATE, "consumer creation")


@rule("VS342", "request-not-mapped", Severity.WARNING)
def request_not_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    Some requests by a virtual name are mapped, but others that clients need are not.

    ## Why is this bad?
    No stream has that name, so the server answers most unmapped requests with 10059, stream not found, and others not
    at all. In a cluster, CONSUMER.LIST is worse: it returns an empty list (seen with 2.15; server/jetstream_api.go).
    The finding names the operations of each client library that fail.

    A name with only STREAM.INFO mapped is fine: its clients ask for the real name first, as the nats CLI does.
    """
    yield from _report_unmapped(workspace, _MORE_OPERATIONS, "part of the API")


@rule("VS343", "creation-by-virtual-name", Severity.NOTE)
def creation_by_virtual_name(workspace: Workspace) -> Iterator[Violation]:
    """
    Clients cannot create consumers by a virtual name that the mapping renames.

    ## Why is this bad?
    The body of the request also names the stream, and mappings do not change bodies: the server answers 10056, stream
    name in subject does not match request (server/jetstream_api.go, jsConsumerCreateRequest; all versions). nats.py,
    nats.js `consumers.add` and nats.go send the name that you passed. KV watch, keys and history, and ordered and push
    consumers depend on it.

    What works: look up the real name with STREAM.INFO and use it, as the nats CLI
    and nats.js `streams.get` do, or create the consumers beforehand in every region
    and bind to them. The note appears once for each block of mappings, and not if a topology is given.
    """
    if workspace.topology is not None:
        return
    creating = {"CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE"}
    for block in workspace.blocks:
        renaming = []
        for api_rule in view_block(block).api:
            if api_rule.renames and any(creating & target.names for _, target in api_rule.targets):
                renaming.append(api_rule)
        if renaming:
            names = sorted(frozenset[str]().union(*(api_rule.renames for api_rule in renaming)))
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            yield Violation(
                at=renaming[0].entry.key_span,
                message=f"consumers of `{names[0]}`{more} cannot be created by the virtual name: error 10056, since the body of the request and the mapped subject name different streams",
                hint="let clients read the real name from STREAM.INFO, or create consumers in every region beforehand",
            )


@rule("VS344", "request-to-unknown-stream", Severity.ERROR)
def request_to_unknown_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule sends requests for a virtual stream to a stream that does not exist.

    ## Why is this bad?
    The server answers 10059, stream not found, or not at all. The topology (`--topology`) and the files say which streams
    exist. Without a topology it is a warning, and only where the files contain the read stream of the destination's
    cluster: the stream that is named may be in other files.
    """
    topology = workspace.topology
    exist = {stream.config.name for stream in workspace.streams}
    virtual_names = {stream.name for stream in topology.streams} if topology else set()
    exist |= late.index_physical_streams(topology).keys() if topology else set()
    readers: dict[tuple[str | None, str | None], str] = {}
    for stream in workspace.streams:
        if stream.role is StreamRole.READ and stream.config.placement_cluster:
            readers[stream.virtual, stream.config.placement_cluster] = stream.config.name
    for block in workspace.blocks if exist else ():
        for (name, cluster), (api_rule, destination) in _index_named_streams(block).items():
            reader = next(filter(None, (readers.get((virtual, cluster)) for virtual in sorted(api_rule.renames))), None)
            is_of_topology = not virtual_names.isdisjoint(api_rule.renames)
            if name not in exist and (is_of_topology or reader is not None):
                yield Violation(
                    at=destination.locate(),
                    message=f"there is no stream `{name}`: requests for {quote_names(api_rule.renames)} get no answer, or 10059",
                    hint=f"name the region's read stream{f', `{reader}`' if reader else ''}",
                    severity=Severity.ERROR if is_of_topology else Severity.WARNING,
                )


def _index_named_streams(block: MappingsBlock) -> Mapping[tuple[str, str | None], tuple[ApiRule, MappingDestination]]:
    """The streams that requests are sent to instead, by name and cluster, with the first rule and destination that says so."""
    named: dict[tuple[str, str | None], tuple[ApiRule, MappingDestination]] = {}
    for api_rule in view_block(block).api:
        for destination, target in api_rule.targets if api_rule.renames else ():
            if target.subject.startswith(api.PREFIX):
                for name in sorted(target.streams):
                    named.setdefault((name, destination.model.cluster), (api_rule, destination))
    return named


@rule("VS318", "origin-mapped", Severity.ERROR)
def origin_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule maps the subjects or the name of a virtual stream with a single origin.

    ## Why is this bad?
    A `stretch` or `homed` stream really has the name and the subjects of the virtual stream. A leftover rule of another
    consistency model sends publishes and requests elsewhere. Only files that are checked against a topology
    (`--topology`) can show this.
    """
    topology = workspace.topology
    origins = [stream for stream in topology.streams if stream.consistency.has_origin] if topology else []
    names = {stream.name for stream in topology.streams if stream.has_namesake} if topology else set()
    for block in workspace.blocks if names else ():
        trie, entries = index_sources(block)
        mapped: dict[str, tuple[MappingEntry, str]] = {}
        for stream in origins:
            for subject in stream.subjects:
                for number in trie.overlapping(subject):
                    if not _stays(entries[number], stream.subjects):
                        mapped[entries[number].source] = (entries[number], stream.name)
        for api_rule in view_block(block).api:
            for name in sorted(api_rule.renames & names)[:1]:
                mapped[api_rule.entry.source] = (api_rule.entry, name)
        for entry, name in mapped.values():
            yield Violation(
                at=entry.key_span,
                message=f"`{entry.source}` is mapped, but `{name}` has "
                f"{'an origin' if name in {stream.name for stream in origins} else 'an order of that name'} that takes it as it is",
                hint="remove the rule, or render the topology again",
            )


def _stays(entry: MappingEntry, subjects: tuple[str, ...]) -> bool:
    """Whether *subjects* include all destinations of *entry*: an alias within the stream."""
    for destination in entry.destinations:
        target = pattern(destination.model.subject)
        if target is None or not any(is_subset(target, subject) for subject in subjects):
            return False
    return True
