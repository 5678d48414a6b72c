"""From discovered streams to the text of a topology, what it leaves out, and its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vstream.errors import RefusedError, UnknownNameError
from vstream.findings import Finding
from vstream.lint.check_topology import check_topology
from vstream.plan.context import Observed
from vstream.plan.diff import diff
from vstream.plan.importing.discovered import Discovered, UndescribedItem, count_servers
from vstream.plan.importing.document import topology_document
from vstream.plan.importing.recognise import RecognisedTopology, recognise
from vstream.plan.importing.yaml_text import format_yaml
from vstream.plan.model import RULE, Plan, kind_of
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import Bundle
from vstream.topology.model import Role, Routing, Topology
from vstream.topology.profiles import PROFILES
from vstream.topology.stream_config import ROUTING_KEY
from vstream.value_class import value_class

UNNAMED = "imported"
"""Name of a topology if nothing on the servers gives one."""
_HIDING = tuple(profile for profile in PROFILES.values() if not profile.has_physical_names)
"""Those whose accounts hide the names of physical streams."""


@value_class
class ImportedTopology:
    """A topology written from what runs."""

    name: str
    text: str
    naming: str
    streams: Mapping[str, str]
    """The consistency model of each virtual stream."""
    regions: tuple[str, ...]
    undescribed: tuple[UndescribedItem, ...]
    findings: tuple[Finding, ...]
    """The findings of `vstream validate`."""
    plan: Plan | None
    """The result of `vstream plan --adopt all`; None if the topology is not valid."""
    adopts: bool
    """Whether it takes over streams or consumers that vstream did not create."""

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON data, without the plan."""
        return {
            "topology": self.name,
            "naming": self.naming,
            "regions": list(self.regions),
            "streams": dict(self.streams),
            "adopts": self.adopts,
            "leftovers": [item.as_dict() for item in self.undescribed],
            "problems": [_describe_problem(finding) for finding in self.findings],
        }


def _describe_problem(finding: Finding) -> dict[str, str]:
    return {"code": finding.code, "severity": finding.severity.value, "message": finding.message}


def import_topology(system: Discovered, *, name: str | None, file: str) -> ImportedTopology:
    """
    The topology called *name* that describes *system*, to be written to *file*.

    The default name is that of the streams' owner. Raises UnknownNameError if several topologies own streams there, and
    RefusedError if what runs is not laid out as a topology with `routing: mapped` is.
    """
    require_mapped_routing(system)
    topology_name = name or _find_owner(system)
    seen = recognise(system, topology_name)
    data, unsaid = topology_document(topology_name, system, seen)
    checked = check_topology(format_yaml(data, (), {}, ()).encode(), file)
    undescribed = [*seen.undescribed, *unsaid, *_list_missing_answers(system, seen)]
    topology = None if any(finding.is_error for finding in checked.findings) else checked.topology
    plan = None
    if topology is not None:
        desired = render_bundle(topology)
        plan = _plan(topology, desired, system)
        undescribed += _list_other_rules(desired, plan, system)
        undescribed += [UndescribedItem(kind="field", name=note.name, text=note.text) for note in plan.notes]
    written = format_yaml(
        data,
        _list_head_comments(system),
        dict((*_note_gaps(system, seen), *_note_buckets(data))),
        undescribed_lines(undescribed),
    )
    owners = {part.stream.config.owner for recognised in seen.virtual for part in recognised.parts}
    durables = {durable for virtual in data["streams"].values() for durable in virtual.get("consumers", {})}
    for consumers in system.consumers.values():
        owners |= {consumer.config.owner for consumer in consumers.values() if consumer.config.durable in durables}
    return ImportedTopology(
        name=topology_name,
        text=written,
        naming=seen.naming.value,
        streams={recognised.name: recognised.consistency.value for recognised in seen.virtual},
        regions=tuple(seen.places.regions),
        undescribed=tuple(undescribed),
        findings=check_topology(written.encode(), file).findings,
        plan=plan,
        adopts=None in owners,
    )


def require_mapped_routing(system: Discovered) -> None:
    """Raises RefusedError if the running streams have another routing than `mapped`."""
    marks = {stream.config.metadata.get(ROUTING_KEY) for stream in system.streams.values()}
    marked = [profile.routing for profile in _HIDING if profile.routing.value in marks]
    if marked:
        raise make_routing_refusal(*marked)
    for rules in system.rules.values():
        for destinations in rules.values():
            for destination in destinations:
                subject = destination.rpartition(" ")[2]
                routings = [profile.routing for profile in _HIDING if subject.startswith(profile.rules_lead_to)]
                if routings:
                    raise make_routing_refusal(*routings)


def make_routing_refusal(*routings: Routing) -> RefusedError:
    """Why a layout of other *routings* is not imported."""
    listed = " or ".join(f"`routing: {routing.value}`" for routing in routings)
    return RefusedError(
        f"what runs is a topology with {listed}, which cannot be imported",
        hint="import reads the streams and mappings of one account. Only vstream creates such a layout: look for its topology",
    )


