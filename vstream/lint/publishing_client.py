"""Which server, rules and cluster a client has that publishes: files may be of many servers, and of several accounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vstream.errors import InvalidInputError, UnknownNameError, VstreamError
from vstream.lint.check_topology import check_topology
from vstream.lint.parse_files import Read, Source, parse_sources
from vstream.lint.reading.accounts import find_account_flow, index_accounts_without_rules, make_empty_block
from vstream.lint.reading.leafnodes import read_leaf_links, read_leaf_side
from vstream.lint.rules.server_values import has_operator
from vstream.lint.simulate import ListeningStream, Simulation, simulate
from vstream.lint.workspace import MappingsBlock, ServerConf, Workspace
from vstream.render.pipeline import render_bundle
from vstream.subjects.account_flow import GLOBAL_ACCOUNT, AccountFlow
from vstream.topology.bundle import loaded_path, placeholder_for
from vstream.value_class import value_class

_MAX_NAMED = 5


@value_class
class PublishingClient:
    """A client that publishes, as far as files tell; *server* and *cluster* are None where that is not clear."""

    workspace: Workspace
    server: ServerConf | None
    block: MappingsBlock
    """The rules of its account."""
    cluster: str | None
    flow: AccountFlow | None
    """How messages go from its account to others, where that is known."""

    @property
    def clusters_of_rules(self) -> tuple[str, ...]:
        """The clusters that the rules name, where nothing else says which ones exist."""
        names = {name for entry in self.block.entries for name in entry.clusters}
        return () if self.workspace.cluster_names else tuple(sorted(names))

    def publish(self, subject: str) -> Simulation:
        """What servers do with a publish to the literal *subject*."""
        origin = read_leaf_side(self.server, self.block.account or GLOBAL_ACCOUNT) if self.server else None
        return simulate(
            self.block,
            subject,
            self.cluster,
            self.workspace.cluster_names,
            self.flow,
            origin=origin,
            leaf_links=read_leaf_links(self.workspace),
        )


def load_workspace(sources: Iterable[Source], read: Read, overlays: Mapping[str, bytes] | None) -> Workspace:
    """The files *sources*, with what a topology among them, below *overlays*, renders to. Raises VstreamError."""
    parsed = parse_sources(sources, read=read)
    topology = None
    for source in parsed.topologies:
        if topology is not None:
            raise VstreamError("there are two topologies among the files", hint="name one of them")
        topology = check_topology(source.content, source.name, overlays).require()
        path = loaded_path(topology)
        rendered = render_bundle(topology).text(path).encode()
        # Passwords, which it includes, are not in a bundle.
        more = parse_sources(
            [Source(name=f"{source.name}/{path}", content=rendered)],
            read=lambda name: (placeholder_for(name) or "").encode(),
        )
        parsed.servers += more.servers
        parsed.claims += more.claims
    unreadable = next((finding for finding in parsed.findings if finding.code == "VS004"), None)
    if unreadable is not None and unreadable.span:
        raise VstreamError(f"{unreadable.span.file}: {unreadable.message}", hint=unreadable.hint)
    if any(finding.is_error for finding in parsed.findings):
        raise InvalidInputError(parsed.findings)
    return parsed.workspace(topology)


def require_client(workspace: Workspace, region: str | None, account: str | None) -> PublishingClient:
    """
    The client that publishes in *account*, where *region* is its region, its cluster, or the name of its server.

    Raises VstreamError where the files leave open whose rules are meant.
    """
    server = _find_server(workspace, account, region)
    block = _find_block(workspace, account, server)
    cluster = _find_cluster(workspace, block, server, region)
    flow = find_account_flow(workspace, block.account, cluster)
    return PublishingClient(workspace=workspace, server=server, block=block, cluster=cluster, flow=flow)


def list_streams(workspace: Workspace, flow: AccountFlow) -> list[ListeningStream]:
    """The streams of the files and of the topology."""
    streams = []
    for file in workspace.streams:
        streams.append(ListeningStream(name=file.config.name, account=None, subjects=file.config.subjects))
    topology = workspace.topology
    clusters = {region.name: region.cluster for region in topology.regions} if topology else {}
    for rendered in render_bundle(topology).streams if topology else ():
        # An account of leaf nodes, which clients of their own cluster reach.
        is_beyond = rendered.account is not None and rendered.account not in flow.tables
        stream = ListeningStream(
            name=rendered.config.name,
            account=None if is_beyond else rendered.account,
            cluster=clusters.get(rendered.region) if is_beyond else None,
            subjects=rendered.config.subjects,
        )
        streams.append(stream)
    return streams


def _find_server(workspace: Workspace, account: str | None, region: str | None) -> ServerConf | None:
    """The server that the client is connected to: one of the cluster *region*, or called so, or the only one."""
    servers = [server for server in workspace.servers if not server.is_fragment]
    if region is not None:
        named = [server for server in servers if server.server_name and server.server_name.text == region]
        of_cluster = [server for server in servers if server.cluster_name and server.cluster_name.text == region]
        servers = of_cluster or named
    holding = [server for server in servers if any(account == conf.name for conf in server.accounts)]
    servers = holding or servers
    return servers[0] if servers and (region is not None or len(servers) == 1) else None


def _find_block(workspace: Workspace, account: str | None, server: ServerConf | None) -> MappingsBlock:
    """The rules of the client's account. Raises VstreamError where it is not clear which are meant."""
    is_signed = any(has_operator(server) for server in workspace.servers)
    blocks = [block for block in workspace.blocks if account in {None, block.account or GLOBAL_ACCOUNT}]
    if is_signed and account is None:
        # No client is in the global account, whose rules these are.
        blocks = [block for block in blocks if block.account is not None]
    if len(blocks) == 1 and (server is None or len(workspace.servers) == 1):
        return blocks[0]
    if server is not None:
        places = {block.key_span for block in server.mappings}
        of_server = [block for block in blocks if block.key_span in places]
        is_clear = account is not None or not server.accounts
        if not of_server and is_clear and _is_leaf_bound(workspace, server, account):
            return make_empty_block(server.file, account, server.root.span)
        blocks = of_server or blocks
    if len(blocks) == 1:
        return blocks[0]
    without_rules = index_accounts_without_rules(workspace)
    if account in without_rules:
        return without_rules[account]
    if not blocks and account is None and len(without_rules) == 1:
        return next(iter(without_rules.values()))
    accounts = sorted({block.account for block in workspace.blocks if block.account} | without_rules.keys())
    if not blocks:
        raise _explain_no_rules(account, accounts, is_signed=is_signed)
    spans = [block.key_span for block in blocks[:_MAX_NAMED]]
    listed = ", ".join(f"{span.file}:{span.line}:{span.column}" for span in spans)
    several = accounts if account is None and len(accounts) > 1 else []
    hint = f"choose one with --account: {', '.join(several)}" if several else _list_servers(workspace, blocks)
    raise VstreamError(f"the files have {len(blocks)} blocks of mappings: {listed}", hint=hint)


