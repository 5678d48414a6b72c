"""The audit against a reference in plain Python, on thousands of small histories: a virtual stream each, in one table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support import audit_reference as reference
from tests.support.audit_findings import PROVOKED_IN
from tests.support.audit_histories import NOW, SECOND, History, Maker
from tests.support.night import repetitions
from vstream.audit.codes import BY_KIND
from vstream.audit.finding_kinds import FindingKind
from vstream.audit.judge import delays
from vstream.audit.report import AuditVerdict, Report
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.session import without_codegen
from vstream.audit.stages import StageRunner
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.table_store import TableStore
from vstream.findings import Severity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

HISTORIES = repetitions(150, night=1500)
RARE = (160, 206, 231, 247, 266, 324, 583, 763, 945, 1240, 1404, 2156, 3632, 5596, 7025, 8610, 10642)
"""Seeds of histories with the differences that few have."""
BUCKET = 4
"""So that a history of a dozen messages has several."""
ABOUT_STREAMS = {BY_KIND[kind].name for kind in (FindingKind.NOTHING, FindingKind.UNREADABLE, FindingKind.INCOMPLETE)}
WINDOWS = (
    ("kill-region west", NOW + SECOND, NOW + 5 * SECOND),
    ("kill-region west", NOW + 5 * SECOND // 2, NOW + 60 * SECOND),
)


def histories(seeds: Iterable[int], *, wild: bool = True) -> dict[str, History]:
    return {f"v{seed}": Maker(seed, f"v{seed}", wild=wild).make() for seed in seeds}


def tables(spark: SparkSession, some: Mapping[str, History]) -> tuple[DataFrame, DataFrame]:
    messages = [tuple(row[name] for name in MESSAGES.names) for history in some.values() for row in history.messages]
    streams = [tuple(row[name] for name in STREAMS.names) for history in some.values() for row in history.streams]
    return make_table(spark, messages, MESSAGES), make_table(spark, streams, STREAMS)


def audit(
    spark: SparkSession,
    some: Mapping[str, History],
    place: Path | None = None,
    *,
    on_driver: bool = False,
    max_shown: int = 10**9,
) -> tuple[Report, TableStore]:
    """In Spark's memory, as small tables are audited (*on_driver*), or as large ones are: with files at *place*."""
    shelf = TableStore(spark, None if place is None else place.as_uri())
    messages, streams = tables(spark, some)
    if place is not None:
        # As they are extracted: one stream after the other, several files of each.
        messages = messages.repartitionByRange(5, "virtual", "stream", "seq").sortWithinPartitions(
            "virtual", "stream", "seq"
        )
    models = {name: "ordered" if is_ordered(name) else "virtual" for name in some}
    context = AuditContext(subject="test", windows=WINDOWS, models=models)
    runner = StageRunner(
        store=shelf,
        context=context,
        bucket_size=BUCKET,
        max_on_driver=10**9 if on_driver else 0,
        max_shown=max_shown,
    )
    return runner.run(messages.persist(), streams.persist()).report, shelf


