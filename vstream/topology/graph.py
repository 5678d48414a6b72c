"""A topology and its streams as Mermaid and as SVG. The same topology always gives the same text."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from vstream.topology import physical
from vstream.topology.model import Role
from vstream.topology.replication import all_physical_streams, physical_streams, replication_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vstream.topology.model import Topology, VirtualStream
    from vstream.topology.replication import PhysicalStream

_BOX, _HIGH, _GAP, _COLUMN, _EDGE, _TITLE = 200, 34, 22, 290, 24, 40
_FILL = {Role.WRITE: "#fde9c8", Role.ORIGIN: "#fde9c8", Role.ORDER: "#e4dcf7", Role.READ: "#d5ebd8"}
_LEVEL = {Role.WRITE: 1, Role.ORIGIN: 1, Role.ORDER: 2, Role.READ: 3}
_FONT = "system-ui, sans-serif"


def mermaid(topology: Topology, streams: Sequence[VirtualStream]) -> str:
    """A flowchart: one box for each region, and what flows from which stream into which."""
    number = {part.name: f"s{index}" for index, part in enumerate(all_physical_streams(topology))}
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


def _quote(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def svg(topology: Topology, streams: Sequence[VirtualStream]) -> str:
    """One band for each virtual stream: clients, what takes their publishes, what orders them, what is read."""
    body: list[str] = []
    top = _EDGE + _TITLE
    for stream in streams:
        drawn, top = _band(stream, top)
        body += drawn
    width = 2 * _EDGE + 3 * _COLUMN + _BOX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}" '
        f'font-family="{_FONT}" font-size="13">'
    )
    marker = (
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>'
    )
    paper = f'<rect width="{width}" height="{top}" fill="#fff"/>'
    servers = f"{len(topology.seats)} servers in {len(topology.regions)} regions"
    title = f'<text x="{_EDGE}" y="{_EDGE + 6}" font-size="17">{escape(topology.name)} · {servers}</text>'
    return "\n".join([head, marker, paper, title, *body, "</svg>"]) + "\n"


def _band(stream: VirtualStream, top: int) -> tuple[list[str], int]:
    """One virtual stream from *top* down, and where the next one begins."""
    about = escape(f"{stream.consistency.value}: {', '.join(stream.subjects)}")
    drawn = [
        f'<text x="{_EDGE}" y="{top}" font-weight="600">{escape(stream.name)}</text>',
        f'<text x="{_EDGE + _COLUMN}" y="{top}" fill="#667">{about}</text>',
    ]
    columns: dict[int, list[PhysicalStream | str]] = {0: list(stream.regions)}
    for part in physical_streams(stream):
        columns.setdefault(_LEVEL[part.role], []).append(part)
    rows = max(len(column) for column in columns.values())
    where: dict[str, tuple[int, int]] = {}
    boxes: list[str] = []
    for level, column in columns.items():
        indent = (rows - len(column)) * (_HIGH + _GAP) // 2
        for row, box in enumerate(column):
            x, y = _EDGE + level * _COLUMN, top + 14 + indent + row * (_HIGH + _GAP)
            if isinstance(box, str):
                where[f"clients in {box}"] = x, y
                boxes.append(_box(x, y, f"clients in {box}", "#eef1f6"))
            else:
                where[box.name] = x, y
                label = box.name if box.role is not Role.ORIGIN else f"{box.name} (in {box.place})"
                boxes.append(_box(x, y, label, _FILL[box.role]))
    arrows = [
        (where[f"clients in {region}"], where[physical.write_stream_in(stream, region)]) for region in stream.regions
    ] + [(where[feed.origin.name], where[feed.reader.name]) for feed in replication_pairs(stream)]
    return [*drawn, *_arrows(arrows), *boxes], top + 14 + rows * (_HIGH + _GAP) + _GAP


def _box(x: int, y: int, text: str, fill: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_HIGH}" rx="6" fill="{fill}" stroke="#99a"/>'
        f'<text x="{x + _BOX // 2}" y="{y + 22}" text-anchor="middle">{escape(text)}</text>'
    )


def _arrows(ends: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> Iterator[str]:
    for (x, y), (to_x, to_y) in ends:
        begin, end = x + _BOX, to_x
        bend = (end - begin) // 2
        yield (
            f'<path d="M{begin} {y + _HIGH // 2}C{begin + bend} {y + _HIGH // 2} {end - bend} {to_y + _HIGH // 2} '
            f'{end} {to_y + _HIGH // 2}" fill="none" stroke="#667" marker-end="url(#a)"/>'
        )