def _explain_no_rules(account: str | None, accounts: Sequence[str], *, is_signed: bool) -> VstreamError:
    if is_signed and not accounts:
        return VstreamError(
            "what servers do with it is not known: an operator has signed the accounts",
            hint="name the JWTs of the accounts too, or their claims as JSON",
        )
    hint = f"the accounts are {', '.join(accounts)}" if accounts else "name a file with `mappings`"
    return VstreamError("the files have no mappings" + (f" of account `{account}`" if account else ""), hint=hint)


def _list_servers(workspace: Workspace, blocks: Sequence[MappingsBlock]) -> str:
    """How to choose between *blocks* of one account."""
    spans = {block.key_span for block in blocks}
    holders = [server for server in workspace.servers if any(block.key_span in spans for block in server.mappings)]
    names = {server.server_name.text for server in holders if server.server_name and server.server_name.text}
    return f"choose a server with --region: {', '.join(sorted(names))}" if len(names) > 1 else "name one file"


def _is_leaf_bound(workspace: Workspace, server: ServerConf, account: str | None) -> bool:
    """Whether a leaf node connection brings messages to *account* of *server*, or takes them."""
    side = read_leaf_side(server, account or GLOBAL_ACCOUNT)
    ends = {(end.system, end.account) for link in read_leaf_links(workspace) for end in (link.hub, link.leaf)}
    return (side.system, side.account) in ends


def _find_cluster(
    workspace: Workspace, block: MappingsBlock, server: ServerConf | None, region: str | None
) -> str | None:
    """The cluster of *region*; without one, that of the servers with the rules, such as of none where they are of a leaf node."""
    if server is not None and server.server_name and server.server_name.text == region:
        return server.cluster_name.text if server.cluster_name else None
    if region is None:
        servers = [server for server in workspace.servers if not server.is_fragment]
        holders = [
            server for server in servers if block.key_span in {mappings.key_span for mappings in server.mappings}
        ]
        names = {server.cluster_name.text for server in holders or servers if server.cluster_name}
        names.discard(None)
        return names.pop() if len(names) == 1 else None
    regions = workspace.topology.regions if workspace.topology else ()
    by_region = {place.name: place.cluster for place in regions}
    cluster = by_region.get(region, region)
    if workspace.cluster_names and cluster not in workspace.cluster_names:
        raise UnknownNameError(f"no cluster is called `{cluster}`; there are {', '.join(workspace.cluster_names)}")
    return cluster
