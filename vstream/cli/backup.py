"""`vstream backup`: take one, and restore it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from vstream.backup.directory import BackupDirectory, BackupRecord
from vstream.backup.restore import RestoreRequest, RestoreState, read_state
from vstream.backup.restore import restore as restore_backup
from vstream.backup.take import BackupRequest, take_backup
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.servers import build_bundle, find_servers
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import progress_bar

Directory = Annotated[Path, typer.Argument(help="The directory of the backup.", metavar="DIR")]


def take(
    directory: Directory,
    topology: options.TopologyFile = options.DEFAULT_FILE,
    stream: options.StreamNames = None,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Write virtual streams of all regions into a new directory, with their consumers, at one cut.

    Nothing stops meanwhile. `vstream audit DIR` checks what it holds, `vstream backup restore DIR` puts it onto empty servers.
    Stopped before its end, it is not finished, and never restored. All regions must answer.

    Examples: `vstream backup take /backups/2026-11-26`, `vstream backup take --stream foo foo-backup acme.yaml`
    """
    text = options.read_bytes(topology, limit=-1)
    loaded = options.load_topology(topology).require()
    names, where = options.choose_streams(loaded, stream), find_servers(loaded, lab)
    streams = [part for part in build_bundle(loaded, where, None).streams if part.virtual in names]
    request = BackupRequest(topology=loaded, text=text, streams=streams, endpoints=where.endpoints)
    with progress_bar() as progress:
        task = progress.add_task("connecting", total=None)
        record = run(
            take_backup(request, BackupDirectory(directory), lambda step: progress.update(task, description=step))
        )
    if output == "json":
        print_json("backup", backup_as_dict(record, directory))
        return
    console.print_lines(describe(record, directory))


def restore(
    directory: Directory,
    topology: Annotated[
        Path | None,
        typer.Argument(
            help="The topology file. Default: the one in the backup.", metavar="FILE", envvar="VSTREAM_TOPOLOGY"
        ),
    ] = None,
    yes: options.Yes = False,
    output: options.TextOrJson = "text",
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
    loaded = options.load_topology(topology or directory / "topology.yaml").require()
    where = find_servers(loaded, lab)
    streams = build_bundle(loaded, where, None).streams
    request = RestoreRequest(
        directory=source, record=record, topology=loaded, streams=streams, endpoints=where.endpoints
    )
    state = run(read_state(request))
    if yes:
        with progress_bar() as progress:
            task = progress.add_task("connecting", total=None)
            run(restore_backup(request, lambda step: progress.update(task, description=step)))
    if output == "json":
        print_json("restore", restore_as_dict(record, state, is_done=yes))
        return
    console.print_lines(describe_restore(record, state, where.description, is_done=yes))


def describe(record: BackupRecord, directory: Path) -> Iterator[Text]:
    """What was written, and the cut."""
    messages = sum(int(item.state["messages"]) for item in record.streams)
    consumers = sum(len(item.consumers) for item in record.streams)
    yield Text(f"{record.topology} at {record.started}:")
    yield Text(f"  {len(record.streams)} streams, {messages:,} stored messages, {consumers} consumers")
    beyond = {item.name: item.beyond for item in record.streams}
    for origin, seq in record.cut.items():
        more = f", and {beyond[origin]:,} messages after that" if beyond[origin] else ""
        yield Text(f"  every region has {origin} up to {seq:,}{more}")
    yield Text.assemble("Done: ", (str(directory), "bold"), f". `vstream audit {directory}` checks it.")


def backup_as_dict(record: BackupRecord, directory: Path) -> dict[str, Any]:
    """*record* as plain JSON data."""
    streams = []
    for item in record.streams:
        streams.append(
            {
                "name": item.name,
                "stream": item.virtual,
                "region": item.region,
                "messages": int(item.state["messages"]),
                "last_seq": int(item.state["last_seq"]),
                "beyond": item.beyond,
                "consumers": list(item.consumers),
            }
        )
    return {
        "directory": str(directory),
        "id": record.id,
        "topology": record.topology,
        "started": record.started,
        "cut": dict(record.cut),
        "streams": streams,
    }


def describe_restore(record: BackupRecord, state: RestoreState, where: str, *, is_done: bool) -> Iterator[Text]:
    """What is or was restored."""
    yield Text(f"{record.topology} at {record.started}, onto {where}: {len(record.streams)} streams")
    if state.is_continued:
        left = f"{len(state.missing)} streams are missing" if state.missing else "all streams are there"
        yield Text(f"  an interrupted restore of this backup is continued: {left}")
    for item in record.streams:
        consumers = f", consumers {', '.join(item.consumers)}" if item.consumers else ""
        yield Text(f"  {item.name}: {int(item.state['messages']):,} messages{consumers}")
    if is_done:
        yield Text("Done. Clients may come back; `vstream audit` compares all regions.", style="bold green")
    else:
        yield Text("Nothing was changed: pass `--yes` to do it.")


def restore_as_dict(record: BackupRecord, state: RestoreState, *, is_done: bool) -> dict[str, Any]:
    """The same as plain JSON data."""
    return {
        "id": record.id,
        "topology": record.topology,
        "started": record.started,
        "streams": [item.name for item in record.streams],
        "missing": list(state.missing),
        "continued": state.is_continued,
        "done": is_done,
    }