def compare(report: Report, shelf: TableStore, some: Mapping[str, History]) -> None:
    """What *report* and *shelf* say of *some*, which may not be all that was audited, is what the reference says."""
    expected = {name: reference.Audit(history.messages, history.streams) for name, history in some.items()}
    told = {name: audit.run() for name, audit in expected.items()}
    by_history = by_virtual(some, shelf, "differences", as_difference)
    swapped = {
        name: Counter({difference: n for difference, n in differences.items() if difference.kind == "misordered"})
        for name, differences in by_history.items()
    }
    assert told == {name: differences - swapped[name] for name, differences in by_history.items()}, "differences"
    assert {name: reference.count_misordered(audit) for name, audit in expected.items() if is_ordered(name)} == {
        name: dict(Counter(element.seq for element in differences.elements()))
        for name, differences in swapped.items()
        if is_ordered(name)
    }
    assert {name: reference.diverged_keys(audit) for name, audit in expected.items()} == {
        name: set(diverged_keys)
        for name, diverged_keys in by_virtual(some, shelf, "diverged_keys", as_diverged_key).items()
    }
    assert {name: dict(reference.conflicts(audit)) for name, audit in expected.items()} == {
        name: dict(list(conflicts))
        for name, conflicts in by_virtual(some, shelf, "conflicts", lambda row: (row.key, row.number)).items()
    }
    assert {name: reference.shared_ids(audit) for name, audit in expected.items()} == {
        name: dict(list(shared_ids))
        for name, shared_ids in by_virtual(some, shelf, "shared_ids", lambda row: (row.msg_id, row.is_same)).items()
    }
    assert {name: delays_of(audit) for name, audit in expected.items()} == {
        name: {
            (delay.origin_region, delay.region, delay.minute): (
                delay.messages, round(delay.p50_ns), round(delay.p90_ns), round(delay.p99_ns), delay.max_ns,
            )
            for delay in report.delays
            if delay.virtual == name
        }
        for name in some
    }  # fmt: skip
    assert {name: reference.recovery(audit, WINDOWS) for name, audit in expected.items()} == {
        name: {
            (row.begun_ns, row.origin_region, row.region): (row.messages, row.missing, row.recovery_ns)
            for row in report.recoveries
            if row.virtual == name
        }
        for name in some
    }
    assert {name: reference.pairs(audit) for name, audit in expected.items()} == {
        name: {
            (order.region, order.compared_with): (order.neighbours, order.inverted)
            for order in report.order_differences
            if order.virtual == name
        }
        for name in some
    }
    assert {
        name: findings_of(audit, Counter(told[name] + Counter(swapped[name]))) for name, audit in expected.items()
    } == {
        name: Counter(
            {
                finding.name: sum(alike.count for alike in findings if alike.name == finding.name)
                for finding in findings
                if finding.name not in ABOUT_STREAMS
            }
        )
        for name, findings in {name: report.findings_about(name) for name in some}.items()
    }
    for name, differences in told.items():
        is_bad = is_failing(differences | swapped[name]) or is_last_value_wrong(some[name], expected[name])
        assert is_bad == (report.verdict(name) is AuditVerdict.FAIL), name


def findings_of(audited: reference.Audit, differences: Counter[reference.Difference]) -> Counter[str]:
    """What the report has to say of messages and keys, by the names of findings, and how often."""
    result: Counter[str] = Counter()
    for difference, times in differences.items():
        result[BY_KIND[FindingKind(difference.kind)].name] += difference.number * times
    result[BY_KIND[FindingKind.DIVERGED_KEYS].name] = sum(key.is_settled for key in reference.diverged_keys(audited))
    result[BY_KIND[FindingKind.CONFLICTS].name] = len(reference.conflicts(audited))
    for is_same in reference.shared_ids(audited).values():
        result[BY_KIND[FindingKind.SHARED_ID_SAME if is_same else FindingKind.SHARED_ID_OTHER].name] += 1
    pairs = reference.late(audited).items()
    result[BY_KIND[FindingKind.CLOCKS].name] = sum(minute is None and delays[0] < 0 for (_, _, minute), delays in pairs)
    return +result


def is_ordered(name: str) -> bool:
    """Whether the virtual stream promises one order: some do, and whether they keep it is asked then."""
    return int(name.removeprefix("v").partition("-")[0]) % 5 == 0


def is_failing(differences: Iterable[reference.Difference]) -> bool:
    codes = (BY_KIND[FindingKind(difference.kind)] for difference in differences)
    return any(code.severity is Severity.ERROR and not code.leaves_open for code in codes)


def is_last_value_wrong(one: History, audited: reference.Audit) -> bool:
    """Where streams keep one message of a subject, regions have to agree on it, and of a counter on the sum."""
    is_compact = any((stream["limits"] or {}).get("max_msgs_per_subject") == 1 for stream in one.streams)
    return (is_compact or audited.is_counter) and any(key.is_settled for key in reference.diverged_keys(audited))


def by_virtual(
    some: Mapping[str, History], shelf: TableStore, table: str, value: Callable[[Any], Any]
) -> dict[str, Any]:
    counters: dict[str, Counter[Any]] = {name: Counter() for name in some}
    for row in shelf.table(table).collect():
        if row.virtual in some:
            counters[row.virtual][value(row)] += 1
    return counters


def as_difference(row: Any) -> reference.Difference:
    return reference.Difference(row.kind, row.stream, row.origin, row.former, row.origin_seq, row.seq, row.number)


