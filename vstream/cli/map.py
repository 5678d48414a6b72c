"""`vstream map`."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table

from vstream.cli import files as input_files
from vstream.cli import options
from vstream.cli.exit_codes import NO
from vstream.cli.lazy_group import OverlayFiles, choose_overlays, load_mode, refuse_named
from vstream.cli.views import console, mapping
from vstream.cli.views.cleaning import clean
from vstream.cli.views.console import stdout
from vstream.cli.views.diagnostics import place
from vstream.cli.views.json_output import print_json
from vstream.errors import InvalidInputError, UnknownNameError, VstreamError
from vstream.lint.load_topology import load, render_bundle
from vstream.lint.read import Source, gather
from vstream.lint.reading.accounts import accounts_without_rules, empty_block, find_account_flow
from vstream.lint.reading.leafnodes import leaf_side, read_leaf_links
from vstream.lint.rules.server_values import has_operator
from vstream.lint.simulate import ListeningStream, Refusal, Simulation, refusals_of, simulate, tabulate_account
from vstream.lint.workspace import MappingsBlock, ServerConf, Workspace
from vstream.subjects.account_flow import GLOBAL_ACCOUNT, AccountFlow
from vstream.subjects.algebra import is_literal
from vstream.topology import naming, physical
from vstream.topology.bundle import loaded_path, placeholder_for
from vstream.topology.model import Topology, VirtualStream


def command(
    context: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(help="The subject that a client publishes to, without wildcards; not with --all or --stream."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Configurations, account claims or a topology; `-` reads standard input."),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region", "--cluster", "-r", help="The client's region, cluster or server; --trace takes several."
        ),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", help="The account that publishes, where the files have several.")
    ] = None,
    is_all: Annotated[
        bool, typer.Option("--all", help="Instead of a subject: every rule, import and export of the account.")
    ] = False,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream", help="Instead of a subject: the physical streams behind this virtual stream of a topology."
        ),
    ] = None,
    is_trace: Annotated[
        bool,
        typer.Option("--trace", help="Also show what live servers of a topology do. Nothing is stored or delivered."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="With --trace: seconds until every server has answered.", min=0.1, max=60)
    ] = 3,
    lab: options.LabName = None,
    overlay: OverlayFiles = None,
    output: Annotated[Literal["text", "json"], typer.Option("--format", help="How the answer is written.")] = "text",
) -> None:
    """
    Show what servers do with a publish: which rule they choose, where the message goes, in every cluster and account.

    Exits with 1 if `nats-server -t` refuses the mappings; the answer then leaves out the rules that are refused. Exits with 3 if
    a file cannot be read.

    `--stream` prints what is published into and read from in each region; with `--region`, only the name by
    which clients there read it. Consumers are created on that: with `mapped`, servers refuse the virtual name.

    `--trace` publishes through every address of each region, or of each `--region`. Each server that sees it says what it
    does: maps it, hands it to another server or account, would store it. A trace ends at an account whose export lacks
    `allow_trace`. Exits with 1 where something differs, and with 3 where something cannot be known or a server is older
    than 2.11.

    Examples: `vstream map foo.a.b --region west mappings.cfg`, `vstream map '$JS.API.STREAM.INFO.foo' acme.yaml`,
    `vstream map --all acme.yaml`, `nats consumer add $(vstream map --stream foo --region west) worker`,
    `vstream map foo.a --trace --region west`
    """
    choose_overlays(overlay)
    regions = region or []
    if is_trace:
        refuse_named(context, "has no effect with --trace", "is_all", "stream", "account")
        paths = _name_files(subject, files, is_all=False)
        is_json = output == "json"
        load_mode("vstream.cli.trace").print_trace(subject, paths, regions, lab, timeout=timeout, is_json=is_json)
        return
    refuse_named(context, "needs --trace", "timeout", "lab")
    if len(regions) > 1:
        raise typer.BadParameter("name one region; several need --trace", param_hint="--region")
    place_of_client = next(iter(regions), None)
    if stream is not None:
        _print_streams(stream, [name for name in (subject, *(files or ())) if name], place_of_client, output)
        return
    paths = _name_files(subject, files, is_all=is_all)
    if subject is not None and not is_all:
        answer = simulate_publish(subject, load_workspace(paths), place_of_client, account)
        _print(output, "map", mapping.as_json(answer), mapping.text(answer))
        refusals = answer.refusals
    else:
        workspace = load_workspace(paths)
        block, _, cluster, flow = _choose(workspace, account, place_of_client)
        refusals = _print_all(workspace, block, flow, cluster if place_of_client else None, output)
    if refusals:
        raise typer.Exit(NO)


def simulate_publish(subject: str, workspace: Workspace, region: str | None, account: str | None) -> Simulation:
    """What servers do with a publish to the literal *subject*, by the files of *workspace*. Raises VstreamError."""
    block, server, cluster, flow = _choose(workspace, account, region)
    origin = leaf_side(server, block.account or GLOBAL_ACCOUNT) if server else None
    links = read_leaf_links(workspace)
    return simulate(block, subject, cluster, workspace.cluster_names, flow, origin=origin, leaf_links=links)


def _choose(
    workspace: Workspace, account: str | None, region: str | None
) -> tuple[MappingsBlock, ServerConf | None, str | None, AccountFlow | None]:
    server = _server(workspace, account, region)
    block = _block(workspace, account, server)
    cluster = _cluster(workspace, block, server, region)
    return block, server, cluster, find_account_flow(workspace, block.account, cluster)


def _name_files(subject: str | None, files: list[str] | None, *, is_all: bool) -> list[str]:
    """The files that are meant. Raises BadParameter where there are none, or *subject* is none."""
    if is_all:
        return [name for name in (subject, *(files or ())) if name] or [str(options.default_file())]
    if subject is None:
        raise typer.BadParameter("name a subject, or use --all or --stream", param_hint="SUBJECT")
    if not is_literal(subject):
        message = f"`{subject}` is not a subject that one can publish to: no wildcards, spaces or empty tokens"
        raise typer.BadParameter(message, param_hint="SUBJECT")
    return files or [str(options.default_file())]


def _print_streams(stream: str, files: list[str], region: str | None, output: str) -> None:
    if len(files) > 1:
        raise typer.BadParameter("name one topology", param_hint="FILES")
    path = Path(files[0]) if files else options.default_file()
    print_places(options.load_topology(path).require(), stream, region, is_json=output == "json")


def _print_all(
    workspace: Workspace, block: MappingsBlock, flow: AccountFlow | None, cluster: str | None, output: str
) -> tuple[Refusal, ...]:
    refusals = tuple(refusals_of(block))
    flow = flow or AccountFlow({}, ())
    rows = tabulate_account(block, flow, _streams(workspace, flow), cluster)
    name = block.account or GLOBAL_ACCOUNT
    content = mapping.account_json(name, cluster, rows, refusals)
    _print(output, "map-all", content, mapping.account_text(name, cluster, rows, refusals))
    return refusals


def _streams(workspace: Workspace, flow: AccountFlow) -> list[ListeningStream]:
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


def _print(output: str, name: str, content: dict[str, Any], lines: Iterable[RenderableType]) -> None:
    if output == "json":
        print_json(name, content)
        return
    console.print_lines(lines)


def load_workspace(names: Sequence[str]) -> Workspace:
    """The files *names*, with what a topology among them renders to. Raises VstreamError."""
    gc.disable()  # As in `vstream lint`: large trees without cycles.
    roots = input_files.Roots(names)
    gathered = gather(input_files.read_sources(names, roots=roots), read=roots.read)
    topology = None
    for source in gathered.topologies:
        if topology is not None:
            raise VstreamError("there are two topologies among the files", hint="name one of them")
        topology = load(source.content, source.name, options.read_overlays()).require()
        path = loaded_path(topology)
        rendered = render_bundle(topology).text(path).encode()
        # Passwords, which it includes, are not in a bundle.
        more = gather(
            [Source(name=f"{source.name}/{path}", content=rendered)],
            read=lambda name: (placeholder_for(name) or "").encode(),
        )
        gathered.servers += more.servers
        gathered.claims += more.claims
    unreadable = next((finding for finding in gathered.diagnostics if finding.code == "VS004"), None)
    if unreadable is not None and unreadable.span:
        raise VstreamError(f"{clean(unreadable.span.file)}: {unreadable.message}", hint=unreadable.hint)
    if any(finding.is_error for finding in gathered.diagnostics):
        raise InvalidInputError(gathered.diagnostics)
    return gathered.workspace(topology)


def _server(workspace: Workspace, account: str | None, region: str | None) -> ServerConf | None:
    """The server that the client is connected to: one of the cluster *region*, or called so, or the only one."""
    servers = [server for server in workspace.servers if not server.is_fragment]
    if region is not None:
        named = [server for server in servers if server.server_name and server.server_name.text == region]
        of_cluster = [server for server in servers if server.cluster_name and server.cluster_name.text == region]
        servers = of_cluster or named
    holding = [server for server in servers if any(account == conf.name for conf in server.accounts)]
    servers = holding or servers
    return servers[0] if servers and (region is not None or len(servers) == 1) else None


def _block(workspace: Workspace, account: str | None, server: ServerConf | None) -> MappingsBlock:
    """The mappings that are meant. Raises VstreamError where that is not clear."""
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
        if not of_server and is_clear and _is_bound(workspace, server, account):
            return empty_block(server.file, account, server.root.span)
        blocks = of_server or blocks
    if len(blocks) == 1:
        return blocks[0]
    without_rules = accounts_without_rules(workspace)
    if account in without_rules:
        return without_rules[account]
    if not blocks and account is None and len(without_rules) == 1:
        return next(iter(without_rules.values()))
    accounts = sorted({block.account for block in workspace.blocks if block.account} | without_rules.keys())
    if not blocks:
        if is_signed and not accounts:
            raise VstreamError(
                "what servers do with it is not known: an operator has signed the accounts",
                hint="name the JWTs of the accounts too, or their claims as JSON",
            )
        hint = f"the accounts are {', '.join(accounts)}" if accounts else "name a file with `mappings`"
        raise VstreamError("the files have no mappings" + (f" of account `{account}`" if account else ""), hint=hint)
    listed = ", ".join(place(block.key_span) for block in blocks[:5])
    several = accounts if account is None and len(accounts) > 1 else []
    hint = f"choose one with --account: {', '.join(several)}" if several else _list_servers(workspace, blocks)
    raise VstreamError(f"the files have {len(blocks)} blocks of mappings: {listed}", hint=hint)


def _list_servers(workspace: Workspace, blocks: Sequence[MappingsBlock]) -> str:
    """How to choose between *blocks* of one account."""
    spans = {block.key_span for block in blocks}
    holders = [server for server in workspace.servers if any(block.key_span in spans for block in server.mappings)]
    names = {server.server_name.text for server in holders if server.server_name and server.server_name.text}
    return f"choose a server with --region: {', '.join(sorted(names))}" if len(names) > 1 else "name one file"


def _is_bound(workspace: Workspace, server: ServerConf, account: str | None) -> bool:
    """Whether a leaf node connection brings messages to *account* of *server*, or takes them."""
    side = leaf_side(server, account or GLOBAL_ACCOUNT)
    ends = {(end.system, end.account) for link in read_leaf_links(workspace) for end in (link.hub, link.leaf)}
    return (side.system, side.account) in ends


def _cluster(workspace: Workspace, block: MappingsBlock, server: ServerConf | None, region: str | None) -> str | None:
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
    by_region = {place_of_region.name: place_of_region.cluster for place_of_region in regions}
    cluster = by_region.get(region, region)
    if workspace.cluster_names and cluster not in workspace.cluster_names:
        raise UnknownNameError(f"no cluster is called `{cluster}`; there are {', '.join(workspace.cluster_names)}")
    clusters = sorted({name for entry in block.entries for name in entry.clusters})
    if not workspace.cluster_names and clusters and cluster not in clusters:
        console.print_note(
            f"note: no rule names the cluster `{cluster}`; there are {', '.join(clusters)}", style="yellow"
        )
    return cluster


def print_places(topology: Topology, stream: str, region: str | None, *, is_json: bool) -> None:
    """
    Print the physical streams behind the virtual *stream*: a table, or the name alone by which clients in *region* read it.

    Raises UnknownNameError if *topology* has no such stream, or the stream is not in *region*.
    """
    virtual = next((candidate for candidate in topology.streams if candidate.name == stream), None)
    if virtual is None:
        names = ", ".join(candidate.name for candidate in topology.streams)
        raise UnknownNameError(f"there is no virtual stream `{stream}`", hint=f"there are {names}" if names else None)
    if region is not None and region not in virtual.regions:
        raise UnknownNameError(f"`{stream}` is not in region `{region}`", hint=f"it is in {', '.join(virtual.regions)}")
    places = [_describe_place(topology, virtual, name) for name in virtual.regions if region in {None, name}]
    if is_json:
        print_json("map-stream", {"regions": places})
    elif region is not None:
        typer.echo(naming.local_name(places[0]["read"]))
    else:
        stdout().print(region_table(places))


def _describe_place(topology: Topology, stream: VirtualStream, region: str) -> dict[str, Any]:
    origin = next(iter(stream.origin), None)
    into = physical.write_stream_in(stream, region)
    # The home of a homed stream has no mirror of it: there it is read itself.
    read = physical.read_stream_in(stream, region)
    return {
        "region": region,
        "published_into": into,
        "subjects": list(physical.write_subjects(topology, stream, origin or region)),
        "read": read,
    }


def region_table(places: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each region."""
    rows = Table(box=box.SIMPLE_HEAD)
    for column in ("region", "published into", "as", "read from"):
        rows.add_column(column, overflow="fold")
    for entry in places:
        rows.add_row(entry["region"], entry["published_into"], "\n".join(entry["subjects"]), entry["read"])
    return rows
