"""
The JSON outputs of the commands, as types: `vstream schema --output NAME` prints the JSON Schema of each.

A later version of an output may have more keys. Where a key goes or changes its meaning, the number in `schema` grows.
"""

from __future__ import annotations

import re
from typing import Any, Final

from typing_extensions import TypedDict

Plain = dict[str, Any]
"""An object with keys of its own, such as a server's configuration or names from a topology."""


class Output(TypedDict):
    """The name and version of an output, as `vstream.NAME/VERSION`."""

    schema: str


class FindingOutput(TypedDict):
    """A finding in a file: what is wrong, and where. Lines and columns count from 1."""

    code: str
    severity: str
    message: str
    hint: str | None
    file: str | None
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    related: list[Plain]
    fixable: bool
    fingerprint: str
    """What stays the same when lines move."""
    url: str | None
    """Where the manual page of the rule is, if that is known."""


class LintStatisticOutput(TypedDict):
    """How often a rule was broken."""

    code: str
    name: str
    count: int
    fixable: bool


class LintStatisticsOutput(Output):
    """How often each rule was broken, most often first."""

    statistics: list[LintStatisticOutput]


class LintBaselineEntry(TypedDict):
    """A finding that is not reported, and how often the file has it. *file* is relative to the baseline."""

    file: str
    code: str
    message: str
    count: int


class LintBaselineOutput(Output):
    """The findings that a repository had when its baseline was written."""

    findings: list[LintBaselineEntry]


class FindingsOutput(Output):
    """What `lint` or `validate` found."""

    findings: list[FindingOutput]


class CandidateOutput(TypedDict):
    """A mapping rule that servers may choose for a publish, or none."""

    source: str | None
    file: str | None
    line: int | None
    column: int | None
    only_if_first: bool | None
    overrides_lines: list[int]
    outcomes: list[Plain]


class RefusalOutput(TypedDict):
    """Why a server would refuse a configuration."""

    message: str
    file: str
    line: int
    column: int


class AccountLinkOutput(TypedDict):
    """An import: messages go from *source* to *destination*, in the exporting account for a service, else out of it."""

    kind: str
    importer: str
    exporter: str
    source: str
    destination: str
    file: str | None
    line: int | None
    column: int | None


class ArrivalOutput(TypedDict):
    """Who sees a publish in another account. null as *percent*: servers pick one of several rules at random."""

    account: str
    subject: str
    percent: float | None
    imports: list[AccountLinkOutput]
    """The imports that bring it, in order."""


class ElsewhereOutput(TypedDict):
    """What the servers of another cluster do with a publish."""

    cluster: str | None
    candidates: list[CandidateOutput]
    arrivals: list[ArrivalOutput] | None


class LeafCrossingOutput(TypedDict):
    """Who sees a message beyond a leaf node connection, or why nobody does: then *subject* is what did not cross."""

    server: str
    account: str
    subject: str
    percent: float | None
    refused: str | None
    imports: list[AccountLinkOutput]
    file: str | None
    line: int | None
    column: int | None


class MapOutput(Output):
    """What servers do with a publish."""

    subject: str
    cluster: str | None
    account: str | None
    accepted: bool
    refusals: list[RefusalOutput]
    ambiguous: bool
    candidates: list[CandidateOutput] | None
    arrivals: list[ArrivalOutput] | None
    """Who sees it in other accounts; null where a number that is drawn decides that, or without a cluster."""
    leaf_nodes: list[LeafCrossingOutput]
    """What comes over leaf node connections, from the server that the client is connected to."""
    elsewhere: list[ElsewhereOutput]
    rules: int
    cost_us: float


class AccountRouteOutput(TypedDict):
    """A mapping rule, import or export: *percent* of what has *source* goes to *destination*; null: nobody gets it."""

    kind: str
    source: str
    destination: str | None
    percent: int
    cluster: str | None
    """null in a mapping: every cluster that its rule does not name."""
    account: str | None
    """The other account of an import or export."""
    streams: list[str]
    """The streams that can take it."""
    file: str | None
    line: int | None
    column: int | None


