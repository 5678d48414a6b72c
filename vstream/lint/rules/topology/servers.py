"""Servers and links: names, ports and tags, the members of the stretch cluster, and links between regions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

from vstream.findings import Severity
from vstream.formatting import format_count, quote_names, quote_value
from vstream.lint.rule import Violation, once_per_place, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.syntax.yaml import Path
from vstream.topology import naming
from vstream.topology.model import Ports, Role, Server


@rule("VS110", "tags-do-not-match-servers", Severity.ERROR)
def tags_do_not_match_servers(subject: TopologySubject) -> Iterator[Violation]:
    """
    The number of tag entries or names of a region differs from the number of its servers.

    ## Why is this bad?
    Tags and names are given to servers in order. With a different count, the zone or the name of a server is not known.
    """
    for name, region in subject.document.regions.items():
        if region.tags and len(region.tags) != len(region.servers):
            yield Violation(
                at=("regions", name, "tags"),
                message=f"region `{name}` has {format_count(len(region.servers), 'server')} and "
                f"{len(region.tags)} tag {'entry' if len(region.tags) == 1 else 'entries'}",
                hint="list one entry for each server, in order; use a list for a server with several tags",
            )
        if region.names and len(region.names) != len(region.servers):
            yield Violation(
                at=("regions", name, "names"),
                message=f"region `{name}` has {format_count(len(region.servers), 'server')} and "
                f"{format_count(len(region.names), 'name')}",
                hint="list one name for each server, in order",
            )


@rule("VS119", "port-clash", Severity.ERROR)
def port_clash(subject: TopologySubject) -> Iterator[Violation]:
    """
    Two listeners use the same port of the same host.

    ## Why is this bad?
    The second cannot start. A server needs four different ports, and regions that share a host need different ports.
    """
    topology, stretch = subject.topology, subject.topology.stretch
    owners: list[tuple[str, Path, Ports]] = [
        (f"region `{region.name}`", ("regions", region.name, "ports"), region.ports) for region in topology.regions
    ]
    if stretch is not None:
        owners.append((_STRETCH, ("stretch", "ports"), stretch.ports))
    for owner, at, ports in owners:
        numbers = _list_numbers(ports)
        twice = sorted({port for port in numbers if numbers.count(port) > 1})
        if twice:
            yield Violation(
                at=at,
                message=f"{owner} uses {quote_names(str(port) for port in twice)} twice",
                hint="a server needs four different ports; by default 4222, 8222, 6222 and 7222",
                on_key=True,
            )
    servers: list[tuple[str, Path, Server, Ports]] = []
    for region in topology.regions:
        for index, server in enumerate(region.servers):
            at = ("regions", region.name, "servers", index)
            servers.append((f"region `{region.name}`", at, server, region.ports))
    if stretch is not None:
        members = stretch.members.items()
        servers += ((_STRETCH, ("stretch", "members", name), server, stretch.ports) for name, server in members)
    yield from _check_clashes(servers)


_STRETCH = "the stretch cluster"


def _list_numbers(ports: Ports) -> list[int]:
    return [ports.client, ports.monitor, ports.cluster, ports.gateway]


def _check_clashes(servers: Iterable[tuple[str, Path, Server, Ports]]) -> Iterator[Violation]:
    """*servers*, each with its owner, place and ports, that use a port which another owner's server also uses."""
    owners: dict[tuple[str, int], str] = {}
    for owner, at, server, ports in servers:
        places = [(server.host.lower(), port) for port in _list_numbers(ports)] if server.host else []
        clash = next((place for place in places if owners.setdefault(place, owner) != owner), None)
        if clash:
            host, port = clash
            yield Violation(
                at=at,
                message=f"{owners[clash]} and {owner} both use port {port} of host `{host}`",
                hint="name another host, or give one of them other `ports`",
            )


