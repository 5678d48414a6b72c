"""A topology and its streams as Mermaid, as SVG and as data. The same topology always gives the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from vstream.topology import physical
from vstream.topology.model import Link, Role, Topology, VirtualStream
from vstream.topology.replication import list_physical_streams, physical_streams, replication_pairs

_BOX, _HIGH, _GAP, _COLUMN, _EDGE, _TITLE, _ARC = 210, 34, 14, 300, 24, 56, 116
"""Pixels: a stream's box, the space between two, columns, the margin, what stands above, and between two arcs."""
_COLUMNS = {Role.WRITE: 1, Role.ORIGIN: 1, Role.ORDER: 2, Role.READ: 3}
_MAX_IN_LEGEND = 3
_MAX_ARCS = 6
"""Links that are drawn; more are listed."""
_STYLE = """<style>
  svg { --page: #fff; --text: #1b1f24; --soft: #57606a; --panel: #f6f8fa; --line: #d0d7de; --box: #fff;
    --c0: #0072b2; --c1: #b86a00; --c2: #00805c; --c3: #b0477f; --c4: #2d87bd; --c5: #c24f00;
    font: 13px system-ui, sans-serif; color-scheme: light dark; max-width: 100%; height: auto; }
  @media (prefers-color-scheme: dark) { svg { --page: #0f1318; --text: #e6eaef; --soft: #9aa5b1; --panel: #181e25;
    --line: #333c47; --box: #0f1318;
    --c0: #56b4e9; --c1: #e69f00; --c2: #2fc79a; --c3: #e79ac3; --c4: #a5d4f2; --c5: #ff9a57; } }
  text { fill: var(--text); } .soft { fill: var(--soft); } .page { fill: var(--page); }
  .panel { fill: var(--panel); stroke: var(--line); } .box { fill: var(--box); stroke: var(--soft); }
  .client { fill: none; stroke: var(--line); stroke-dasharray: 4 3; }
  .flow, .link { fill: none; stroke: var(--soft); } .link { stroke-dasharray: 2 3; }
  .flow { stroke-width: 1.5; } marker path { fill: context-stroke; stroke: none; }
</style>"""
_ARROW = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    '<path d="M0 0 8 4 0 8z"/></marker></defs>'
)


def draw_mermaid(topology: Topology, streams: Sequence[VirtualStream]) -> str:
    """A flowchart: one box for each region, and what flows from which stream into which."""
    number = {part.name: f"s{index}" for index, part in enumerate(list_physical_streams(topology))}
    places = dict.fromkeys(part.place for stream in streams for part in physical_streams(stream))
    lines = ["flowchart LR"]
    for index, place in enumerate(places):
        lines.append(f'  subgraph p{index}["{_quote(place)}"]')
        for stream in streams:
            lines += [f'    {number[p.name]}["{_quote(p.name)}"]' for p in physical_streams(stream) if p.place == place]
        lines.append("  end")
    for index, stream in enumerate(streams):
        for region in stream.regions:
            client = f"c{index}_{topology.regions.index(topology.region(region))}"
            lines.append(f'  {client}(["publish {_quote(stream.name)} in {_quote(region)}"])')
            lines.append(f"  {client} --> {number[physical.write_stream_in(stream, region)]}")
        lines += [f"  {number[feed.origin.name]} --> {number[feed.reader.name]}" for feed in replication_pairs(stream)]
    return "\n".join(lines) + "\n"


def as_dict(topology: Topology, streams: Sequence[VirtualStream]) -> dict[str, Any]:
    """What `draw_svg` draws, as plain JSON data. Round-trip times are in milliseconds, rates in bits per second."""
    drawn: dict[str, Any] = {"topology": topology.name, "streams": [], "publishes": [], "replication": [], "links": []}
    for stream in streams:
        for part in physical_streams(stream):
            names = {"stream": part.name, "virtual": part.virtual}
            drawn["streams"].append({**names, "role": part.role.value, "place": part.place})
        for region in stream.regions:
            into = physical.write_stream_in(stream, region)
            drawn["publishes"].append({"virtual": stream.name, "region": region, "into": into})
        for feed in replication_pairs(stream):
            drawn["replication"].append({"origin": feed.origin.name, "reader": feed.reader.name})
    for link in topology.links:
        rtt = link.rtt and link.rtt / 1e6
        drawn["links"].append({"between": [*link.between], "rtt_ms": rtt, "rate": link.rate})
    return drawn