class MapAllOutput(Output):
    """What an account does with messages."""

    account: str
    cluster: str | None
    accepted: bool
    refusals: list[RefusalOutput]
    routes: list[AccountRouteOutput]


class GraphOutput(Output):
    """The physical streams, who publishes into which, what each reads, and the links between regions."""

    topology: str
    streams: list[Plain]
    publishes: list[Plain]
    replication: list[Plain]
    links: list[Plain]


class RenderOutput(Output):
    """What was written. *missing*: files to put beside these on each host; *exposures*: what servers leave open."""

    topology: str
    directory: str
    files: list[str]
    removed: int
    streams: int
    mapping_rules: int
    missing: list[str]
    exposures: list[str]


class LintExplainOutput(Output):
    """Manual pages of findings: code, name, severity, and text as Markdown. *retired*: what became of a code that went."""

    pages: list[Plain]
    retired: str | None


class ResolvedRegionOutput(TypedDict):
    """The physical streams behind a virtual stream in a region."""

    region: str
    published_into: str | None
    subjects: list[str]
    read: str | None


class MapStreamOutput(Output):
    """The physical streams behind a virtual stream, region by region."""

    regions: list[ResolvedRegionOutput]


class SizedPlaceOutput(TypedDict):
    """What a region or the stretch cluster needs: at most, and at least (`max_msgs_per_subject` may remove the rest). null: no limit."""

    place: str
    bytes: int | None
    bytes_at_least: int | None
    bytes_per_day_without_limit: int
    bytes_per_day_at_least: int
    bytes_available: int | None
    fits: bool | None
    """None where that depends on the number of subjects."""


class SizedStreamOutput(TypedDict):
    """What a virtual stream needs."""

    stream: str
    rate_per_region: float
    message_bytes: int
    crossing_bits_per_second: int
    survivable_outage_s: int | None
    parts: list[Plain]


class SizeOutput(Output):
    """What a topology needs at given rates."""

    topology: str
    fits: bool | None
    mapping_rules: int
    mapping_cost_us_per_message: float
    crossing_bits_per_second: int
    sources: int
    idle_cores: float
    """CPU seconds a second of all servers together while nobody publishes."""
    places: list[SizedPlaceOutput]
    streams: list[SizedStreamOutput]


class SpreadOutput(TypedDict):
    """A figure over all histories. null: it did not come to pass within the duration."""

    low: float | None
    high: float | None


class SimulatedPairOutput(TypedDict):
    """What happened between two regions, and between all pairs that are like them."""

    origin: str
    reader: str
    pairs_alike: int
    lag_messages: SpreadOutput
    lag_s: SpreadOutput
    everywhere_after_healing_s: SpreadOutput
    lost_messages: SpreadOutput
    first_loss_s: SpreadOutput
    crossed_bytes: float


class SizeSimulationOutput(Output):
    """What a topology comes to while regions are away. Streams that are not `virtual` are not simulated."""

    topology: str
    duration_s: float
    published_messages: float
    refused_messages: float
    crossed_bytes: float
    source_consumers: int
    meta_assets: int
    meta_members: int
    not_simulated: list[str]
    pairs: list[SimulatedPairOutput]
    stored_bytes: dict[str, float]


class SurvivalCellOutput(TypedDict):
    """What a stream survives. *incident* is the worst failure of its kind, null where none can happen."""

    stream: str
    failure: str
    ability: str
    answer: str
    """yes, pause (yes, after an election or a retry), no, unknown, or never (the model does not promise it)."""
    reason: str
    incident: str | None
    rehearsed: str | None
    """With --rehearse: shown, refuted, unknown, or not tried."""
    detail: str | None


class SurvivalRehearsalOutput(TypedDict):
    """What came of a rehearsal. *lost* counts acknowledged messages, *expected_losses* those that the table foretells."""

    incidents: list[str]
    shown: int
    refuted: int
    unknown: int
    untried: int
    acknowledged: int
    lost: int
    expected_losses: int
    problems: list[str]
    captures: list[str]