def _find_owner(system: Discovered) -> str:
    owners = Counter(observed.config.owner for observed in system.streams.values() if observed.config.owner)
    if len(owners) > 1:
        listed = ", ".join(f"`{owner}` ({count} streams)" for owner, count in sorted(owners.items()))
        raise UnknownNameError(f"several topologies run there: {listed}", hint="say which one with `--name`")
    return next(iter(owners), system.lab or UNNAMED)


def _plan(topology: Topology, bundle: Bundle, system: Discovered) -> Plan:
    unread = _list_unread(topology, system)
    observed = Observed(streams=system.streams, rules=system.rules, consumers=system.consumers, unread_servers=unread)
    return diff(topology, bundle, observed, adopt=frozenset({"all"}))


def _list_unread(topology: Topology, system: Discovered) -> tuple[str, ...]:
    """Servers of which nobody said what they have loaded."""
    number = len(topology.seats) - len(system.rules) - len(system.unread)
    return (*system.unread, *((f"{number} without a monitoring address",) if number > 0 else ()))


def _list_other_rules(bundle: Bundle, plan: Plan, system: Discovered) -> Iterator[UndescribedItem]:
    """Loaded rules that the topology does not have: those that lead elsewhere stay, the others the plan removes."""
    ours = {rule.source for rule in bundle.mappings} | {rule.source for rule in plan.rule_changes}
    other_rules: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for server, rules in sorted(system.rules.items()):
        for source, destinations in rules.items():
            if source not in ours and kind_of(source) == RULE:
                other_rules.setdefault((source, destinations), []).append(server)
    for (source, destinations), servers in sorted(other_rules.items()):
        where = "every server" if len(servers) == len(system.rules) else ", ".join(servers)
        text = f"goes to {'; '.join(destinations) or 'nowhere'} on {where}"
        hint = "it is not in the rendered mappings.cfg: keep it in the account beside that"
        yield UndescribedItem(kind="mapping", name=source, text=text, hint=hint)


def _list_missing_answers(system: Discovered, seen: RecognisedTopology) -> Iterator[UndescribedItem]:
    """What the servers did not say, and a topology needs."""
    for recognised in seen.virtual:
        if not recognised.subjects:
            text = "the subjects that clients publish on are not known"
            hint = "name the monitoring addresses of servers with `--monitor`, or fill it in by hand"
            if system.rules:
                hint = "no mapping rule leads to its write streams: fill it in by hand"
            yield UndescribedItem(kind="subjects", name=recognised.name, text=text, hint=hint)
    if system.lab is None:
        reached = {endpoint.cluster for endpoint in system.endpoints}
        for region, cluster in seen.places.regions.items():
            if cluster not in reached:
                text = "no connection leads there"
                hint = "name one of its servers, too: `--server`, or `--context`"
                yield UndescribedItem(kind="region", name=region, text=text, hint=hint)
    for address in system.unread:
        yield UndescribedItem(kind="server", name=address, text="does not answer: its loaded rules are not known")
    if seen.places.stretch and not seen.places.members:
        text = "nothing says in which regions its servers are"
        hint = "list them under `stretch`: `members`"
        yield UndescribedItem(kind="region", name=seen.places.stretch, text=text, hint=hint)


def _list_head_comments(system: Discovered) -> Iterator[str]:
    yield "Written by `vstream init` from what runs. Look at every comment, then: vstream validate, vstream plan"
    if system.lab is None:
        yield "Servers do not tell their host names, ports and disks. Regions have a number of servers; list host names"
        yield "under `servers` if vstream is to render server configurations."
    yield "No server knows the subjects that probes may publish on: see `canary` in docs/topology.md."


def _note_gaps(system: Discovered, seen: RecognisedTopology) -> Iterator[tuple[str, str]]:
    unsure = False
    for region, cluster in seen.places.regions.items():
        count = count_servers(cluster, system)
        is_sure = count.asked == count.at_least
        unsure = unsure or not is_sure
        look = [] if is_sure else [f"are there {count.at_least}?"]
        if not any(region in recognised.regions for recognised in seen.virtual):
            look.append("no virtual stream is here")
        if look:
            yield f"regions.{region}", f"LOOK: {', '.join(look)}"
    if unsure:
        yield "server_version", "LOOK: the oldest server of all regions"
    if seen.places.stretch and not seen.places.members:
        yield "stretch", "LOOK: which regions have a member?"
    for recognised in seen.virtual:
        if not recognised.subjects:
            yield f"streams.{recognised.name}.subjects", "FILL IN: what clients publish on"
        write_streams = [part.stream for part in recognised.parts if part.role is Role.WRITE]
        if not all(stream.config.fields.get("max_age") for stream in write_streams):
            yield f"streams.{recognised.name}.write", "LOOK: without max_age, write streams grow for ever"


def _note_buckets(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for section in ("kv", "objects"):
        for name, bucket in data.get(section, {}).items():
            if "writers" in bucket:
                yield f"{section}.{name}.writers", "LOOK: is each key written in one region only?"


def undescribed_lines(undescribed: Iterable[UndescribedItem]) -> Iterator[str]:
    """What runs and is not in the document, one per line."""
    listed = list(undescribed)
    if not listed:
        return
    yield "What runs, and is not said above:"
    for item in listed:
        yield f"- {item.kind} {item.name}: {item.text}"
        if item.hint:
            yield f"    {item.hint}"
