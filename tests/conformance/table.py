"""docs/compatibility.md, from what runs have found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from tests.conformance.matrix import PROFILES, SIGNED, WORKS, all_operations, name_signed
from tests.conformance.reasons import REASONS
from tests.conformance.results import Cell, Results, by_outcome

_HEAD = """\
# What unmodified clients can do

Written by `scripts/conformance`, from what it has found: do not edit it.

For whoever writes a client: look up what each operation does with a virtual stream.

Each operation was tried by the virtual name, in each of three regions, on nats-server {versions},
with {clients} as they are published. {profiles} are [ways that clients reach streams](routing.md),
the models are those of [consistency.md](consistency.md); `named` is `ordered` with [`virtual_name: order`](consistency.md#an-order-that-carries-the-virtual-name). With `regional`, clients are users of their region, such as `app-west`. ✓ works; anything else is [explained below](#why-not), and holds in all regions and on all
versions unless it says where. Operations that come to the same share a row. The home of the `homed` streams was east.
"""
_KNOWN_TITLES = {
    "publishing": "Publishing",
    "consuming": "Consuming",
    "looking": "Looking",
    "changing": "Changing what is stored",
    "key-value": "Key-value buckets (streams called `KV_…`)",
    "objects": "Object stores (streams called `OBJ_…`)",
}


def list_unexplained(results: Results) -> list[str]:
    """Each cell that failed for a reason which nobody expects."""
    return [
        f"{cell.client}, {cell.profile}, {cell.model}, {version} in {region}: {cell.operation}: {outcome}"
        for cell, outcomes in sorted(results.cells.items())
        for (version, region), outcome in sorted(outcomes.items())
        if outcome != WORKS and outcome not in REASONS
    ]


def differing(results: Results) -> list[str]:
    """Each cell that came to something else in operator mode than with accounts in configuration files."""
    return [
        f"{cell.client}, {cell.profile}, {cell.model}, {version} in {region}: {cell.operation}: {outcome}, and {usual}"
        for profile in SIGNED
        for cell, outcomes in sorted(results.cells.items())
        if cell.profile == name_signed(profile)
        for (version, region), outcome in sorted(outcomes.items())
        if outcome != (usual := results.cells[replace(cell, profile=profile)].get((version, region), outcome))
    ]


def document(results: Results) -> str:
    """The text of docs/compatibility.md."""
    clients = " and ".join(f"{client} {version}" for client, version in results.clients.items())
    profiles = ", ".join(f"`{profile}`" for profile in PROFILES)
    parts = [_HEAD.format(versions=", ".join(results.versions()), clients=clients, profiles=profiles)]
    for client in results.clients:
        parts.append(f"## {client}\n")
        for group, title in _KNOWN_TITLES.items():
            rows = list(_rows(results, client, group))
            if rows:
                parts += [f"### {title}, {client}\n", *rows, ""]
    parts += [
        *_operator_mode(results),
        "## Why not\n",
        "| | the servers' answer, or what happened | why |",
        "|---|---|---|",
    ]
    seen = {outcome for cell in results.cells.values() for outcome in cell.values()}
    parts += [f"| {short} | {reason} | {why} |" for reason, (short, why) in REASONS.items() if reason in seen]
    return "\n".join(parts) + "\n"


def _operator_mode(results: Results) -> Iterator[str]:
    """What differs in operator mode, or that nothing does: no columns of their own for what is the same."""
    yield "## Operator mode\n"
    yield "The same clients with credentials, where an operator signs the accounts ([security.md](security.md)):\n"
    yield "| | nats-server | client | tried | works | differs from the columns above, where these were run |"
    yield "|---|---|---|---|---|---|"
    different = differing(results)
    for profile, client in itertools.product(SIGNED, results.clients):
        cells = [(cell, places) for cell, places in results.cells.items() if cell.profile == name_signed(profile)]
        items = [item for cell, places in cells if cell.client == client for item in places.items()]
        versions = [tested for tested in results.versions() if any(tested == version for (version, _), _ in items)]
        works = sum(outcome == WORKS for _, outcome in items)
        compared = sum(
            1
            for cell, places in cells
            if cell.client == client
            for where in places
            if where in results.cells.get(replace(cell, profile=profile), {})
        )
        differs = sum(text.startswith(f"{client}, {name_signed(profile)}, ") for text in different)
        yield f"| `{profile}` | {', '.join(versions)} | {client} | {len(items)} | {works} | {differs} of {compared} |"
    yield ""
    yield from ([f"- {difference}" for difference in different] + [""] if different else [])


def _rows(results: Results, client: str, group: str) -> Iterator[str]:
    """What works everywhere, in one line, then a table in which operations that come to the same share a row."""
    columns = [(profile, model) for profile, models in PROFILES.items() for model in models]
    tried = {cell.operation for cell in results.cells if (cell.client, cell.group) == (client, group)}
    in_order = all_operations()[group]
    operations = [*(operation for operation in in_order if operation in tried), *sorted(tried - in_order.keys())]
    alike: dict[tuple[str, ...], list[str]] = {}
    for operation in operations:
        cells = (Cell(client, profile, model, group, operation) for profile, model in columns)
        alike.setdefault(tuple(_render_cell(results, cell) for cell in cells), []).append(operation)
    working = alike.pop(("✓",) * len(columns), [])
    if working:
        yield f"Works everywhere: {'; '.join(working)}.\n"
    if alike:
        yield f"| | {' | '.join(f'{profile} {model}' for profile, model in columns)} |"
        yield f"|---|{'---|' * len(columns)}"
    for shown, names in alike.items():
        yield f"| {'<br>'.join(names)} | {' | '.join(shown)} |"


def _render_cell(results: Results, cell: Cell) -> str:
    shown = []
    for outcome, where in by_outcome(results.cells.get(cell, {})):
        mark = "✓" if outcome == WORKS else REASONS.get(outcome, (outcome, ""))[0]
        shown.append(f"{mark} {where}".rstrip())
    return "; ".join(shown) or "–"
