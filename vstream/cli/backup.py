"""`vstream backup`: take one, and restore it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vstream.backup.directory import BackupDirectory
from vstream.backup.restore import RestoreRequest, restore_backup
from vstream.backup.take import BackupRequest, take_backup
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.views import backup as view
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import show_steps
from vstream.servers.bundles import provide_bundle
from vstream.servers.find_servers import find_and_trust_servers

Directory = Annotated[Path, typer.Argument(help="The directory of the backup.", metavar="DIR")]


def take(
    directory: Directory,
    file: options.TopologyFile = options.DEFAULT_FILE,
    stream: options.StreamNames = None,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Write virtual streams of all regions into a new directory, with their consumers, at one cut.

    Nothing stops meanwhile. `vstream audit DIR` checks what it holds, `vstream backup restore DIR` puts it onto empty servers.
    Stopped before its end, it is not finished, and never restored. All regions must answer.

    Examples: `vstream backup take /backups/2026-11-26`, `vstream backup take --stream foo foo-backup acme.yaml`
    """
    source = options.read_topology_file(file)
    loaded = source.parse().require()
    names, servers = options.choose_streams(loaded, stream), find_and_trust_servers(loaded, lab)
    streams = [part for part in provide_bundle(loaded, servers, None).streams if part.virtual in names]
    request = BackupRequest(topology=loaded, text=source.content, streams=streams, endpoints=servers.endpoints)
    with show_steps() as show:
        record = run(take_backup(request, BackupDirectory(directory), show))
    if output_format == "json":
        print_json("backup", view.backup_as_dict(record, directory))
        return
    console.print_lines(view.describe_backup(record, directory))


def restore(
    directory: Directory,
    topology: Annotated[
        Path | None,
        typer.Argument(
            help="The topology file. Default: the one in the backup.", metavar="FILE", envvar="VSTREAM_TOPOLOGY"
        ),
    ] = None,
    yes: options.Yes = False,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Restore a backup onto servers that have none of its streams: all of them, with their consumers where they were.

    Start the servers with the files that `vstream render` writes, or a lab; do not `apply`. Files of the backup are checked first.
    Keep clients stopped until it has ended. Stopped anywhere, run it again. Then `vstream audit` compares all regions.

    Exits with 1 if the backup was not finished, or streams exist. Changes nothing without `--yes`.

    Examples: `vstream backup restore /backups/2026-11-26`, `vstream backup restore foo-backup acme.yaml --yes`
    """
    source = BackupDirectory(directory)
    record = source.read()
    source.verify(record)
    loaded = options.check_topology_file(topology or directory / "topology.yaml").require()
    servers = find_and_trust_servers(loaded, lab)
    streams = provide_bundle(loaded, servers, None).streams
    request = RestoreRequest(
        directory=source,
        record=record,
        topology=loaded,
        streams=streams,
        endpoints=servers.endpoints,
        is_approved=yes,
    )
    with show_steps() as show:
        state = run(restore_backup(request, show))
    if output_format == "json":
        print_json("restore", view.restore_as_dict(record, state, is_done=yes))
        return
    console.print_lines(view.describe_restore(record, state, servers.description, is_done=yes))
