"""The links of a lab as a table."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.lab.links.control import Traffic
from vstream.lab.links.state import Links, LinkState
from vstream.topology.units import format_rate


def table(name: str, links: Links, traffic: Traffic | None) -> Table:
    """One row for each direction of each link. *traffic* is None if nothing makes the links."""
    view = Table(box=box.SIMPLE_HEAD, title=f"links of lab {name} ({links.backend.value})", title_justify="left")
    for heading in ("from → to", "link", "open", "changed by"):
        # On a narrow screen the shape of a link takes several lines, and nothing is cut.
        view.add_column(heading, no_wrap=heading in {"from → to", "open"}, overflow="fold")
    for pair in links.pairs:
        state = links.state(pair)
        view.add_row(
            f"{pair[0]} → {pair[1]}",
            Text(describe_link(state), style="bold red" if state.cut else ""),
            "-" if traffic is None else str(traffic.connections.get(pair, 0)),
            ", ".join(overlay for overlay, states in links.overlays.items() if pair in states) or "-",
        )
    return view


def describe_link(state: LinkState) -> str:
    """What one direction of a link is like, in a few words."""
    if state.cut:
        return f"cut ({state.cut.value})"
    parts = []
    if state.delay:
        parts.append(f"{_milliseconds(state.delay)} late")
    if state.jitter:
        parts.append(f"up to {_milliseconds(state.jitter)} more")
    if state.rate:
        parts.append(format_rate(state.rate))
    if state.loss:
        parts.append(f"{state.loss * 100:g}% lost")
    return ", ".join(parts) or "ideal"


def as_dict(name: str, links: Links, traffic: Traffic | None) -> dict[str, Any]:
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
        **_plain(links.state(pair)),
        "connections": None if traffic is None else traffic.connections.get(pair, 0),
        "overlays": [overlay for overlay, states in links.overlays.items() if pair in states],
    }


def _plain(state: LinkState) -> dict[str, Any]:
    return {
        "cut": state.cut.value if state.cut else None,
        "delay_seconds": state.delay or 0,
        "jitter_seconds": state.jitter or 0,
        "rate_bits_per_second": state.rate or None,
        "loss": state.loss or 0,
    }


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:g} ms"