def as_diverged_key(row: Any) -> reference.DivergedKey:
    last = frozenset((message.origin, message.former, message.origin_seq) for message in row.last)
    return reference.DivergedKey(row.key, row.is_settled, last)


def delays_of(audited: reference.Audit) -> dict[tuple[str, str, int | None], tuple[int, int, int, int, int]]:
    shares = (0.5, 0.9, 0.99)
    return {
        pair: (len(waits), *(round(reference.share(waits, share)) for share in shares), waits[-1])  # type: ignore[misc]
        for pair, waits in reference.late(audited).items()
    }


@dataclass(frozen=True)
class Audited:
    """One audit of histories in which anything may be wrong, of others that are clean, and of those with one change each."""

    wild: Mapping[str, History]
    clean: Mapping[str, History]
    changed: Mapping[str, History]
    recovered: Mapping[str, History]
    """Of regions that were given up, and of some that came back."""
    report: Report
    store: TableStore


@pytest.fixture(scope="module")
def audited_histories(spark: SparkSession) -> Audited:
    clean = {
        f"{name}-clean": rename_history(history, f"{name}-clean")
        for name, history in histories(range(repetitions(24, night=180)), wild=False).items()
        # Each region of a clean one has an order of its own.
        if any(row["role"] == "read" for row in history.messages) and not is_ordered(name)
    }
    changed: dict[str, History] = {}
    for name, clean_history in clean.items():
        random = Random(name.removesuffix("-clean"))
        disguised = (replace_by_copy, give_to_another, rotate_headers, alter_everywhere)
        for change in (delete, double, swap, *random.sample(disguised, 2)):
            changed_history = change(random, rename_history(clean_history, f"{name}-{change.__name__}"))
            if changed_history is not None:
                changed[f"{name}-{change.__name__}"] = changed_history
    recovered: dict[str, History] = {}
    for name, clean_history in clean.items():
        for change in (give_up, give_up_unequal, make_again, make_again_idle):
            changed_history = rename_history(clean_history, f"{name}-{change.__name__}")
            if sum(row["role"] == "write" for row in changed_history.streams) > 1:
                change(Random(name), changed_history)
                recovered[f"{name}-{change.__name__}"] = changed_history
    wild = histories([*range(HISTORIES), *RARE])
    with without_codegen(spark):
        report, store = audit(spark, {**wild, **clean, **changed, **recovered})
    return Audited(wild, clean, changed, recovered, report, store)


def test_histories_are_judged_as_the_reference_judges_them(audited_histories: Audited) -> None:
    compare(audited_histories.report, audited_histories.store, audited_histories.wild)


def test_of_many_streams_none_that_came_early_or_crossed_is_passed_over(audited_histories: Audited) -> None:
    report, store = audited_histories.report, audited_histories.store
    rows = delays.find_early_or_conflicting(store.table("copies"), {stream.region for stream in report.streams})
    every = {stream.virtual for stream in report.streams}
    early = {row.virtual for row in store.table("delays").where("min_ns < 0").collect()}
    crossed = {row.virtual for row in store.table("conflicts").collect()}
    assert set() < early <= {row.virtual for row in rows if row.is_early} < every
    assert set() < crossed <= {row.virtual for row in rows if row.is_concurrent} < every


def test_histories_on_the_driver_are_judged_as_the_reference_judges_them(spark: SparkSession) -> None:
    drawn = histories(range(HISTORIES, 2 * HISTORIES))
    compare(*audit(spark, drawn, on_driver=True), drawn)


def test_of_many_streams_those_that_do_not_pass_have_figures_and_all_are_judged(spark: SparkSession) -> None:
    # One of them has a clock that is wrong.
    drawn = histories([*range(20), 42]) | histories(range(100, 104), wild=False)
    whole, _ = audit(spark, drawn, on_driver=True)
    short, shelf = audit(spark, drawn, on_driver=True, max_shown=5)
    assert (short.findings, short.streams) == (whole.findings, whole.streams)
    shown = short.with_figures
    assert len(shown) == 5
    assert all(whole.verdict(name) is not AuditVerdict.PASS for name in shown)
    assert BY_KIND[FindingKind.CLOCKS].name in {item.name for item in whole.findings}
    for name in ("routes", "delays", "order_differences"):
        figures = getattr(whole, name)
        assert getattr(short, name) == tuple(figure for figure in figures if figure.virtual in shown)
        assert len(getattr(short, name)) < len(figures)
    assert not shelf.has("delays")