class SurviveOutput(Output):
    """What survives what."""

    topology: str
    cells: list[SurvivalCellOutput]
    rehearsal: SurvivalRehearsalOutput | None


class TraceStepOutput(TypedDict):
    """What a server did: received, mapped, imported, exported, stream, sent. *by* is a kind of connection."""

    server: str
    kind: str
    subject: str | None
    account: str | None
    stream: str | None
    by: str | None
    peer: str | None
    error: str | None


class TraceExpectationOutput(TypedDict):
    """What the mapping model expects in a region: *stream* is null where no virtual stream has the subject."""

    region: str
    subjects: list[str]
    stream: str | None


class PublishTraceOutput(TypedDict):
    """One publish through one server. *verdict* is expected, different or unknown."""

    region: str
    server: str
    version: str | None
    verdict: str
    differs: list[str]
    unknown: list[str]
    steps: list[TraceStepOutput]


class TraceOutput(Output):
    """Where servers take a publish, beside what is expected."""

    topology: str
    subject: str
    expected: list[TraceExpectationOutput]
    traces: list[PublishTraceOutput]


class MetaGroupOutput(TypedDict):
    """A meta group: *alive* has the version of each server that answers, *remove* those that it would forget."""

    name: str
    majority: int
    alive: Plain
    dead: list[str]
    unknown: list[str]
    leader: str | None
    refused: str | None
    remove: list[str]


class RescueOutput(Output):
    """Which servers are dead, and whether the others go on without them."""

    topology: str
    groups: list[MetaGroupOutput]
    done: bool


class BundleOutput(Output):
    """What is in a bundle: *version* is vstream's, *problems* say why files are missing, by name."""

    topology: str
    version: str
    python: str
    at: str
    files: list[str]
    problems: Plain


class ImportOutput(Output):
    """A topology written from what runs."""

    file: str
    topology: str
    naming: str
    regions: list[str]
    streams: Plain
    adopts: bool
    leftovers: list[Plain]
    problems: list[Plain]
    plan: Plain | None


class PlanOutput(Output):
    """What `apply` would change."""

    topology: str
    observed_digest: str
    changes: list[Plain]
    blocked: list[Plain]
    mappings: list[Plain]
    demands: list[Plain]
    unreachable: list[Plain]
    answering_region: str | None
    unread_servers: list[str]
    leaving_servers: list[str]
    gates: list[Plain]
    stages: list[Plain]
    notes: list[Plain]
    losses: list[str]
    owned_stream_count: int
    routing: Plain


class PlanDriftOutput(Output):
    """Whether the servers are still what the topology says."""

    topology: str
    drift: bool
    is_partial: bool
    plan: Plain
    findings: list[DoctorFindingOutput]
    unknown: list[DoctorFindingOutput]
    configs_compared: int
    configs_unread: list[Plain]


class KeysOutput(Output):
    """Public keys by name, null where one is missing, and the files that users log in with."""

    directory: str
    public: dict[str, str | None]
    credentials: dict[str, str]


class ConsumerPositionOutput(Output):
    """How far a consumer is, in each stream that it reads messages of."""

    format: int
    topology: str
    stream: str
    consumer: str
    region: str
    at: str
    origins: dict[str, int]
    unknown: list[str]
    beyond: int
    unacknowledged: int
    config: Plain
    floor: int


class ConsumerSyncOutput(Output):
    """Consumers of all regions, with their positions and the other regions that keep these."""

    consumers: list[Plain]


class ConsumerFailoverOutput(Output):
    """Where a consumer continues in another region, and what it receives again."""

    position: Plain
    to: str
    consumer: str
    replaces: bool
    start: int
    seen_twice: int
    seen_twice_at_most: int
    ahead: int
    pending: int | None
    done: bool


