"""The result of a publish, and all that an account leads elsewhere, in words and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.cli.views.cleaning import clean
from vstream.cli.views.finding_text import place
from vstream.findings import Span
from vstream.formatting import format_count
from vstream.lint.simulate import AccountRow, Refusal, Simulation
from vstream.subjects.account_flow import AccountArrival, AccountLink, ImportKind
from vstream.subjects.leaf_flow import LeafArrival
from vstream.subjects.resolve import Candidate, Outcome, OutcomeKind, Resolution
from vstream.topology import physical
from vstream.topology.model import Topology, VirtualStream

_UNCHANGED = "unchanged"
_FULL_PERCENT = 100
_ESCAPED = 0xDC00
"""Where Python puts bytes that are not UTF-8."""


def render_resolution(answer: Simulation) -> Iterator[Text]:
    """The answer in words."""
    account = f", account `{clean(answer.block.account)}`" if answer.block.account else ""
    where = f" in cluster `{clean(answer.cluster)}`" if answer.cluster is not None else ""
    yield Text(f"a publish to `{clean(answer.subject)}`{where}{account}", style="bold")
    for refusal in answer.refusals:
        yield describe_refusal(refusal)
    if answer.at_cluster is not None:
        yield from _render_rules(answer, answer.at_cluster, with_outcomes=True)
        yield Text("other clusters", style="bold")
    else:
        yield from _render_rules(answer, answer.elsewhere[-1])
    names = [clean(resolution.cluster or "any other") for resolution in answer.elsewhere]
    widest = max(map(len, names))
    for name, resolution in zip(names, answer.elsewhere, strict=True):
        shares = dict.fromkeys(_describe_shares(candidate) for candidate in resolution.candidates)
        yield Text(f"  {name:<{widest}}  {'  or  '.join(shares)}")
    yield from _render_other_accounts(answer)
    yield from _show_beyond_leaves(answer)
    yield Text("next start or reload", style="bold")
    yield from _render_chance(answer)
    yield Text("cost", style="bold")
    cost = f"{answer.cost_us:.2f}" if answer.cost_us < _FULL_PERCENT else f"{answer.cost_us:,.0f}"
    yield Text(f"  {format_count(answer.rule_count, 'rule')}: about {cost} µs for each message that a client publishes")


def as_dict(answer: Simulation) -> dict[str, Any]:
    """The answer for other programs."""
    return {
        "subject": answer.subject,
        "cluster": answer.cluster,
        "account": answer.block.account,
        "accepted": not answer.refusals,
        "refusals": [refusal_as_dict(refusal) for refusal in answer.refusals],
        "ambiguous": any(resolution.is_ambiguous for resolution in _list_resolutions(answer)),
        "candidates": _list_candidates(answer, answer.at_cluster) if answer.at_cluster is not None else None,
        "arrivals": _arrivals_as_dicts(answer, answer.at_cluster) if answer.at_cluster is not None else None,
        "leaf_nodes": [_crossing_as_dict(arrival) for arrival in answer.crossings()],
        "elsewhere": [_resolution_as_dict(answer, resolution) for resolution in answer.elsewhere],
        "rules": answer.rule_count,
        "cost_us": round(answer.cost_us, 3),
    }


def describe_refusal(refusal: Refusal) -> Text:
    """Why a server refuses the rules, in words."""
    return Text.assemble(("  refused ", "bold red"), f"{place(refusal.span)}: {clean(refusal.message)}")


def refusal_as_dict(refusal: Refusal) -> dict[str, Any]:
    """Why a server refuses the rules, for other programs."""
    return {"message": refusal.message, **_place_as_dict(refusal.span)}


def _place_as_dict(span: Span | None) -> dict[str, Any]:
    return {key: getattr(span, key, None) for key in ("file", "line", "column")}


def _resolution_as_dict(answer: Simulation, resolution: Resolution) -> dict[str, Any]:
    return {
        "cluster": resolution.cluster,
        "candidates": _list_candidates(answer, resolution),
        "arrivals": _arrivals_as_dicts(answer, resolution),
    }


def _arrivals_as_dicts(answer: Simulation, resolution: Resolution) -> list[dict[str, Any]] | None:
    """Who sees it in other accounts; None where a number that is drawn decides that."""
    if answer.is_undecided(resolution):
        return None
    return [_arrival_as_dict(arrival) for arrival in answer.arrivals(resolution)]


def _arrival_as_dict(arrival: AccountArrival) -> dict[str, Any]:
    return {
        "account": arrival.account,
        "subject": show_bytes(arrival.subject),
        "percent": arrival.percent,
        "imports": [_link_as_dict(link) for link in arrival.links],
    }


def _crossing_as_dict(arrival: LeafArrival) -> dict[str, Any]:
    return {
        "server": arrival.side.server,
        "account": arrival.account,
        "subject": show_bytes(arrival.subject),
        "percent": arrival.percent,
        "refused": arrival.refusal[0] if arrival.refusal else None,
        "imports": [_link_as_dict(link) for link in arrival.imports],
        **_place_as_dict(arrival.links[-1].span),
    }


def _link_as_dict(link: AccountLink) -> dict[str, Any]:
    return {
        "kind": link.kind.value,
        "importer": link.importer,
        "exporter": link.exporter,
        "source": link.source,
        "destination": link.destination,
        **_place_as_dict(link.span),
    }


def _list_resolutions(answer: Simulation) -> tuple[Resolution, ...]:
    return (*([answer.at_cluster] if answer.at_cluster else []), *answer.elsewhere)


def _list_candidates(answer: Simulation, resolution: Resolution) -> list[dict[str, Any]]:
    candidates = []
    for candidate in resolution.candidates:
        candidates.append(
            {
                "source": candidate.mapping.source if candidate.mapping else None,
                **_place_as_dict(answer.locate(candidate)),
                "only_if_first": candidate.is_first,
                "overrides_lines": [entry.key_span.line for entry in answer.overridden(candidate)],
                "outcomes": _outcomes_as_dicts(candidate.outcomes),
            }
        )
    return candidates


def _outcomes_as_dicts(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Each outcome once: shares that come to the same are added up."""
    merged: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        fields = _outcome_as_dict(outcome)
        # What a message keeps its subject by does not matter.
        key = outcome.kind.value if outcome.kind is OutcomeKind.IDENTITY else f"{outcome.kind}{outcome.destination}"
        earlier = merged.setdefault(key, {**fields, "percent": 0})
        earlier["percent"] += fields["percent"]
    return list(merged.values())