@rule("VS120", "mixed-addresses", Severity.WARNING)
def mixed_addresses(subject: TopologySubject) -> Iterator[Violation]:
    """
    Some servers have host names, others do not.

    ## Why is this bad?
    Servers without a host name get addresses on 127.0.0.1, as a lab needs. In the rendered server configurations, the
    gateways of other regions would then connect to their own machine. Streams, mappings, `plan`, `apply` and the lab
    are not affected.
    """
    regions = subject.document.regions
    named = [name for name, region in regions.items() if None not in region.servers]
    for name, region in regions.items():
        if named and None in region.servers:
            yield Violation(
                at=("regions", name, "servers"),
                message=(
                    f"region `{name}` has no host names, but region `{named[0]}` has: the rendered server "
                    "configurations cannot work together"
                ),
                hint="list the host names of all regions, or of none",
            )
    stretch = subject.topology.stretch
    if stretch is None or not stretch.members:
        return
    has_hosts = any(server.host for server in stretch.members.values())
    # On Kubernetes, regions have load balancers instead.
    is_reachable = bool(named) or (has_hosts and all(region.gateway for region in regions.values()))
    if has_hosts != is_reachable:
        yield Violation(
            at=("stretch",),
            message="the members of the stretch cluster have "
            + (
                "host names, but the regions' servers have none: "
                if has_hosts
                else "no host names, but the regions' servers do: "
            )
            + "the rendered server configurations cannot work together",
            hint="write `members: {west: w9.example.net, …}` where regions have host names, and only there",
            on_key=True,
        )


@rule("VS122", "placement-tags-not-met", Severity.ERROR)
def placement_tags_not_met(subject: TopologySubject) -> Iterator[Violation]:
    """
    Too few servers of the region have the tags that a stream's replicas need.

    ## Why is this bad?
    The servers answer `no suitable peers for placement`, and `apply` stops there.
    Servers must have all of a stream's placement tags. With `unique_tag`, each server also needs a tag with that
    prefix, and no two replicas are placed on servers with the same tag.
    """
    yield from _check_unique_tag_not_met(subject)
    seen: set[tuple[Path, str]] = set()
    for physical in subject.physical:
        needed = {tag.lower() for tag in physical.fields["placement"].get("tags", ())}
        if not needed:
            continue
        region = subject.topology.region(physical.region)  # the stretch cluster has no tags to ask for
        fitting = sum(needed <= {tag.lower() for tag in server.tags} for server in region.servers)
        replicas = physical.fields["num_replicas"]
        at = subject.locate(physical, "placement_tags")
        # More replicas than servers is VS104's finding.
        if fitting < replicas <= len(region.servers) and (at, region.name) not in seen:
            seen.add((at, region.name))
            yield Violation(
                at=at,
                message=f"stream `{physical.stream}` wants {format_count(replicas, 'server')} with "
                f"{quote_names(sorted(needed))}, region `{region.name}` has {fitting:,}",
                hint=f"give servers these tags under `regions: {{{region.name}: {{tags: …}}}}`, or lower `replicas`",
            )


def _check_unique_tag_not_met(subject: TopologySubject) -> Iterator[Violation]:
    prefix = subject.topology.server_options.unique_tag
    if prefix is None:
        return
    for physical in subject.physical:
        tags = {tag for server in subject.topology.servers_at(physical.region) for tag in server.tags}
        different = sum(tag.lower().startswith(prefix.lower()) for tag in tags)
        replicas = physical.fields["num_replicas"]
        if different < replicas:
            yield Violation(
                at=("server_options", "unique_tag"),
                message=f"stream `{physical.stream}` wants {format_count(replicas, 'server')} with different tags `{prefix}…`, "
                f"`{physical.region}` has {different:,}",
                hint=f"give servers such tags under `regions: {{{physical.region}: {{tags: …}}}}`",
            )
            return


_MIN_SERVERS = 3


