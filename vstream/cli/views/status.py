"""A status as tables that fit the terminal, and its worst cells first where there are many streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vstream.formatting import format_duration, format_size
from vstream.health.snapshot import BeaconSighting
from vstream.health.status import (
    AssessedPair,
    PairState,
    Problem,
    RegionStatus,
    Share,
    Status,
    StatusVerdict,
    StreamStatus,
    sum_known,
)

_PAIR_MARKS = {
    PairState.OK: ("✓", "green"),
    PairState.BEHIND: ("▲", "yellow"),
    PairState.SILENT: ("✗", "bold red"),
    PairState.UNKNOWN: ("?", "bold yellow"),
    PairState.ROLLED_BACK: ("✗", "bold red"),
    PairState.LOSSY: ("✗", "bold red"),
}
_MAX_STREAMS = 12
"""Virtual streams: of more, only those with something wrong are listed."""
_NARROW_COLUMNS = 80
_THIN_SHARE = 0.5
"""The share of what is kept that is left when an outage margin becomes a worry."""


def render_screen(status: Status, *, width: int, before: Status | None = None) -> RenderableType:
    """Everything, for a terminal that is *width* columns wide. With a look *before*, also what has changed since."""
    return Group(*render_tables(status, width=width, before=before), *render_problems(status))


def render_tables(status: Status, *, width: int, before: Status | None = None) -> list[RenderableType]:
    """All that `render_screen` shows above what is wrong."""
    parts: list[RenderableType] = [
        render_headline(status),
        render_regions(status, width=width),
        render_matrix(status, before),
    ]
    if any(sighting.age is not None for sighting in status.beacons):
        parts.append(render_beacon_matrix([region.name for region in status.regions], status.beacons))
    if before is not None and len(status.regions) > 1:
        parts.append(render_traffic(status, before))
    parts += render_margin(status)
    lines = render_streams(status, before, width=width)
    if lines is not None:
        parts.append(lines)
    if status.consumers:
        parts.append(render_consumers(status, width=width))
    return parts


def render_headline(status: Status) -> Text:
    """One line: when, how many servers, who leads."""
    reached = sum(server.is_reached for server in status.servers)
    unknown = sum(region.unknown for region in status.regions)
    is_none = reached and not any(server.meta_leader for server in status.servers)
    nobody = ("none", "bold red") if is_none else ("?", "bold yellow")
    versions = sorted({server.version for server in status.servers if server.version})
    return Text.assemble(
        (status.topology, "bold"),
        f" · {time.strftime('%H:%M:%S', time.localtime(status.at))}",
        f" · {reached} of {len(status.servers)} servers{f', {unknown} not known' if unknown else ''}",
        f" · {', '.join(versions)}" if versions else "",
        *(
            (" · meta leader ", (status.meta_leader, "") if status.meta_leader else nobody)
            if status.has_one_meta_group
            else ()
        ),
        (f" · took {format_duration(status.took)}", "dim"),
    )


def render_regions(status: Status, *, width: int) -> Table:
    """What works in each region."""
    table = _start_table("what works")
    short = width < _NARROW_COLUMNS
    table.add_column("region", overflow="fold")
    table.add_column("up" if short else "servers", justify="right", no_wrap=True)
    for heading, brief in (
        ("publish", "pub"),
        ("Direct Get", "get"),
        ("existing consumers", "old cons."),
        ("new consumers, applies", "new cons."),
    ):
        table.add_column(brief if short else heading, overflow="fold")
    for region in status.regions:
        reached = "?" if region.unknown == region.servers else region.reached
        table.add_row(region.name, f"{reached}/{region.servers}", *_list_abilities(region))
    return table


def _start_table(title: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)


def _list_abilities(region: RegionStatus) -> list[Text]:
    shares = [_render_share(share) for share in (region.publish, region.direct_get, region.consumers)]
    control = {True: Text("✓", style="green"), False: Text("✗", style="bold red"), None: Text("?", style="bold yellow")}
    return [*shares, control[region.control]]


def _render_share(share: Share) -> Text:
    if share.is_full:
        return Text("✓" if share.of else "–", style="green" if share.of else "dim")
    if share.fails:
        works = f"{share.fails} of {share.of} fail" if share.unknown else f"{share.works} of {share.of}"
        return Text(f"✗ {works}", style="bold red")
    return Text("?" if share.unknown == share.of else f"? {share.unknown} of {share.of}", style="bold yellow")


def render_matrix(status: Status, before: Status | None = None) -> Table:
    """From where → to where: the worst of all streams, and how many messages are still to come; ↑ and ↓ since *before*."""
    worst = status.worst()
    pending = _pending_by_places(status)
    earlier = {} if before is None else _pending_by_places(before)

    def show(origin: str, reader: str) -> Text:
        cell = _render_cell(worst.get((origin, reader)), pending.get((origin, reader)))
        return cell.append(_format_trend(earlier.get((origin, reader)), pending.get((origin, reader))))

    origins = [place for place in status.places if any(origin == place for origin, _ in worst)]
    readers = [place for place in status.places if any(reader == place for _, reader in worst)]
    return _make_square("lag: written in → not yet in", origins, readers, show)


def _make_square(title: str, origins: Sequence[str], readers: Sequence[str], show: Callable[[str, str], Text]) -> Table:
    """From where → to where: what *show* makes of each two."""
    table = _start_table(title)
    for heading in ("", *readers):
        table.add_column(heading, overflow="fold")
    for origin in origins:
        table.add_row(Text(origin, style="bold"), *(show(origin, reader) for reader in readers))
    return table


def _pending_by_places(status: Status) -> dict[tuple[str, str], int | None]:
    """How many messages are still to come, by where they are written and where they are read."""
    pending: dict[tuple[str, str], list[int | None]] = {}
    for pair in status.pairs:
        pending.setdefault((pair.origin_place, pair.reader_place), []).append(pair.pending)
    return {places: sum_known(counts) for places, counts in pending.items()}


def _format_trend(before: int | None, now: int | None) -> str:
    if before is None or now is None or before == now:
        return ""
    return " ↑" if now > before else " ↓"


def render_traffic(status: Status, before: Status) -> Table:
    """From which region → to which cluster: what gateways have sent there in a second since *before*."""
    rates = status.sent_per_second(before)
    clusters = sorted({cluster for _, cluster in rates})
    regions = [region.name for region in status.regions]
    return _make_square("sent per second: region → cluster", regions, clusters, partial(_render_sent_cell, rates))


def _render_sent_cell(rates: Mapping[tuple[str, str], float | None], region: str, cluster: str) -> Text:
    if (region, cluster) not in rates:
        return Text("·", style="dim")
    rate = rates[region, cluster]
    return Text("? not known", style="yellow") if rate is None else Text(format_size(rate))


def render_margin(status: Status) -> list[Text]:
    """How long an outage may last, or go on, until the first message is lost."""
    thin = status.thinnest
    if thin is None or thin.margin is None or thin.retention is None:
        return []
    pair = f"{thin.origin_place} → {thin.reader_place}, `{thin.origin}` keeps {format_duration(thin.retention)}"
    waits = (
        f", {format_duration(thin.age)} of it used up" if thin.age is not None and thin.margin < thin.retention else ""
    )
    style = "bold red" if thin.margin < _THIN_SHARE * thin.retention else "bold"
    return [
        Text.assemble(("outage margin ", "bold"), (format_duration(thin.margin), style), (f"  ({pair}{waits})", "dim")),
        Text(),
    ]


def _render_cell(pair: AssessedPair | None, pending: int | None) -> Text:
    if pair is None:
        return Text("·", style="dim")
    mark, style = _PAIR_MARKS[pair.state]
    words = [] if pending is None else [f"{pending:,}"]
    if pair.state is not PairState.OK:
        words.append(pair.state.value)
    if pair.age is not None:
        words.append(format_duration(pair.age))
    if pair.lossy_in is not None and pair.state is not PairState.OK:
        words.append(f"(lossy in {format_duration(pair.lossy_in)})")
    return Text.assemble((f"{mark} ", style), " ".join(words))


def render_streams(status: Status, before: Status | None = None, *, width: int) -> Table | None:
    """The physical streams: all of a few virtual streams, else those with something wrong, a screenful at most."""
    last_before = {} if before is None else {stream.name: stream.last for stream in before.streams}
    shown: Sequence[StreamStatus] = status.streams
    if len({stream.virtual for stream in shown}) > _MAX_STREAMS:
        shown = [stream for stream in shown if stream.leader is None or stream.current < stream.replicas][:_MAX_STREAMS]
    if not shown:
        return None
    table = _start_table("streams")
    for heading in ("stream", "leader", "replicas"):
        table.add_column(heading, overflow="fold")
    rates = ("per s",) if before is not None else ()
    for heading in ("messages", "last", *rates, *(() if width < _NARROW_COLUMNS else ("stored",))):
        table.add_column(heading, justify="right", no_wrap=True)
    for stream in shown:
        unled = Text("?", style="bold yellow") if stream.messages is None else Text("none", style="bold red")
        full = stream.current == stream.replicas
        row: list[str | Text] = [
            stream.name,
            Text(stream.leader) if stream.leader else unled,
            Text(f"{stream.current}/{stream.replicas}", style="" if full else "yellow") if stream.replicas else "?",
            "?" if stream.messages is None else f"{stream.messages:,}",
            "?" if stream.last is None else f"{stream.last:,}",
        ]
        if before is not None:
            row.append(_format_rate(last_before.get(stream.name), stream.last, status.at - before.at))
        if width >= _NARROW_COLUMNS:
            row.append("?" if stream.bytes is None else format_size(stream.bytes))
        table.add_row(*row)
    return table


def _format_rate(before: int | None, now: int | None, seconds: float) -> str:
    """Messages a second between two looks."""
    if before is None or now is None or seconds <= 0:
        return "?"
    return f"{max(0, now - before) / seconds:,.0f}"


def render_consumers(status: Status, *, width: int) -> Table:
    """The topology's durables: all of a few, else a screenful, those that lack something first."""
    table = _start_table("consumers")
    for heading in ("consumer", "region"):
        table.add_column(heading, overflow="fold")
    for heading in ("pending", "unacked", *(() if width < _NARROW_COLUMNS else ("redelivered", "waiting"))):
        table.add_column(heading, justify="right", no_wrap=True)
    worst = sorted(status.consumers, key=lambda consumer: (consumer.exists is True, -(consumer.pending or 0)))
    shown = status.consumers if len(status.consumers) <= _MAX_STREAMS else worst[:_MAX_STREAMS]
    for consumer in shown:
        if consumer.exists:
            numbers = [
                consumer.pending,
                consumer.unacknowledged,
                *(() if width < _NARROW_COLUMNS else (consumer.redelivered, consumer.waiting)),
            ]
            cells = [Text("?" if number is None else f"{number:,}") for number in numbers]
        else:
            cells = [Text("none" if consumer.exists is False else "?", style="bold red")]
        table.add_row(f"{consumer.virtual} > {consumer.name}", consumer.region, *cells)
    return table


