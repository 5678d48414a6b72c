"""The result of applying a plan, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from vstream.apply.pipeline import AppliedPlan, ApplyEnd
from vstream.apply.result import ApplyResult
from vstream.formatting import format_count, quote_names, summarize_names
from vstream.plan.model import GateKind, Update
from vstream.topology.bundle import ACCOUNTS_PATH, OPERATOR_PATH, loaded_path
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.stream_config import StreamConfig

_MAX_NAMES_IN_LINE = 5


def render_applied(result: ApplyResult, file: str) -> Iterator[Text]:
    """What was done, what was not, and what nobody knows. *file* is what servers load."""
    yield from render_paused(result.list_paused())
    yield Text(f"Applied: {', '.join(_list_done(result, file))}.", style="bold green" if result.is_complete else "bold")
    groups = (
        ("uncertain (no answer: it may have happened)", result.uncertain, "bold yellow"),
        ("refused", result.refused, "bold red"),
        ("not tried", result.skipped, "yellow"),
    )
    for label, changes, style in groups:
        if changes:
            names = ", ".join(change.config.name for change in changes[:_MAX_NAMES_IN_LINE])
            more = f", … ({len(changes):,})" if len(changes) > _MAX_NAMES_IN_LINE else ""
            yield Text.assemble((f"{label}: ", style), names, more)
    yield from _render_not_resynced(result)
    if result.mappings_pending:
        yield from _explain_load(file)
    for shut in result.gate_timeouts:
        yield Text.assemble(("Stopped before a gate: ", "bold yellow"), f"until {shut.gate}.")
        yield Text(f"  {shut.missing}")
    if any(shut.gate.kind is not GateKind.QUORUM_IS_CURRENT for shut in result.gate_timeouts):
        yield Text(
            "What comes after it was not begun. Run `vstream apply` again once that is fixed: it continues from here."
        )
    elif result.left_paused and any(stage.rule_changes for stage in result.skipped_stages):
        held = "No account was pushed" if file == OPERATOR_PATH else f"{file} was not loaded"
        yield Text(f"{held}: publishers might be led to what is paused. The run that lets it go on comes to that, too.")
    if result.unread_servers:
        yield Text(
            f"Nothing was removed: could not read whether the mappings of {', '.join(result.unread_servers)} still use it."
        )


def render_paused(names: Sequence[str]) -> Iterator[Text]:
    """That clients cannot publish, and what to do; nothing where no stream is paused."""
    if names:
        verb = "takes" if len(names) == 1 else "take"
        yield Text(
            f'{summarize_names(names)} {verb} no publishes now: publishers get "no responders".', style="bold red"
        )
        yield Text(
            "Run `vstream apply` again, with a longer `--gate-timeout` if the copy is long: it lets them go on once the new servers hold everything. Start those that are down first."
        )


def render_resumed(result: ApplyResult) -> Iterator[Text]:
    """Which streams take publishes again, and on which subjects; and what the others lack."""
    for change in result.done:
        if isinstance(change, Update):
            subjects = quote_names(change.config.subjects)
            yield Text(f"`{change.config.name}` takes publishes again, on {subjects}.", style="bold green")
    for timeout in result.gate_timeouts:
        yield Text.assemble((f"`{timeout.gate.stream}` stays paused: ", "bold yellow"), timeout.missing)


def _list_done(result: ApplyResult, file: str) -> Iterator[str]:
    configs = [change.config for change in result.done]
    # Some are changed in several steps.
    yield format_count(len({config.name for config in configs if isinstance(config, StreamConfig)}), "stream")
    if consumers := {config.name for config in configs if isinstance(config, ConsumerConfig)}:
        yield format_count(len(consumers), "consumer")
    if result.resynced:
        yield f"{format_count(len(result.resynced), 'reader')} resynced"
    if result.mappings_loaded:
        yield "accounts pushed to every server" if file == OPERATOR_PATH else f"{file} loaded on every server"
    if result.retired:
        yield f"{', '.join(result.retired)} stopped and removed from the meta group"


def _render_not_resynced(result: ApplyResult) -> Iterator[Text]:
    for sentence in result.not_resynced:
        yield Text.assemble(("not resynced: ", "yellow"), sentence)
    if result.not_resynced:
        yield Text("Readers take again by themselves, within two minutes; `vstream repair sources` measures it.")


def describe_unknown_rules(applied: AppliedPlan) -> Iterator[Text]:
    """What nobody knows of the rules that servers have loaded, and how to find out; nothing where that is known."""
    remaining = applied.remaining
    if remaining is None or applied.outcome is not ApplyEnd.RULES_UNKNOWN:
        return
    servers, file = ", ".join(remaining.unread_servers), loaded_path(applied.planned.request.topology)
    if file == OPERATOR_PATH:
        yield Text(f"Unknown: which accounts {servers} have loaded. No account was pushed.", style="bold yellow")
        yield Text(
            "`vstream apply` pushes accounts only if it can see that a server has others: add every server's `monitor` under `connect`, and apply again. To check without it, run `vstream probe`."
        )
        return
    yield Text(f"Unknown: whether {file} is loaded on {servers}.", style="bold yellow")
    yield Text(f"{file} must be loaded by you: copy it (`vstream render`) to every server and reload each.")
    yield Text(
        "To check, run `vstream probe`. With every server's `monitor` under `connect`, `vstream plan` checks it too."
    )


def _explain_load(file: str) -> Iterator[Text]:
    """What whoever runs the servers has to do with *file*."""
    yield Text(f"{file} must be loaded by you: copy it (`vstream render`) to every server and reload each,")
    if file == ACCOUNTS_PATH:
        yield Text("twice for a new account (docs/routing.md),")
    yield Text("then run `vstream apply` again for the changes that had to wait.")
