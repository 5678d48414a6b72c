"""Backups: what was written, and what is or was restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from vstream.backup.directory import BackupRecord
from vstream.backup.restore import RestoreState


def describe_backup(record: BackupRecord, directory: Path) -> Iterator[Text]:
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
    """What is or was restored, as plain JSON data."""
    return {
        "id": record.id,
        "topology": record.topology,
        "started": record.started,
        "streams": [item.name for item in record.streams],
        "missing": list(state.missing),
        "continued": state.is_continued,
        "done": is_done,
    }
