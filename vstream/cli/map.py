"""`vstream map`."""

from __future__ import annotations

import gc
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli.exit_codes import NO
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.lint.workspace import MappingsBlock, Workspace


class MapFormat(StrEnum):
    """How the answer is written."""

    TEXT = "text"
    JSON = "json"


def command(
    subject: Annotated[str, typer.Argument(help="The subject that a client publishes to, without wildcards.")],
    files: Annotated[
        list[str], typer.Argument(help="Configurations, account claims or a topology; `-` reads standard input.")
    ],
    region: Annotated[
        str | None,
        typer.Option("--region", "--cluster", help="The region, or cluster, that the client is connected to."),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", help="The account, where the files have mappings of several.")
    ] = None,
    output: Annotated[MapFormat, typer.Option("--format", help="How the answer is written.")] = MapFormat.TEXT,
) -> None:
    """
    Say what servers do with a publish: which rule they choose, where the message goes, in every cluster.

    Exits with 1 if `nats-server -t` refuses the mappings; the answer is for what is left of them then. Exits with 3 if
    a file cannot be read.

    Examples: `vstream map foo.a.b --region west mappings.cfg`, `vstream map '$JS.API.STREAM.INFO.foo' acme.yaml`
    """
    from vstream.cli.views import (  # noqa: PLC0415
        console,
        mapping,
    )
    from vstream.lint.simulate import simulate  # noqa: PLC0415 - the whole core
    from vstream.subjects.algebra import is_literal  # noqa: PLC0415

    if not is_literal(subject):
        message = f"`{subject}` is not a subject that one can publish to: no wildcards, spaces or empty tokens"
        raise typer.BadParameter(message, param_hint="SUBJECT")
    gc.disable()  # As in `vstream lint`: large trees without cycles.
    workspace = _workspace(files)
    block = _block(workspace, account)
    answer = simulate(block, subject, _cluster(workspace, block, region), workspace.cluster_names)
    if output is MapFormat.JSON:
        print_json("map", mapping.as_json(answer))
    else:
        for line in mapping.text(answer):
            console.stdout().print(line)
    if answer.refusals:
        raise typer.Exit(NO)


def _workspace(names: Sequence[str]) -> Workspace:
    from vstream.cli import files  # noqa: PLC0415
    from vstream.cli.lint import surroundings  # noqa: PLC0415
    from vstream.cli.views.cleaning import clean  # noqa: PLC0415
    from vstream.errors import InvalidInputError, VstreamError  # noqa: PLC0415
    from vstream.lint.load_topology import load, render_bundle  # noqa: PLC0415
    from vstream.lint.read import Source, gather  # noqa: PLC0415
    from vstream.topology.bundle import loaded_path, placeholder_for  # noqa: PLC0415

    around = surroundings()
    gathered = gather(files.read_sources(names), read=around.read, env=around.env)
    topology = None
    for source in gathered.topologies:
        if topology is not None:
            raise VstreamError("there are two topologies among the files", hint="name one of them")
        topology = load(source.content, source.name).require()
        path = loaded_path(topology)
        rendered = render_bundle(topology).text(path).encode()
        # Passwords, which it includes, are not in a bundle.
        more = gather(
            [Source(name=f"{source.name}/{path}", content=rendered)],
            read=lambda name: (placeholder_for(name) or "").encode(),
        )
        gathered.servers += more.servers
        gathered.claims += more.claims
    unreadable = next((one for one in gathered.diagnostics if one.code == "VS004" and one.span), None)
    if unreadable is not None and unreadable.span:
        raise VstreamError(f"{clean(unreadable.span.file)}: {unreadable.message}", hint=unreadable.hint)
    if any(one.is_error for one in gathered.diagnostics):
        raise InvalidInputError(gathered.diagnostics)
    return gathered.workspace(topology)


def _block(workspace: Workspace, account: str | None) -> MappingsBlock:
    """The mappings that are meant. Raises VstreamError where that is not clear."""
    from vstream.cli.views.diagnostics import place  # noqa: PLC0415
    from vstream.errors import VstreamError  # noqa: PLC0415

    found = [one for one in workspace.blocks if account is None or one.account == account]
    if len(found) == 1:
        return found[0]
    accounts = sorted({one.account for one in workspace.blocks if one.account})
    if not found:
        known = f"the accounts with mappings are {', '.join(accounts)}" if accounts else "name a file with `mappings`"
        raise VstreamError("the files have no mappings" + (f" of account `{account}`" if account else ""), hint=known)
    places = ", ".join(place(one.key_span) for one in found[:5])
    hint = f"choose one with --account: {', '.join(accounts)}" if len(accounts) > 1 else "name one file"
    raise VstreamError(f"the files have {len(found)} blocks of mappings: {places}", hint=hint)


def _cluster(workspace: Workspace, block: MappingsBlock, region: str | None) -> str | None:
    """The cluster of *region*; without one, that of the only server."""
    from vstream.cli.views import console  # noqa: PLC0415

    if region is None:
        names = {one.cluster_name.text for one in workspace.servers if one.cluster_name and one.cluster_name.text}
        return names.pop() if len(names) == 1 else None
    by_region = {one.name: one.cluster for one in workspace.topology.regions} if workspace.topology else {}
    cluster = by_region.get(region, region)
    known = workspace.cluster_names or sorted({name for one in block.entries for name in one.clusters})
    if known and cluster not in known:
        named = "no cluster is called" if workspace.cluster_names else "no rule names the cluster"
        console.print_note(f"note: {named} `{cluster}`; there are {', '.join(known)}", style="yellow")
    return cluster