@rule("VS128", "stretch-members", Severity.WARNING)
def stretch_members(subject: TopologySubject) -> Iterator[Violation]:
    """
    The stretch cluster has one or two members, or an even number of them.

    ## Why is this bad?
    More than half of the members must be up. A stretch cluster in one or two regions stops if either region is lost,
    which it exists to survive. Three members survive the loss of one region, and so do four; five survive the loss of
    two.
    """
    stretch = subject.topology.stretch
    if stretch is None:
        return
    number = len(stretch.members)
    if number >= _MIN_SERVERS and number % 2:
        return
    survives = "no loss" if number < _MIN_SERVERS else f"the loss of {(number - 1) // 2}, as {number - 1} do"
    written = subject.document.stretch is not None and "members" in subject.document.stretch.model_fields_set
    yield Violation(
        at=("stretch", "members") if written else ("stretch",),
        message=f"a stretch cluster of {format_count(number, 'member')} survives {survives}",
        hint="use three or five members",
        on_key=True,
    )


@rule("VS131", "stretch-single-copy", Severity.WARNING)
@once_per_place
def stretch_single_copy(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream in the stretch cluster has fewer than three replicas.

    ## Why is this bad?
    With one replica it lives in one region, like a homed stream, and stops with it.
    `replicas` applies to all physical streams of a stream; without it, those in the stretch cluster have 3 or 5.
    """
    stretch = subject.topology.stretch
    for physical in subject.physical:
        replicas = physical.fields["num_replicas"]
        if stretch is None or physical.region != stretch.cluster or replicas >= _MIN_SERVERS:
            continue
        # Too few members is VS128's finding.
        if len(stretch.members) >= _MIN_SERVERS:
            word = "order" if physical.role is Role.ORDER else "write"
            yield Violation(
                at=subject.locate(physical, "replicas"),
                message=f"the {physical.role.value} stream of `{physical.stream}` has {format_count(replicas, 'replica')} in the "
                "stretch cluster: the loss of one region can stop it",
                hint=f"write `{word}: {{replicas: 3}}`, or say `replicas` under `read` only",
            )


@rule("VS135", "bad-link", Severity.ERROR)
def bad_link(subject: TopologySubject) -> Iterator[Violation]:
    """
    A link is not between two regions, or is described twice.

    ## Why is this bad?
    The network of a lab would differ from the one in the file, which would invalidate its measurements.
    """
    regions = subject.document.regions
    seen: dict[frozenset[str], str] = {}
    for key in subject.document.links:
        if key == naming.DEFAULT_LINK:
            continue
        ends = naming.link_ends(key, regions)
        message, hint = _explain(key, ends, regions)
        if message is None and (first := seen.setdefault(frozenset(ends[0]), key)) != key:
            message = f"{quote_value(key)} is the same link as {quote_value(first)}"
            hint = "keep one of them: each describes both directions"
        if message is not None:
            yield Violation(at=("links", key), message=message, hint=hint, on_key=True)


def _explain(key: str, ends: Collection[tuple[str, str]], regions: Collection[str]) -> tuple[str | None, str | None]:
    match ends:
        case [(near, far)] if near == far:
            return f"{quote_value(key)} links a region to itself", "links are between regions, as `west-east`"
        case [_]:
            return None, None
        case [] if len(regions) <= 1:
            return f"{quote_value(key)} is not a link: there is only one region", "remove it"
        case []:
            slash, dash = naming.LINK_SEPARATORS
            separator = slash if any(dash in region for region in regions) else dash
            pairs = [f"{near}{separator}{far}" for near in regions for far in regions if near != far]
            close = get_close_matches(key, pairs, n=1)
            hint = (
                f"did you mean `{close[0]}`?"
                if close
                else f"write it like `{pairs[0]}`; regions: {quote_names(regions)}"
            )
            return f"{quote_value(key)} is not a link between two regions", hint
    meant = " or ".join(f"`{near}` and `{far}`" for near, far in ends)
    return (
        f"{quote_value(key)} is ambiguous: it can be the link of {meant}",
        "write `/` between the two regions: names never contain it",
    )