def _quote(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def draw_svg(topology: Topology, streams: Sequence[VirtualStream]) -> str:
    """
    One panel for each region, and for a stretch cluster: who publishes there, and which streams are there.

    Arrows have a colour for each region that they come from. Links between regions, where the topology has them, are
    drawn beside the panels with their round-trip time. Light and dark, as the reader's screen is.
    """
    panels, height = _place_panels(topology, streams)
    links = [link for link in topology.links if {*link.between} <= panels.keys() and _describe_link(link)]
    drawn_links = links if len(links) <= _MAX_ARCS else []
    right = 3 * _EDGE + 3 * _COLUMN + _BOX
    width = right + _EDGE + len(drawn_links) * _ARC
    servers = f"{len(topology.seats)} servers in {len(topology.regions)} regions"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        _STYLE,
        _ARROW,
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text x="{_EDGE}" y="{_EDGE + 6}" font-size="17">{escape(topology.name)} · {servers}</text>',
        f'<text class="soft" x="{_EDGE}" y="{_EDGE + 26}">{escape(_draw_legend(streams))}</text>',
    ]
    if links and not drawn_links:
        listed = "; ".join(f"{'–'.join(link.between)} {_describe_link(link)}" for link in links)
        body.append(f'<text class="soft" x="{right}" y="{_EDGE + 6}" text-anchor="end">{escape(listed)}</text>')
    for place, panel in panels.items():
        body += [
            f'<rect class="panel" x="{_EDGE}" y="{panel.top}" width="{right - _EDGE}" height="{panel.height}" rx="8"/>',
            f'<text x="{2 * _EDGE}" y="{panel.top + 22}" font-weight="600">{escape(place)}</text>',
        ]
    for index, link in enumerate(drawn_links):
        body += _draw_arc(panels, link, right, index)
    return "\n".join([*body, *_draw_flows(streams, panels), *_draw_boxes(panels), "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Panel:
    top: int
    height: int
    boxes: dict[str, tuple[int, int]]
    """Left and upper edge of each box, by the text in it."""


def _place_panels(topology: Topology, streams: Sequence[VirtualStream]) -> tuple[dict[str, _Panel], int]:
    """Where everything is, by region, and how high that is."""
    places = dict.fromkeys(region.name for region in topology.regions)
    places |= dict.fromkeys(part.place for stream in streams for part in physical_streams(stream))
    panels: dict[str, _Panel] = {}
    top = _EDGE + _TITLE
    for place in places:
        boxes: dict[str, tuple[int, int]] = {}
        row = top + 34
        for stream in streams:
            columns: dict[int, list[str]] = {}
            if place in stream.regions:
                columns[0] = [_draw_client(stream, place)]
            for part in physical_streams(stream):
                if part.place == place:
                    columns.setdefault(_COLUMNS[part.role], []).append(part.name)
            for column, texts in columns.items():
                for index, text in enumerate(texts):
                    boxes[text] = 2 * _EDGE + column * _COLUMN, row + index * (_HIGH + _GAP)
            row += max((len(texts) for texts in columns.values()), default=0) * (_HIGH + _GAP)
        if boxes:
            panels[place] = _Panel(top, row - top, boxes)
            top = row + _EDGE
    return panels, top


def _draw_client(stream: VirtualStream, region: str) -> str:
    return f"publish {stream.name} in {region}"


def _draw_legend(streams: Sequence[VirtualStream]) -> str:
    if len(streams) > _MAX_IN_LEGEND:
        return f"{len(streams)} virtual streams"
    return " · ".join(f"{stream.name} ({stream.consistency.value}): {', '.join(stream.subjects)}" for stream in streams)


def _describe_link(link: Link) -> str:
    """Its round-trip time and rate, if the topology has them."""
    parts = []
    if link.rtt:
        parts.append(f"{link.rtt / 1e6:g} ms")
    if link.rate:
        parts.append(f"{link.rate / 1e6:g} Mbit/s")
    return ", ".join(parts)


def _draw_arc(panels: dict[str, _Panel], link: Link, right: int, index: int) -> Iterator[str]:
    """A link beside the panels of its regions, with what it carries. Each begins a little lower than the one before."""
    above, below = sorted((panels[region] for region in link.between), key=lambda panel: panel.top)
    begin, end = above.top + above.height // 2 + 8 * index, below.top + below.height // 2 + 8 * index
    bend = right + _EDGE // 2 + index * _ARC
    yield f'<path class="link" d="M{right} {begin}H{bend}V{end}H{right}"/>'
    label = escape(_describe_link(link).replace(", ", " · "))
    yield f'<text class="soft" x="{bend + 4}" y="{(begin + end) // 2 - 12}" font-size="11">{label}</text>'


def _draw_flows(streams: Sequence[VirtualStream], panels: dict[str, _Panel]) -> Iterator[str]:
    """An arrow for each publish and each replication, in the colour of its region of origin."""
    boxes = {text: edges for panel in panels.values() for text, edges in panel.boxes.items()}
    places = list(panels)
    for stream in streams:
        for region in stream.regions:
            write_stream = physical.write_stream_in(stream, region)
            yield _draw_flow(boxes[_draw_client(stream, region)], boxes[write_stream], places.index(region))
        for feed in replication_pairs(stream):
            place = next(place for place, panel in panels.items() if feed.origin.name in panel.boxes)
            yield _draw_flow(boxes[feed.origin.name], boxes[feed.reader.name], places.index(place))


def _draw_flow(begin: tuple[int, int], end: tuple[int, int], colour: int) -> str:
    """An arrow from one box to another: to the right, or around to one in the same column."""
    x, y = begin[0] + _BOX, begin[1] + _HIGH // 2
    to_x, to_y = end[0], end[1] + _HIGH // 2
    bend = max((to_x - x) // 2, _COLUMN - _BOX)
    return (
        f'<path class="flow" style="stroke: var(--c{colour % 6})" marker-end="url(#a)" '
        f'd="M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"/>'
    )


def _draw_boxes(panels: dict[str, _Panel]) -> Iterator[str]:
    for panel in panels.values():
        for text, (x, y) in panel.boxes.items():
            kind = "client" if x == 2 * _EDGE else "box"
            yield f'<rect class="{kind}" x="{x}" y="{y}" width="{_BOX}" height="{_HIGH}" rx="6"/>'
            yield f'<text x="{x + _BOX // 2}" y="{y + 22}" text-anchor="middle">{escape(text)}</text>'