@pytest.mark.night
@settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(min_value=10_000, max_value=2**40))
def test_random_histories_in_files_are_judged_as_the_reference_judges_them(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    drawn = histories(range(seed, seed + HISTORIES // 2))
    compare(*audit(spark, drawn, tmp_path), drawn)


def test_every_kind_of_fault_is_planted_and_found() -> None:
    """Else the comparison above would prove less than it says."""
    result: Counter[str] = Counter()
    for history in histories([*range(2 * HISTORIES), *RARE]).values():
        result.update(difference.kind for difference in reference.Audit(history.messages, history.streams).run())
    assert set(BY_KIND) - PROVOKED_IN.keys() == set(result)


def test_what_is_clean_passes_and_one_row_deleted_doubled_swapped_or_disguised_does_not(
    audited_histories: Audited,
) -> None:
    clean, changed, report = audited_histories.clean, audited_histories.changed, audited_histories.report
    assert {name for name in clean if report.verdict(name) is not AuditVerdict.PASS} == set()
    assert {name for name in changed if report.verdict(name) is AuditVerdict.PASS} == set()
    assert len(changed) > 3 * len(clean)
    # A row that is there twice cannot be: of a write stream it is told so, else that the table has more than the stream.
    doubled = {finding.virtual for finding in report.findings if finding.name in {"incomplete", "row-twice"}}
    assert {name for name in changed if name.endswith("-double")} <= doubled
    assert {finding.virtual for finding in report.findings if finding.severity is Severity.ERROR} <= {
        *(*changed, *audited_histories.wild),
        *(name for name in audited_histories.recovered if name.endswith("_unequal")),
    }


def test_what_a_region_sent_before_it_was_given_up_is_no_stranger_and_no_loss(audited_histories: Audited) -> None:
    verdicts = {
        name: audited_histories.report.verdict(name)
        for name in audited_histories.recovered
        if not name.endswith("_unequal")
    }
    assert len(verdicts) > 10
    assert {name: verdict for name, verdict in verdicts.items() if verdict is not AuditVerdict.PASS} == {}


def test_what_a_region_had_not_taken_before_the_origin_was_given_up_will_not_arrive(audited_histories: Audited) -> None:
    unequal = {name for name in audited_histories.recovered if name.endswith("_unequal")}
    finding_names = {
        (finding.virtual, finding.name) for finding in audited_histories.report.findings if finding.virtual in unequal
    }
    assert {name for _, name in finding_names} & {"late", "pending"} == set()
    assert len({virtual for virtual, name in finding_names if name == "expired"}) > len(unequal) / 2


def give_up(random: Random, one: History) -> None:
    """A write stream is gone with its region; those who sourced it say how far they were."""
    gone = random.choice([row for row in one.streams if row["role"] == "write"])
    one.streams.remove(gone)
    one.messages = [row for row in one.messages if row["stream"] != gone["stream"]]
    for row in one.streams:
        for source in row["sources"]:
            if source["origin"] == gone["stream"]:
                source["last_seq"] = gone["last_seq"]


def give_up_unequal(random: Random, one: History) -> None:
    """As `give_up`, and one of the readers had not yet taken the last messages that another has."""
    before = {row["stream"] for row in one.streams}
    give_up(random, one)
    (gone,) = before - {row["stream"] for row in one.streams}
    copies = [row for row in one.messages if row["source"] is not None and origin(row) == gone]
    behind = random.choice([row for row in one.streams if any(source["origin"] == gone for source in row["sources"])])
    last = max((sequence(row) for row in copies if row["stream"] != behind["stream"]), default=0)
    for source in behind["sources"]:
        if source["origin"] == gone:
            source["last_seq"] = last - 1
    behind["limits"] = {**(behind["limits"] or {}), f"vstream.until.{gone}": last - 1}
    rest = [row for row in copies if row["stream"] == behind["stream"] and sequence(row) >= last]
    one.messages = [row for row in one.messages if row not in rest]
    behind["messages"] -= len(rest)


def make_again(random: Random, one: History) -> None:
    """A region came back: its write stream begins after what others have of the one that was lost."""
    again = random.choice([row for row in one.streams if row["role"] == "write"])
    begins = random.randint(2, max(2, again["last_seq"]))
    again["limits"] = {**(again["limits"] or {}), "first_seq": begins}
    one.messages = [row for row in one.messages if row["stream"] != again["stream"] or row["seq"] >= begins]
    left = [row["seq"] for row in one.of(again["stream"])]
    again["first_seq"], again["messages"] = min(left, default=again["last_seq"] + 1), len(left)


def make_again_idle(random: Random, one: History) -> None:
    """As `make_again`, and nobody has published there yet: servers since 2.15 know that it is another stream."""
    again = random.choice([row for row in one.streams if row["role"] == "write"])
    begins = again["last_seq"] + 1
    one.messages = [row for row in one.messages if row["stream"] != again["stream"]]
    again["limits"] = {**(again["limits"] or {}), "first_seq": begins}
    again["first_seq"], again["messages"] = begins, 0
    if again["identity"]:
        again["identity"] = "NEWSTREAM"
        for source in (source for row in one.streams for source in row["sources"]):
            source["last_seq"] = 0 if source["origin"] == again["stream"] else source["last_seq"]


def rename_history(one: History, name: str) -> History:
    return History(
        messages=[row | {"virtual": name} for row in one.messages],
        streams=[
            row | {"virtual": name, "sources": [dict(source) for source in row["sources"]]} for row in one.streams
        ],
    )


def delete(random: Random, one: History) -> History:
    one.messages.remove(random.choice(one.messages))
    return one


def double(random: Random, one: History) -> History:
    one.messages.append(dict(random.choice(one.messages)))
    return one


def swap(random: Random, one: History) -> History | None:
    """Two messages of one origin in one reader."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in one.messages:
        if row["source"] is not None:
            groups[row["stream"], row["subject"] if row["source"] is None else origin(row)].append(row)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return None
    first, second = random.sample(random.choice(several), 2)
    first["seq"], second["seq"] = second["seq"], first["seq"]
    return one


def replace_by_copy(random: Random, one: History) -> History | None:
    """One message of a reader is gone, and another there twice in its place: numbers of messages are the same everywhere."""
    rows = random.choice(readers(one))
    if len(rows) < 2:
        return None
    gone, twice = random.sample(rows, 2)
    gone.update(twice | {name: gone[name] for name in ("seq", "time_ns")})
    return one


def give_to_another(random: Random, one: History) -> History | None:
    """One message of a reader says that it is one of another write stream."""
    rows = random.choice(readers(one))
    pairs = [(row, partner) for row in rows for partner in rows if origin(row) != origin(partner)]
    if not pairs:
        return None
    row, donor = random.choice(pairs)
    row["source"] = donor["source"]
    return one


def rotate_headers(random: Random, one: History) -> History | None:
    """Each message of an origin in a reader says that it is the next one, and the last that it is the first."""
    rows = random.choice(readers(one))
    of = origin(random.choice(rows))
    siblings = [row for row in rows if origin(row) == of]
    if len(siblings) < 2:
        return None
    headers = [row["source"] for row in siblings]
    for row, header in zip(siblings, [*headers[1:], headers[0]], strict=True):
        row["source"] = header
    return one


def alter_everywhere(random: Random, one: History) -> History | None:
    """All regions agree on the payload of a message, and not with its write stream; of a counter they may."""
    if any("allow_msg_counter" in stream["limits"] for stream in one.streams):
        return None
    digest = random.choice(random.choice(readers(one)))["digest"]
    for row in one.messages:
        if row["role"] == "read" and row["digest"] == digest:
            row["digest"] ^= 1
    return one


def readers(one: History) -> list[list[dict[str, Any]]]:
    """The messages of each stream that is read, of those that have any."""
    names = sorted({row["stream"] for row in one.messages if row["role"] == "read"})
    return [one.of(name) for name in names]


def sequence(row: dict[str, Any]) -> int:
    head = reference.header(row["source"])
    assert head is not None
    return int(head["seq"])


def origin(row: dict[str, Any]) -> str:
    head = reference.header(row["source"])
    assert head is not None
    return str(head["stream"])