def _outcome_as_dict(outcome: Outcome) -> dict[str, Any]:
    return {
        "percent": outcome.probability_percent,
        "kind": outcome.kind.value,
        "subject": show_bytes(outcome.subject) or None,
        "destination": outcome.destination.subject if outcome.destination else None,
        "random_tokens": [{"position": position, "below": bound} for position, bound in outcome.expansion.draws],
    }


def show_bytes(subject: str) -> str:
    r"""*subject* with bytes that are not UTF-8 as `\xff`."""
    return re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - _ESCAPED:02x}", subject)


def _render_rules(answer: Simulation, resolution: Resolution, *, with_outcomes: bool = False) -> Iterator[Text]:
    """The rules that match, and what each of them makes of the message in that cluster."""
    for number, candidate in enumerate(resolution.candidates):
        span = answer.locate(candidate)
        if candidate.mapping is None or span is None:
            yield Text("  no rule matches: the message keeps its subject")
            continue
        joint = "or" if number else "by"
        condition = "" if candidate.is_first is None else _ORDER[candidate.is_first]
        source = clean(candidate.mapping.source)
        yield Text.assemble(f"  {joint} the rule ", (f"`{source}`", "bold"), f" at {place(span)}{condition}")
        for entry in answer.overridden(candidate):
            yield Text(f"    (the rule with the same source at {place(entry.key_span)} is ignored)")
        for outcome in candidate.outcomes if with_outcomes else ():
            yield Text.assemble(
                f"    {outcome.probability_percent:>3} %  ", (_describe_outcome(outcome), _OUTCOME_STYLES[outcome.kind])
            )


