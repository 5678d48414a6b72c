"""What the commands say of worlds, held against what is true of them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.worlds.world import Claim, World

CLASSES = {
    "lost-prefix": "lost", "lost-middle": "lost", "lost-tail": "lost", "expired": "lost", "late": "lost",
}  # fmt: skip
"""Where in a stream a message is missing is for the audit to say: that it is, is what counts here."""
_WITHOUT_ORIGIN = {"unexpected", "no-such-stream", "last-value"}
_WORLD = re.compile(r"w\d{3}")
_FAIL = "fail"
_ERRORS = ("missed", "invented")
_COMMANDS = {
    "status": "`status`", "doctor": "`doctor`", "audit": "`audit`", "repair": "`repair messages`",
    "repaired": "`audit` after it",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one command said of one world."""

    world: World
    command: str
    missed: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    verdict: str = ""


def judge_audit(world: World, report: Mapping[str, Any], expected: Counter[Claim] | None = None) -> Verdict:
    """An audit's report; *expected* is what is wrong, if that has changed since the truth was written down."""
    claims = +(world.truth.claims if expected is None else expected)
    errors, beside = Counter[Claim](), list[str]()
    for finding in report["findings"]:
        if finding["virtual"] != world.virtual:
            continue
        if finding["severity"] == "error":
            kind = CLASSES.get(finding["name"], finding["name"])
            has_origin = kind not in _WITHOUT_ORIGIN
            stream = "" if kind == "last-value" else finding["stream"]
            origin = finding["origin"] or finding["stream"]
            errors[kind, stream, origin if has_origin else None] += finding["count"]
        elif not _is_explained(world, finding):
            beside.append(f"{finding['code']} {finding['detail']}")
    verdict = report["verdicts"][world.virtual]
    if world.truth.is_wrong:
        return Verdict(world=world, command="audit", missed=() if errors else ("anything",), verdict=verdict)
    missed, invented = claims - errors, errors - claims
    if (verdict == _FAIL) != bool(claims) and not missed and not invented:
        (missed if claims else invented)["verdict", verdict, None] += 1
    return Verdict(
        world=world, command="audit", missed=_texts(missed), invented=(*_texts(invented), *beside), verdict=verdict
    )


def _is_explained(world: World, finding: Mapping[str, Any]) -> bool:
    """Whether a warning or a note is about what was done, or what limits do."""
    setting = world.setting
    has_limits = not setting.reads_keep_all or not setting.writes_keep_all or setting.has_ttls
    is_contested = bool(world.contested)
    return (
        finding["code"] in world.truth.warnings
        or (finding["code"] == "VA107" and has_limits)
        or (finding["code"] == "VA402" and is_contested)
        or (finding["code"] == "VA406" and "VA405" in world.truth.warnings)
    )


def _texts(claims: Counter[Claim]) -> tuple[str, ...]:
    return tuple(f"{number} {' '.join(map(str, claim))}" for claim, number in sorted(claims.items(), key=str))


def _unknown_pairs(world: World, status: Mapping[str, Any]) -> list[Any]:
    """Where a status says that it does not know: servers before 2.15 do not say how far they are, and so many are asked at once."""
    return [pair for pair in status["pairs"] if pair["stream"] == world.virtual and pair["state"] == "unknown"]


def judge_doctor(world: World, report: Mapping[str, Any], status: Mapping[str, Any], absent: int) -> Verdict:
    """
    Only what a doctor can know without reading streams: what it must say, and what it may.

    Of the *absent* streams in all worlds it names three, and says how many there are.
    """
    findings = [
        item for item in report["findings"] if world.name in _WORLD.findall(f"{item['about']} {item['evidence']}")
    ]
    codes = {finding["code"] for finding in findings if finding["severity"] == "error"}
    truth = world.truth
    if any(finding["evidence"] == f"{absent:,} do not exist" for finding in report["findings"]):
        codes |= truth.doctor & {"VD502"}
    is_unknown = truth.doctor == {"VD301"} and bool(_unknown_pairs(world, status))
    may = truth.doctor | truth.doctor_may
    return Verdict(
        world=world,
        command="doctor",
        missed=tuple(sorted(truth.doctor)) if truth.doctor and not codes & truth.doctor and not is_unknown else (),
        invented=tuple(
            f"{item['code']} {item['about']}: {item['evidence']}"
            for item in findings
            if item["severity"] == "error" and item["code"] not in may
        ),
        verdict=" ".join(sorted(codes)) or "healthy",
    )


def judge_status(world: World, report: Mapping[str, Any]) -> Verdict:
    """A stream with a problem is one that the doctor has something to say about, and the other way round."""
    problems = tuple(str(problem) for problem in report["problems"] if world.name in _WORLD.findall(str(problem)))
    # Problems name the worst stream between two regions: the pairs say which have it, too.
    states = {pair["state"] for pair in report["pairs"] if pair["stream"] == world.virtual} - {"ok", "unknown"}
    is_named = bool(problems) or bool(states and world.truth.doctor)
    unknown = _unknown_pairs(world, report)
    return Verdict(
        world=world,
        command="status",
        missed=("a problem",) if world.truth.doctor and not is_named and not unknown else (),
        invented=problems if is_named and not (world.truth.doctor | world.truth.doctor_may) else (),
        verdict="problem" if is_named else "unknown" if unknown else "well",
    )