def render_problems(seen: Status) -> list[Text]:
    """What is wrong and what could not be seen, one line each; then the verdict."""
    lines = [_render_problem("✗ ", "bold red", problem) for problem in seen.problems]
    lines += [_render_problem("? ", "bold yellow", problem) for problem in seen.unknown]
    match seen.verdict:
        case StatusVerdict.OK:
            verdict = Text.assemble(("OK", "bold green"), ": all checks passed")
        case StatusVerdict.DEGRADED:
            count = len(seen.problems)
            verdict = Text.assemble(("DEGRADED", "bold red"), f": {count} {'problem' if count == 1 else 'problems'}")
            if seen.unknown:
                verdict.append(", and not everything could be checked")
        case StatusVerdict.UNKNOWN:
            verdict = Text.assemble(
                ("UNKNOWN", "bold yellow"), ": no problem was found, but not everything could be checked"
            )
    return [*lines, verdict]


def _render_problem(mark: str, style: str, problem: Problem) -> Text:
    code = f" ({problem.code})" if problem.code else ""
    return Text.assemble((mark, style), (problem.about, "bold"), f": {problem.text}{code}")


def render_beacon_matrix(regions: Sequence[str], seen: Sequence[BeaconSighting]) -> Table:
    """From where → found in: the age of the newest beacon, the oldest of all streams."""
    by_pair: dict[tuple[str, ...], list[BeaconSighting]] = {}
    for sighting in seen:
        by_pair.setdefault((sighting.origin, sighting.reader), []).append(sighting)
    title = "newest beacon: published in → found in"
    return _make_square(title, regions, regions, lambda *pair: _render_beacon_cell(by_pair.get(pair, ())))


def _render_beacon_cell(sightings: Sequence[BeaconSighting]) -> Text:
    if not sightings:
        return Text("·", style="dim")
    missing = [sighting for sighting in sightings if sighting.age is None]
    if missing:
        # Why nobody answers is said elsewhere: a cell has no room for it.
        return Text("there is none" if missing[0].is_absent else "? no answer", style="yellow")
    return Text(format_duration(max(sighting.age or 0.0 for sighting in sightings)))
