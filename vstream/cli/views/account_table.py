"""Everything that an account does with messages, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.cli.views.cleaning import clean
from vstream.cli.views.diagnostics import place
from vstream.cli.views.mapping import describe_refusal, refusal_json, show_bytes
from vstream.lint.account_table import AccountRow
from vstream.lint.simulate import Refusal

_ALL = 100
_HEADINGS = ("what", "from", "to", "where", "streams", "written at")


def text(
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
        table.add_row(*map(Text, _cells(row, elsewhere)))
    yield table


def _cells(row: AccountRow, elsewhere: str) -> tuple[str, ...]:
    share = f"{row.percent} % " if row.percent < _ALL else ""
    destination = "lost" if row.destination is None else clean(show_bytes(row.destination))
    where = clean(row.cluster) if row.cluster else elsewhere
    if row.kind != "mapping":
        where = f"account {clean(row.account)}" if row.account else "not imported"
    streams = ", ".join(map(clean, row.streams))
    return (row.kind, clean(row.source), share + destination, where, streams, place(row.span) if row.span else "")


def as_json(
    account: str, cluster: str | None, rows: Sequence[AccountRow], refusals: Sequence[Refusal]
) -> dict[str, Any]:
    """The rows for other programs."""
    return {
        "account": account,
        "cluster": cluster,
        "accepted": not refusals,
        "refusals": [refusal_json(refusal) for refusal in refusals],
        "routes": [_row_json(row) for row in rows],
    }


def _row_json(row: AccountRow) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "source": show_bytes(row.source),
        "destination": None if row.destination is None else show_bytes(row.destination),
        "percent": row.percent,
        "cluster": row.cluster,
        "account": row.account,
        "streams": list(row.streams),
        "file": row.span.file if row.span else None,
        "line": row.span.line if row.span else None,
        "column": row.span.column if row.span else None,
    }