def judge_repair(world: World, report: Mapping[str, Any]) -> Verdict:
    """What can be repaired, and what is said of the rest."""
    proposed, expected = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for item in report["replays"]:
        if item["stream"] == world.virtual:
            proposed["replay", item["reader"], item["origin"]] += item["missing"]
            proposed["left", item["reader"], item["origin"]] += sum(item["irreparable"].values())
    for item in report["doubles"]:
        if item["stream"] == world.virtual:
            proposed["copies", item["reader"]] += item["copies"]
            proposed["differing", item["reader"]] += item["differing"]
    for item in report["refills"]:
        if item["origin"] in world.truth.refilled or world.name in item["origin"]:
            proposed["refill", item["origin"]] += 1
    for name, numbers in (("replay", world.truth.replayed), ("left", world.truth.left)):
        expected.update({(name, *pair): number for pair, number in numbers.items()})
    for name, copies in (("copies", world.truth.copies), ("differing", world.truth.differing)):
        expected.update({(name, reader): number for reader, number in copies.items()})
    # More streams than are measured at once are said to be unknown.
    unknown = {pair["origin"] for pair in report["unknown"]}
    expected.update({("refill", origin): 1 for origin in world.truth.refilled - unknown})
    missed, invented = +(expected - proposed), +(proposed - expected)
    return Verdict(
        world=world,
        command="repair",
        missed=tuple(f"{number} {' '.join(key)}" for key, number in missed.items()),
        invented=tuple(f"{number} {' '.join(key)}" for key, number in invented.items()),
        verdict="open" if +proposed else "nothing",
    )


def after_repair(world: World, refilled: Collection[str]) -> Counter[Claim]:
    """What is still wrong when everything was repaired that can be, and the write streams *refilled*: order does not come back."""
    truth, claims = world.truth, Counter(world.truth.claims)
    for (reader, origin), number in truth.replayed.items():
        claims["lost", reader, origin] -= number
        truth.warnings.add("VA303")
    if world.contested and truth.replayed:
        claims["last-value", "", None] = 0
    if truth.refilled & set(refilled):
        # What was published again has its time of now in the write stream, and that of before in read streams.
        truth.warnings.add("VA501")
    for claim in list(claims):
        kind, stream, source = claim
        if (kind == "duplicated" and truth.copies[stream]) or (kind == "rolled-back" and source in refilled):
            claims[claim] = 0
    return +claims


def record(file: Path, version: str, seed: int, verdicts: Sequence[Verdict]) -> None:
    """Add the verdicts of one lab to the counts in *file*. A seed that comes again begins the count of its version anew."""
    counts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    entry = counts.get(version)
    if entry is None or seed in entry["seeds"]:
        entry = {"seeds": [], "worlds": 0, "kinds": {}}
    entry["seeds"] = sorted([*entry["seeds"], seed])
    entry["worlds"] += len({verdict.world.name for verdict in verdicts})
    for verdict in verdicts:
        for kind in verdict.world.kinds:
            cell = entry["kinds"].setdefault(kind, {}).setdefault(verdict.command, {"missed": 0, "invented": 0})
            cell["missed"] += bool(verdict.missed)
            cell["invented"] += bool(verdict.invented)
            cell[verdict.verdict] = cell.get(verdict.verdict, 0) + 1
    text = json.dumps({**counts, version: entry}, indent=1, sort_keys=True)
    file.write_text(f"{text}\n", encoding="utf-8")


def render_versions(counts: Mapping[str, Any]) -> str:
    """A row of a Markdown table for each version of nats-server."""
    rows = []
    for version, entry in sorted(counts.items()):
        cells = [cell for commands in entry["kinds"].values() for cell in commands.values()]
        missed, invented = (sum(cell[name] for cell in cells) for name in _ERRORS)
        rows.append(f"| {version} | {entry['worlds']} | {missed} | {invented} |\n")
    return "| nats-server | worlds | missed | invented |\n|---|---|---|---|\n" + "".join(rows)


def render_kinds(counts: Mapping[str, Any]) -> str:
    """A row for each kind of event, with what each command said of how many worlds."""
    cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for entry in counts.values():
        for kind, commands in entry["kinds"].items():
            for command, cell in commands.items():
                cells[kind][command].update(cell)
    rows = []
    for kind, by_command in sorted(cells.items()):
        missed, invented = (sum(cell[name] for cell in by_command.values()) for name in _ERRORS)
        verdicts = [_list_verdicts(by_command[command]) for command in _COMMANDS]
        rows.append(f"| {kind.replace('-', ' ')} | {' | '.join(verdicts)} | {missed} | {invented} |\n")
    head = f"| | {' | '.join(_COMMANDS.values())} | missed | invented |\n|---|{'---|' * (len(_COMMANDS) + 2)}\n"
    return head + "".join(rows)


def _list_verdicts(cell: Counter[str]) -> str:
    return ", ".join(f"{verdict} {number}" for verdict, number in cell.most_common() if verdict not in _ERRORS)


def complain(verdicts: Iterable[Verdict]) -> list[str]:
    """What was missed or invented, by world."""
    return [
        f"{item.world.name} ({item.world.setting.name}: {', '.join(item.world.kinds)}) {item.command}: "
        f"missed {list(item.missed)}, invented {list(item.invented)}"
        for item in verdicts
        if item.missed or item.invented
    ]