class PairOutput(TypedDict):
    """One origin and one stream that reads it. Ages and times are in seconds."""

    stream: str
    origin: str
    origin_place: str
    reader: str
    reader_place: str
    state: str
    detail: str
    last_seq: int | None
    cursor: int | None
    pending: int | None
    oldest_pending_age_s: float | None
    lossy_in_s: float | None
    kept_s: float | None
    margin_s: float | None


class BeaconOutput(TypedDict):
    """How old the newest beacon of a region is in another."""

    stream: str
    origin: str
    reader: str
    age_s: float | None
    problem: str | None


class StatusOutput(Output):
    """What works, and how far each region lags behind each other."""

    topology: str
    at: float
    took_s: float
    verdict: str
    is_well: bool
    meta_leader: str | None
    margin: PairOutput | None
    problems: list[Plain]
    unknown: list[Plain]
    regions: list[Plain]
    servers: list[Plain]
    matrix: list[Plain]
    streams: list[Plain]
    pairs: list[PairOutput]
    traffic: list[Plain]
    consumers: list[Plain]
    beacons: list[BeaconOutput]


class ProbeBeaconsOutput(Output):
    """How old the newest beacons are, and which could not be published."""

    topology: str
    beacons: list[BeaconOutput]
    problems: list[str]


class CheckOutput(TypedDict):
    """One check of a probe."""

    stream: str
    region: str | None
    hop: str
    origin: str | None
    subject: str | None
    form: str | None
    status: str
    detail: str | None
    hint: str | None
    answered_by: str | None
    server: str | None
    elapsed_ms: float | None


class ProbeOutput(Output):
    """What a probe proved, and how long a message takes from region to region, in milliseconds."""

    topology: str
    passed: bool | None
    """None where that is not known."""
    regions: list[str]
    counts: dict[str, int]
    matrix: dict[str, dict[str, float | None]]
    checks: list[CheckOutput]


class DoctorFindingOutput(TypedDict):
    """Something that is wrong on the servers."""

    code: str
    name: str
    severity: str
    about: str
    evidence: str
    hint: str


class DoctorOutput(Output):
    """What is wrong with the live system."""

    topology: str
    took_s: float
    servers_reached: int
    streams_seen: int
    configs_compared: int
    health: str
    is_healthy: bool
    findings: list[DoctorFindingOutput]


class AuditFindingOutput(TypedDict):
    """Something that is true of a number of messages."""

    code: str
    name: str
    severity: str
    virtual: str
    region: str | None
    stream: str | None
    origin: str | None
    origin_region: str | None
    detail: str
    count: int
    ranges: list[Plain]
    more_ranges: int
    examples: list[str]


class AuditOutput(Output):
    """Whether every region holds every message, once and in order."""

    subject: str
    verdict: str
    messages: int
    regions: list[str]
    stretch: str | None
    verdict_counts: dict[str, int]
    verdicts: dict[str, str]
    findings: list[AuditFindingOutput]
    streams: list[Plain]
    routes: list[Plain]
    delays: list[Plain]
    delays_of_one_in: int
    verified_before: int
    recoveries: list[Plain]
    order_differences: list[Plain]
    publish_outcomes: list[Plain]
    seconds: dict[str, float]


class ResyncOutput(Output):
    """How soon each read stream was resynced."""

    complete: bool
    waited_seconds: float
    streams: list[Plain]


class ResyncedStreamOutput(TypedDict):
    """A stream that stands still, or is led elsewhere than wanted: *action* is resync, wait or move leader."""

    stream: str
    place: str
    action: str
    reason: str


class ResyncWatchOutput(Output):
    """A line of `repair sources --watch`, whenever something changes."""

    at: str
    """UTC, ISO 8601."""
    streams: list[ResyncedStreamOutput]
    problem: str | None


class RepairOutput(Output):
    """What was repaired, or would be, and what is left."""

    topology: str
    is_done: bool
    leftovers: list[Plain]
    standstills: list[Plain]
    refills: list[Plain]
    repaired: list[str]
    unknown: list[Plain]
    replays: list[Plain]
    reused: list[Plain]
    doubles: list[Plain]
    unread: dict[str, str]
    open: list[str]


