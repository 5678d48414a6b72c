"""The state of labs and of their links as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.cli.views.finding_text import STYLES, as_dicts
from vstream.findings import Finding, Severity
from vstream.lab.links.control import Traffic
from vstream.lab.links.state import Links, LinkState
from vstream.lab.status import LabStatus, ProxyStatus, ServerStatus
from vstream.topology.units import spell_rate

_STATE_STYLES = {"running": "green", "stopped": "dim", "crashed": "bold red"}
_TABLE_COLUMNS = 80
"""Columns that the whole table takes; a narrower screen gets what people ask for most."""


def render_table(status: LabStatus, faults: Mapping[str, str], *, width: int) -> Table:
    """One row for each server. *faults* are the states of servers that an open fault holds; *width* is the screen's."""
    table = Table(box=box.SIMPLE_HEAD, title=f"lab {status.name} ({status.topology})", title_justify="left")
    # Ports alone fit on any screen; `--format json` has the whole addresses, which are all on 127.0.0.1.
    headings = ["server", "region", "state", "pid", "version", "port", "monitor", "up"]
    shown = headings if width >= _TABLE_COLUMNS else ["server", "region", "state", "port", "up"]
    for heading in shown:
        table.add_column(heading, no_wrap=heading in {"state", "port", "up"}, overflow="fold")
    for server in status.servers:
        cells: dict[str, str | Text] = {
            "server": server.name,
            "region": server.region,
            "state": _render_state(server, faults),
            "pid": str(server.pid or "-"),
            "version": server.version,
            "port": str(server.address.client),
            "monitor": str(server.address.monitor),
            "up": _format_uptime(server.uptime),
        }
        table.add_row(*(cells[heading] for heading in shown))
    return table


def _render_state(server: ServerStatus, faults: Mapping[str, str]) -> Text:
    if server.name in faults:
        return Text(faults[server.name], style="bold yellow")
    return Text(server.state.value, style=_STATE_STYLES[server.state.value])


def render_proxy_status(status: ProxyStatus) -> Text:
    """One line about what makes the links between regions."""
    state = status.state.value
    process = f", process {status.pid}" if status.pid else ""
    changes = f"; changed by {', '.join(status.overlays)}" if status.overlays else ""
    return Text.assemble(f"links: {status.backend.value} ", (state, _STATE_STYLES[state]), process, changes)


def labs_as_dicts(labs: Sequence[LabStatus], faults: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Labs as plain JSON data. *faults* are by lab and server, as in `render_table`."""
    return [_lab_as_dict(lab, faults.get(lab.name, {})) for lab in labs]


def _lab_as_dict(lab: LabStatus, faults: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": lab.name,
        "topology": lab.topology,
        "directory": str(lab.directory),
        "servers": [_server_as_dict(server, faults) for server in lab.servers],
        "links": None if lab.links is None else _proxy_as_dict(lab.links),
    }


def _server_as_dict(server: ServerStatus, faults: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": server.name,
        "region": server.region,
        "state": server.state.value,
        "fault": faults.get(server.name),
        "pid": server.pid,
        "version": server.version,
        "url": server.address.client_url,
        "monitor": server.address.monitor_url,
        "uptime_seconds": None if server.uptime is None else round(server.uptime.total_seconds(), 3),
    }


def _proxy_as_dict(links: ProxyStatus) -> dict[str, Any]:
    return {
        "backend": links.backend.value,
        "state": links.state.value,
        "pid": links.pid,
        "overlays": list(links.overlays),
    }


def _format_uptime(uptime: timedelta | None) -> str:
    if uptime is None:
        return "-"
    minutes, seconds = divmod(int(uptime.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"


def render_capabilities(findings: Sequence[Finding]) -> Table:
    """One row for each thing that was tried."""
    table = Table(box=box.SIMPLE_HEAD, title="labs on this machine", title_justify="left")
    for heading in ("", "", "why, or how"):
        table.add_column(heading)
    for finding in findings:
        can = finding.severity is Severity.NOTE
        answer = Text("yes", style="green") if can else Text("no", style=STYLES[finding.severity])
        table.add_row(finding.code, answer, finding.message)
    return table


def capabilities_as_dict(findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings as plain JSON data."""
    return {"can_run_labs": not any(finding.is_error for finding in findings), "findings": as_dicts(findings)}


def render_link_table(name: str, links: Links, traffic: Traffic | None) -> Table:
    """One row for each direction of each link. *traffic* is None if nothing makes the links."""
    table = Table(box=box.SIMPLE_HEAD, title=f"links of lab {name} ({links.backend.value})", title_justify="left")
    for heading in ("from → to", "link", "open", "changed by"):
        # On a narrow screen the shape of a link takes several lines, and nothing is cut.
        table.add_column(heading, no_wrap=heading in {"from → to", "open"}, overflow="fold")
    for pair in links.pairs:
        state = links.state(pair)
        table.add_row(
            f"{pair[0]} → {pair[1]}",
            Text(describe_link(state), style="bold red" if state.cut else ""),
            "-" if traffic is None else str(traffic.connections.get(pair, 0)),
            ", ".join(overlay for overlay, states in links.overlays.items() if pair in states) or "-",
        )
    return table


def describe_link(state: LinkState) -> str:
    """What one direction of a link is like, in a few words."""
    if state.cut:
        return f"cut ({state.cut.value})"
    parts = []
    if state.delay:
        parts.append(f"{_format_milliseconds(state.delay)} late")
    if state.jitter:
        parts.append(f"up to {_format_milliseconds(state.jitter)} more")
    if state.rate:
        parts.append(spell_rate(state.rate))
    if state.loss:
        parts.append(f"{state.loss * 100:g}% lost")
    return ", ".join(parts) or "ideal"


def links_as_dict(name: str, links: Links, traffic: Traffic | None) -> dict[str, Any]:
    """Links as plain JSON data: what is in effect, and of what it is made."""
    return {
        "lab": name,
        "backend": links.backend.value,
        "links": [_pair_as_dict(links, pair, traffic) for pair in links.pairs],
        "refused_connections": None if traffic is None else traffic.refused,
    }


def _pair_as_dict(links: Links, pair: tuple[str, str], traffic: Traffic | None) -> dict[str, Any]:
    return {
        "from": pair[0],
        "to": pair[1],
        **_link_as_dict(links.state(pair)),
        "connections": None if traffic is None else traffic.connections.get(pair, 0),
        "overlays": [overlay for overlay, states in links.overlays.items() if pair in states],
    }


def _link_as_dict(state: LinkState) -> dict[str, Any]:
    return {
        "cut": state.cut.value if state.cut else None,
        "delay_seconds": state.delay or 0,
        "jitter_seconds": state.jitter or 0,
        "rate_bits_per_second": state.rate or None,
        "loss": state.loss or 0,
    }


def _format_milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:g} ms"
