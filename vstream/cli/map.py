"""`vstream map`."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType

from vstream.cli import options
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.lazy_group import OverlayFiles, load_late, refuse_named, set_overlays
from vstream.cli.views import console
from vstream.cli.views import map as view
from vstream.cli.views.console import stdout
from vstream.cli.views.json_output import print_json
from vstream.lint import input_files
from vstream.lint.publishing_client import PublishingClient, list_streams, load_workspace, require_client
from vstream.lint.simulate import Refusal, refusals_of, tabulate_account
from vstream.lint.workspace import Workspace
from vstream.subjects.account_flow import GLOBAL_ACCOUNT, AccountFlow
from vstream.subjects.algebra import is_literal
from vstream.topology import naming, physical


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
    output_format: Annotated[
        Literal["text", "json"], typer.Option("--format", help="How the answer is written.")
    ] = "text",
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
    set_overlays(overlay)
    regions = region or []
    if is_trace:
        refuse_named(context, "has no effect with --trace", "is_all", "stream", "account")
        paths = _name_files(subject, files, is_all=False)
        is_json = output_format == "json"
        load_late("vstream.cli.map_trace").print_trace(subject, paths, regions, lab, timeout=timeout, is_json=is_json)
        return
    refuse_named(context, "needs --trace", "timeout", "lab")
    if len(regions) > 1:
        raise typer.BadParameter("name one region; several need --trace", param_hint="--region")
    place = next(iter(regions), None)
    if stream is not None:
        _print_streams(
            stream, [name for name in (subject, *(files or ())) if name], place, is_json=output_format == "json"
        )
        return
    client = require_client(read_workspace(_name_files(subject, files, is_all=is_all)), place, account)
    clusters = client.clusters_of_rules
    if place is not None and clusters and client.cluster not in clusters:
        note = f"note: no rule names the cluster `{client.cluster}`; there are {', '.join(clusters)}"
        console.print_warning(note)
    if subject is not None and not is_all:
        answer = client.publish(subject)
        _print(output_format, "map", view.as_dict(answer), view.render_resolution(answer))
        refusals = answer.refusals
    else:
        refusals = _print_all(client, client.cluster if place else None, output_format)
    exit_unless_yes(is_no=bool(refusals))


def read_workspace(names: Sequence[str]) -> Workspace:
    """The files *names*, with what a topology among them renders to. Raises VstreamError."""
    gc.disable()  # As in `vstream lint`: large trees without cycles.
    roots = input_files.Roots(names)
    return load_workspace(input_files.read_sources(names, roots=roots), roots.read, options.read_overlays())


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


def _print_streams(stream: str, files: list[str], region: str | None, *, is_json: bool) -> None:
    """The physical streams behind the virtual *stream*, or the name alone by which clients in *region* read it."""
    if len(files) > 1:
        raise typer.BadParameter("name one topology", param_hint="FILES")
    topology = options.check_topology_file(Path(files[0]) if files else options.default_file()).require()
    virtual = options.require_virtual_stream(topology, stream, [region] if region else [])
    if is_json:
        regions = [region] if region else virtual.regions
        print_json("map-stream", {"regions": [view.region_as_dict(topology, virtual, name) for name in regions]})
    elif region is not None:
        typer.echo(naming.local_name(physical.read_stream_in(virtual, region)))
    else:
        stdout().print(view.render_streams(topology, virtual))


def _print_all(client: PublishingClient, cluster: str | None, output_format: str) -> tuple[Refusal, ...]:
    refusals = tuple(refusals_of(client.block))
    flow = client.flow or AccountFlow({}, ())
    rows = tabulate_account(client.block, flow, list_streams(client.workspace, flow), cluster)
    name = client.block.account or GLOBAL_ACCOUNT
    content = view.account_as_dict(name, cluster, rows, refusals)
    _print(output_format, "map-all", content, view.render_accounts(name, cluster, rows, refusals))
    return refusals


def _print(output_format: str, name: str, content: dict[str, Any], lines: Iterable[RenderableType]) -> None:
    if output_format == "json":
        print_json(name, content)
        return
    console.print_lines(lines)
