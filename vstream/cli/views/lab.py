"""The state of labs as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from vstream.lab.lab import LabStatus
    from vstream.lab.status import ProxyStatus

_STYLE = {"running": "green", "stopped": "dim", "crashed": "bold red"}


def table(status: LabStatus) -> Table:
    """One row for each server."""
    view = Table(box=box.SIMPLE_HEAD, title=f"lab {status.name} ({status.topology})", title_justify="left")
    # Ports alone fit on any screen; `--format json` has the whole addresses, which are all on 127.0.0.1.
    for heading in ("server", "region", "state", "pid", "version", "port", "monitor", "up"):
        view.add_column(heading)
    for server in status.servers:
        view.add_row(
            server.name,
            server.region,
            Text(server.state.value, style=_STYLE[server.state.value]),
            str(server.pid or "-"),
            server.version,
            str(server.address.client),
            str(server.address.monitor),
            _ago(server.uptime),
        )
    return view


def links(status: ProxyStatus) -> Text:
    """One line about what makes the links between regions."""
    state = status.state.value
    process = f", process {status.pid}" if status.pid else ""
    changes = f"; changed by {', '.join(status.overlays)}" if status.overlays else ""
    return Text.assemble(f"links: {status.backend.value} ", (state, _STYLE[state]), process, changes)


def as_dict(labs: Sequence[LabStatus]) -> list[dict[str, Any]]:
    """Labs as plain JSON data."""
    return [
        {
            "name": lab.name,
            "topology": lab.topology,
            "directory": str(lab.directory),
            "servers": [
                {
                    "name": server.name,
                    "region": server.region,
                    "state": server.state.value,
                    "pid": server.pid,
                    "version": server.version,
                    "url": f"nats://{server.address.host}:{server.address.client}",
                    "monitor": f"http://{server.address.host}:{server.address.monitor}",
                    "uptime_seconds": None if server.uptime is None else round(server.uptime.total_seconds(), 3),
                }
                for server in lab.servers
            ],
            "links": None
            if lab.links is None
            else {
                "backend": lab.links.backend.value,
                "state": lab.links.state.value,
                "pid": lab.links.pid,
                "overlays": list(lab.links.overlays),
            },
        }
        for lab in labs
    ]


def _ago(uptime: timedelta | None) -> str:
    if uptime is None:
        return "-"
    minutes, seconds = divmod(int(uptime.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"