_ORDER = {True: ", if the server tries it before the other rules", False: ", if the server tries another rule first"}
_OUTCOME_STYLES = {
    OutcomeKind.MAPPED: "green",
    OutcomeKind.IDENTITY: "yellow",
    OutcomeKind.DROPPED: "bold red",
    OutcomeKind.PANICS: "bold red",
}


def _describe_outcome(outcome: Outcome) -> str:
    match outcome.kind:
        case OutcomeKind.DROPPED:
            return "lost: no subscriber gets it"
        case OutcomeKind.PANICS:
            return "the server crashes: the rule has no destination"
        case OutcomeKind.IDENTITY:
            return _UNCHANGED
        case OutcomeKind.MAPPED:
            drawn = " and ".join(f"0 to {bound - 1}" for _, bound in outcome.expansion.draws)
            return f"→ {clean(show_bytes(outcome.subject))}" + (f"  (`*` is chosen from {drawn})" if drawn else "")


def _describe_shares(candidate: Candidate) -> str:
    if len(candidate.outcomes) == 1:
        return _describe_outcome(candidate.outcomes[0])
    return ", ".join(f"{outcome.probability_percent} % {_describe_outcome(outcome)}" for outcome in candidate.outcomes)


def _render_other_accounts(answer: Simulation) -> Iterator[Text]:
    """Who sees the message in other accounts: at the cluster that was asked for, else anywhere."""
    resolutions = (answer.at_cluster,) if answer.at_cluster is not None else answer.elsewhere
    clusters: dict[str, list[str]] = {}
    for resolution in resolutions:
        name = clean(resolution.cluster or "any other")
        for arrival in answer.arrivals(resolution):
            clusters.setdefault(_describe_arrival(arrival), []).append(name)
        if answer.is_undecided(resolution):
            clusters.setdefault("the chosen number decides which imports match", []).append(name)
    if clusters:
        yield Text("other accounts", style="bold")
    for line, names in clusters.items():
        yield Text(f"  {line}" + ("" if len(names) == len(resolutions) else f"  (in {', '.join(names)})"))


def _show_beyond_leaves(answer: Simulation) -> Iterator[Text]:
    """Who sees the message beyond leaf node connections, or what stops it."""
    crossings = answer.crossings()
    if crossings:
        yield Text("leaf nodes", style="bold")
    for arrival in crossings:
        where = f" at {place(arrival.links[-1].span)}" if arrival.links[-1].span else ""
        side = f"`{clean(arrival.side.server)}`, account `{clean(arrival.account)}`"
        subject = clean(show_bytes(arrival.subject))
        if arrival.refusal is not None:
            reason, span = arrival.refusal
            yield Text(f"  {subject} does not reach {side}: {clean(reason)}" + (f" at {place(span)}" if span else ""))
            continue
        by = f", by the connection{where}" + "".join(f", then {_describe_link(link)}" for link in arrival.imports)
        yield Text(f"  {_format_share(arrival.percent)}seen on {side} as {subject}{by}")


def _format_share(percent: float | None) -> str:
    if percent is None:
        return "may be "
    return f"{percent:g} % " if percent < _FULL_PERCENT else ""


def _describe_arrival(arrival: AccountArrival) -> str:
    path = ", then ".join(_describe_link(link) for link in arrival.links)
    return f"{_format_share(arrival.percent)}seen in account `{clean(arrival.account)}` as {clean(show_bytes(arrival.subject))}, by {path}"