class LabStatusOutput(Output):
    """The labs of this machine, and their servers."""

    labs: list[Plain]


class LabDoctorOutput(Output):
    """What labs can do on this machine."""

    can_run_labs: bool
    findings: list[Plain]


class LabLinksOutput(Output):
    """The links of a lab: what is in effect, and of what it is made."""

    lab: str
    backend: str
    links: list[Plain]
    refused_connections: int | None


class OpenFaultOutput(TypedDict):
    """A fault that was injected and not undone."""

    id: str
    command: str
    kind: str
    servers: list[str]
    where: str
    since: str
    confirmed: bool


class _FaultOptions(TypedDict, total=False):
    evidence: str | None
    fault: OpenFaultOutput | None
    effects: Plain
    healthy_after_seconds: float | None
    restarted: list[Plain]


class ChaosFaultOutput(Output, _FaultOptions):
    """A fault that was injected, with its effects; with `--for`, also how soon all was healthy again."""

    command: str


class FailoverOutput(Output):
    """A region, and *also* others, given up or taken in again: who was asked, what is lost, the plan, whether it is done."""

    region: str
    also: list[str]
    proof: Plain | None
    homes: dict[str, str]
    losses: list[str]
    plan: Plain | None
    done: bool


class BackupOutput(Output):
    """A backup that was written. *cut*: up to which sequence of each origin every region has everything."""

    directory: str
    id: str
    topology: str
    started: str
    cut: dict[str, int]
    streams: list[Plain]


class RestoreOutput(Output):
    """A backup that is restored: its streams, and those that were *missing* on the servers before."""

    id: str
    topology: str
    started: str
    streams: list[str]
    missing: list[str]
    continued: bool
    done: bool


class DrainOutput(Output):
    """A region or server that is to be stopped: what others lead now, what it still holds back, and the plan."""

    target: str
    safe: bool | None
    moved: list[str]
    missing: list[str]
    unknown: list[str]
    notes: list[str]
    plan: Plain | None
    done: bool


class ChaosStatusOutput(Output):
    """The open faults of a lab, each with whether it is over by itself."""

    faults: list[Plain]


class ChaosHealOutput(Output):
    """The faults that were undone, and how soon all was healthy again."""

    healed: list[OpenFaultOutput]
    healthy_after_seconds: float | None


class ScenarioListOutput(Output):
    """The scenarios that come with vstream, and those of this directory."""

    scenarios: list[Plain]


class ScenarioVerdictOutput(Output):
    """The verdict about a scenario's run."""

    format: int
    status: str
    counts: dict[str, int]
    scenario: str
    seed: int
    started: str
    load: list[int] | None
    vstream: str
    backend: str
    regions: list[str]
    machine: Plain
    servers: list[Plain]
    warnings: list[str]
    cases: list[Plain]
    streams: list[Plain]
    windows: list[Plain]
    faults: list[Plain]
    lateness: Plain | None
    timeline: Plain


_ExploreCounts = TypedDict("_ExploreCounts", {"pass": int, "fail": int, "unknown": int})


class ScenarioExploreOutput(Output, _ExploreCounts):
    """The runs of random scenarios."""

    seed: int
    runs: int
    acknowledged: int
    lost: int
    duplicated: int
    explored: list[Plain]


VERSION: Final = 2
FailbackOutput = FailoverOutput
_CLASSES = {name.removesuffix("Output"): item for name, item in globals().items() if name.endswith("Output")}
OUTPUTS: Final[dict[str, Any]] = {}
"""Every output by its name: `ChaosStatusOutput` is `chaos-status`."""
for _name in sorted(_CLASSES):
    if "schema" in _CLASSES[_name].__annotations__ and _name:
        OUTPUTS[re.sub(r"(?!^)([A-Z])", r"-\1", _name).lower()] = _CLASSES[_name]


def schema_id(name: str) -> str:
    """What the output *name* has as its `schema`."""
    return f"vstream.{name}/{VERSION}"