def _describe_link(link: AccountLink) -> str:
    where = f" at {place(link.span)}" if link.span else ""
    return f"its {link.kind.value} import{where}" if link.kind is ImportKind.STREAM else f"the service import{where}"


def _render_chance(answer: Simulation) -> Iterator[Text]:
    rules: dict[str, str] = {}
    for resolution in _list_resolutions(answer):
        for candidate in resolution.candidates if resolution.is_ambiguous else ():
            span = answer.locate(candidate)
            if candidate.mapping and span:
                rules[f"`{clean(candidate.mapping.source)}` at {place(span)}"] = ""
    if len(rules) > 1:
        yield Text(f"  the server picks one of {len(rules)} rules at random, each server for itself:", style="bold red")
        for rule in rules:
            yield Text(f"    {rule}")
    elif rules:
        yield Text("  the result depends on whether the server tries this rule before others", style="bold red")
    else:
        yield Text("  the same")


_HEADINGS = ("what", "from", "to", "where", "streams", "written at")


def render_accounts(
    account: str, cluster: str | None, rows: Sequence[AccountRow], refusals: Sequence[Refusal]
) -> Iterator[Text | Table]:
    """The table; the rows are in the order given."""
    where = f" in cluster `{clean(cluster)}`" if cluster is not None else ""
    yield Text(f"mappings, imports and exports of account `{clean(account)}`{where}", style="bold")
    for refusal in refusals:
        yield describe_refusal(refusal)
    if not rows:
        yield Text("  no mappings, imports or exports")
        return
    table = Table(box=box.SIMPLE_HEAD)
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    sources = {row.source for row in rows if row.cluster}
    for row in rows:
        elsewhere = "any other cluster" if row.source in sources else "every cluster"
        table.add_row(*map(Text, _render_cells(row, elsewhere)))
    yield table


def _render_cells(row: AccountRow, elsewhere: str) -> tuple[str, ...]:
    share = f"{row.percent} % " if row.percent < _FULL_PERCENT else ""
    destination = "lost" if row.destination is None else clean(show_bytes(row.destination))
    where = clean(row.cluster) if row.cluster else elsewhere
    if row.kind != "mapping":
        where = f"account {clean(row.account)}" if row.account else "not imported"
    streams = ", ".join(map(clean, row.streams))
    return (row.kind, clean(row.source), share + destination, where, streams, place(row.span) if row.span else "")


def account_as_dict(
    account: str, cluster: str | None, rows: Sequence[AccountRow], refusals: Sequence[Refusal]
) -> dict[str, Any]:
    """The rows for other programs."""
    return {
        "account": account,
        "cluster": cluster,
        "accepted": not refusals,
        "refusals": [refusal_as_dict(refusal) for refusal in refusals],
        "routes": [_row_as_dict(row) for row in rows],
    }


def _row_as_dict(row: AccountRow) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "source": show_bytes(row.source),
        "destination": None if row.destination is None else show_bytes(row.destination),
        "percent": row.percent,
        "cluster": row.cluster,
        "account": row.account,
        "streams": list(row.streams),
        **_place_as_dict(row.span),
    }


def render_streams(topology: Topology, stream: VirtualStream) -> Table:
    """The physical streams behind *stream*, one row for each region."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("region", "published into", "as", "read from"):
        table.add_column(column, overflow="fold")
    for region in stream.regions:
        row = region_as_dict(topology, stream, region)
        table.add_row(region, row["published_into"], "\n".join(row["subjects"]), row["read"])
    return table


def region_as_dict(topology: Topology, stream: VirtualStream, region: str) -> dict[str, Any]:
    """Where clients in *region* publish to *stream*, and what they read."""
    origin = next(iter(stream.origin_settings), None)
    return {
        "region": region,
        "published_into": physical.write_stream_in(stream, region),
        "subjects": list(physical.write_subjects(topology, stream, origin or region)),
        # The home of a homed stream has no mirror of it: there it is read itself.
        "read": physical.read_stream_in(stream, region),
    }
