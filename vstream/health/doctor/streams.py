"""Problems of streams and consumers: layouts that lose or duplicate messages, placement, replicas, failed writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vstream.findings import Severity
from vstream.formatting import summarize_names
from vstream.health.doctor.check import APPLY, Drift, Issue, LiveSystem, check
from vstream.health.snapshot import Snapshot, StreamSnapshot
from vstream.health.stream_faults import find_consumer_faults
from vstream.topology.model import POSITIONS_STORED_SINCE
from vstream.topology.replication import Durable, PhysicalStream, list_durables, list_physical_streams
from vstream.topology.stream_config import StreamConfig
from vstream.topology.stream_limits import PER_SUBJECT, read_limit
from vstream.topology.units import Version, format_version, parse_version

_DOUBLES = (((2, 11, 12), (2, 12, 0)), ((2, 12, 3), (2, 15, 0)))
"""Versions from (inclusive) and to (exclusive) in which a new leader looks for the filtered subject among transformed ones."""
_STOPPED = "last msgid mismatch"
_RECREATE = (
    "stop publishing with `Nats-Expected-Last-Msg-Id`, and create the stream again: `vstream lint --explain VD508`"
)
_LISTEN = "run `vstream backup restore` again if it was interrupted; otherwise restart its leader"
_BUSY_SECONDS = 5.0  # seconds since the last message
_BRING_BACK = "bring back the servers that do not answer (VD404)"


@check("VD101", "doubles-on-restart", drift=Drift.UNRELATED)
def doubles_on_restart(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream stores sourced messages twice when its leader restarts or changes.

    ## Why is this bad?
    It has a stream-level `subject_transform`, and sources with a `filter_subject`. To find its position, a new leader
    looks for stored messages on the filtered subject, but they are stored on the transformed one. It finds none and
    starts again: from 2.11.12, 2.12.3 and 2.14 on at every change of the leader; on 2.15 after a crash. If its first
    messages have expired, it starts at its last message instead, and skips late messages for ever.

    ## What to do
    Give each source its own `subject_transforms`, without `filter_subject`, and remove the stream's
    `subject_transform`: what `vstream render` writes. A changed source starts at its first message: set `opt_start_seq`
    to one more than its position, or the update duplicates everything once.
    """
    for name, config, versions in _list_configs(system):
        filtered = [str(source.fields["name"]) for source in config.sources if source.filter is not None]
        transform = config.subject_transform
        if filtered and transform and any(map(_has_doubling_leaders, versions)):
            running = ", ".join(sorted(format_version(version) for version in set(versions)))
            yield Issue(
                about=name,
                evidence=(
                    f"`subject_transform` {transform[0]} → {transform[1]}, and a `filter_subject` on "
                    f"{summarize_names(filtered)}; its servers run {running}"
                ),
                hint="per-source `subject_transforms`, as `vstream render` writes them, with `opt_start_seq`",
            )


@check("VD102", "goes-back", Severity.WARNING, drift=Drift.UNRELATED)
def goes_back(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream with a limit per subject can return to old values when its server restarts.

    ## Why is this bad?
    Before 2.15, servers find their position in a source from its stored messages. If a later value of another region
    has replaced the last one, older values are sourced again and become the newest.

    ## What to do
    Upgrade to 2.15, which stores positions. Until then, run `vstream probe --beacons`: a small message of each origin on its own
    subject keeps the position.
    """
    for name, config, versions in _list_configs(system):
        keeps, sources = read_limit(config.fields, PER_SUBJECT), len(config.sources)
        if sources > 1 and keeps > 0 and min(versions) < POSITIONS_STORED_SINCE:
            oldest = format_version(min(versions))
            yield Issue(
                about=name,
                evidence=f"it keeps {keeps} of each subject, has {sources} sources, and a server of its cluster runs {oldest}",
                hint="upgrade to 2.15; until then `vstream probe --beacons`",
            )


def _list_configs(system: LiveSystem) -> Iterator[tuple[str, StreamConfig, tuple[Version, ...]]]:
    """Each stream with a known configuration, and the versions of the servers of its cluster."""
    for stream, observed in _list_seen(list_physical_streams(system.topology), system.snapshot):
        cluster = observed.cluster or system.topology.cluster_at(stream.place)
        versions = versions_in(system.snapshot, cluster)
        if observed.config is not None and versions:
            yield stream.name, StreamConfig(name=stream.name, fields=observed.config), versions


def _list_seen(
    streams: Iterable[PhysicalStream], snapshot: Snapshot
) -> Iterator[tuple[PhysicalStream, StreamSnapshot]]:
    """Those of *streams* with known state."""
    for stream in streams:
        observed = snapshot.streams.get(stream.name)
        if observed is not None:
            yield stream, observed


def _has_doubling_leaders(version: Version) -> bool:
    # From 2.15 on positions are stored, but a crash loses the newest ones, and then it looks as before.
    return version >= POSITIONS_STORED_SINCE or any(since <= version < until for since, until in _DOUBLES)


def versions_in(snapshot: Snapshot, cluster: str) -> tuple[Version, ...]:
    """The versions of the servers of *cluster* that answer."""
    texts = (server.version for server in snapshot.servers if server.version and server.cluster == cluster)
    return tuple(version for version in map(parse_version, texts) if version is not None)


@check("VD501", "wrong-cluster", drift=Drift.DIFFERENCE, is_in_status=True)
def wrong_cluster(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream is placed in a different cluster from the topology.

    ## Why is this bad?
    Servers place a stream elsewhere if it does not fit and no `placement` forbids it. Clients of its region then write
    or read over the WAN, and lose it if the other region fails.

    ## What to do
    `vstream plan` shows the difference in `placement`; `vstream apply` moves the stream while it stays in use.
    """
    for stream, observed in _list_seen(list_physical_streams(system.topology), system.snapshot):
        expected = system.topology.cluster_at(stream.place)
        if observed.cluster is not None and observed.cluster != expected:
            yield Issue(
                about=stream.name,
                evidence=f"it is placed in cluster `{observed.cluster}` (leader `{observed.leader}`), not in `{expected}`",
                hint=APPLY,
            )


@check("VD502", "no-stream", drift=Drift.UNRELATED)
def no_stream(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream of the topology does not exist.

    ## Why is this bad?
    Without a write stream, a region stores nothing that is published there. Without a read stream, it serves nothing.

    ## What to do
    `vstream plan` shows it, `vstream apply` creates it.
    """
    absent = list_absent(list_physical_streams(system.topology), system.snapshot)
    if absent:
        yield Issue(about=summarize_names(absent), evidence=f"{len(absent):,} do not exist", hint=APPLY)


def list_absent(streams: Iterable[PhysicalStream], snapshot: Snapshot) -> list[str]:
    """Those of *streams* that are known not to exist."""
    known_absent = snapshot.absent - snapshot.streams.keys()
    return [stream.name for stream in streams if stream.name in known_absent]


@check("VD503", "no-leader", drift=Drift.UNRELATED)
def no_leader(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream has no leader or does not answer.

    ## Why is this bad?
    It accepts no publishes and sources no messages. Direct Get still works if a replica is up.

    ## What to do
    A majority of its replicas must run: see VD404.
    """
    streams = list_physical_streams(system.topology)
    leaderless, silent = list_leaderless(streams, system.snapshot), list_silent(streams, system.snapshot)
    names = [stream.name for stream in streams if stream.name in {*leaderless, *silent}]
    if names:
        yield Issue(
            about=summarize_names(names),
            evidence=f"{len(names):,} without a leader, or without an answer",
            hint=_BRING_BACK,
        )


def list_leaderless(streams: Iterable[PhysicalStream], snapshot: Snapshot) -> list[str]:
    """Those of *streams* that a server has, and none leads."""
    return [stream.name for stream, observed in _list_seen(streams, snapshot) if observed.leader is None]


def list_silent(streams: Iterable[PhysicalStream], snapshot: Snapshot) -> list[str]:
    """Those of *streams* that nobody answered for. Where vstream could connect to no region, nobody was asked."""
    answered = snapshot.streams.keys() | snapshot.absent
    return [stream.name for stream in streams if stream.name not in answered and snapshot.was_connected]


@check("VD504", "few-replicas", Severity.WARNING, drift=Drift.UNRELATED)
def few_replicas(system: LiveSystem) -> Iterator[Issue]:
    """
    Replicas of a stream are down or have not caught up, or it has fewer than in the topology.

    ## Why is this bad?
    It survives fewer failures.

    ## What to do
    `vstream apply` restores the number. Look for VD404 and VD405; `nats stream cluster peer-remove` replaces a replica that never catches up.
    """
    streams = list_physical_streams(system.topology)
    for stream, observed, planned in list_made_smaller(streams, system.snapshot):
        evidence = f"it has {observed.replicas} of the {planned} replicas that the topology gives it"
        yield Issue(about=stream.name, evidence=evidence, hint=APPLY)
    for stream, observed in list_outdated(streams, system.snapshot):
        evidence = f"{observed.current} of {observed.replicas} replicas are up to date"
        hint = "bring back the servers that do not answer, or wait until they have caught up"
        yield Issue(about=stream.name, evidence=evidence, hint=hint)


def list_made_smaller(
    streams: Iterable[PhysicalStream], snapshot: Snapshot
) -> Iterator[tuple[PhysicalStream, StreamSnapshot, int]]:
    """Those of *streams* that have fewer replicas than in the topology, and how many those are there."""
    for stream, observed in _list_seen(streams, snapshot):
        planned = stream.fields.get("num_replicas")
        if isinstance(planned, int) and observed.replicas < planned:
            yield stream, observed, planned


def list_outdated(
    streams: Iterable[PhysicalStream], snapshot: Snapshot
) -> Iterator[tuple[PhysicalStream, StreamSnapshot]]:
    """Those of *streams* of which a replica is down, or has not caught up."""
    for stream, observed in _list_seen(streams, snapshot):
        # Between two messages of a busy stream, a replica is often behind: the leader waits for the majority alone.
        is_busy = observed.last_at is not None and snapshot.at - observed.last_at < _BUSY_SECONDS
        if observed.current + is_busy * observed.following < observed.replicas:
            yield stream, observed


@check("VD505", "no-consumer", drift=Drift.UNRELATED)
def no_consumer(system: LiveSystem) -> Iterator[Issue]:
    """
    A consumer of the topology does not exist.

    ## Why is this bad?
    Clients that bind to it there fail, and while the region is cut off, it cannot be created.

    ## What to do
    `vstream plan` shows it, `vstream apply` creates it. It starts according to its `deliver_policy`.
    """
    for durable in _list_led_consumers(system):
        key = durable.stream, durable.name
        if system.snapshot.consumers.get(key, "not asked") is None:
            yield Issue(about=" > ".join(key), evidence="it does not exist", hint=APPLY)


@check("VD506", "silent-consumer", drift=Drift.UNRELATED)
def silent_consumer(system: LiveSystem) -> Iterator[Issue]:
    """
    A consumer of the topology does not answer, although its stream does.

    ## Why is this bad?
    Its clients get no messages. A consumer has its own replicas: it can lose its leader while the stream has one.

    ## What to do
    Bring back the servers that do not answer (VD404). If all run, make it elect a leader: `nats consumer cluster step-down`.
    """
    for durable in _list_led_consumers(system):
        key = durable.stream, durable.name
        if key not in system.snapshot.consumers and system.snapshot.was_connected:
            yield Issue(about=" > ".join(key), evidence="it does not answer", hint=_BRING_BACK)


def _list_led_consumers(system: LiveSystem) -> Iterator[Durable]:
    """The topology's consumers on streams that have a leader; otherwise, the stream is the finding."""
    for durable in list_durables(system.topology):
        stream = system.snapshot.streams.get(durable.stream)
        if stream is not None and stream.leader is not None:
            yield durable


@check("VD508", "cannot-write", drift=Drift.UNRELATED, is_in_status=True)
def cannot_write(system: LiveSystem) -> Iterator[Issue]:
    """
    Servers cannot write to a stream, a consumer or a Raft group, and have stopped trying.

    ## Why is this bad?
    JetStream is enabled, and `/jsz` and STREAM.INFO do not show the problem; publishes time out or are refused. If a
    disk is full, or a file could not be written, the replica refuses everything until its server is restarted, even if
    there is space again.

    `last msgid mismatch` is a different problem: on 2.14.6 and 2.15.1, one publish with the header
    `Nats-Expected-Last-Msg-Id` at the same time as publishes of other clients stops a stream with several replicas for
    ever. The publish is in the log of all replicas, so a restart or fewer replicas do not help (2.12.8 refuses the
    publish, as it should).

    Servers report this only for several replicas. For a stream with one replica, a refused publish is the only sign:
    `vstream probe` publishes.

    ## What to do
    Free disk space, then restart the named servers one after another.

    After `last msgid mismatch`: stop the client that sends the header. Wait until `vstream status` shows that every
    region has the whole stream; its stored messages can still be read. Then delete it (`nats stream rm NAME`) and
    create it again (`vstream apply`, which starts it after the last sourced message of the old one).
    """
    servers_of: dict[tuple[str, str], list[str]] = {}
    for refusal in system.snapshot.write_errors:
        error = refusal.error.rpartition("is not current: ")[2]
        servers_of.setdefault((refusal.about, error), []).append(refusal.server)
    for (about, error), names in servers_of.items():
        yield Issue(
            about=about,
            evidence=f"{summarize_names(names)} cannot write to it: {error}",
            hint=_RECREATE if _STOPPED in error else "free disk space, then restart the servers one after another",
        )


@check("VD509", "refuses-messages", drift=Drift.UNRELATED, is_in_status=True)
def refuses_messages(system: LiveSystem) -> Iterator[Issue]:
    """
    The configuration of a stream makes it refuse messages or reads, or change subjects.

    ## Why is this bad?
    A sealed stream stores nothing. A full stream with `discard: new` refuses every publish; a full reader stops
    sourcing. A stream with other subjects never receives the mapped publishes: publishers get "no responders". So it is
    while `vstream apply` moves a stream, or where that ended too early. If a stream
    changes subjects, messages are stored, but readers of the virtual stream do not find them. With `no_ack`, publishers
    wait in vain; without `allow_direct`, Direct Get is not answered. Above `max_consumers`, clients get no new one.

    ## What to do
    `vstream plan` shows what was changed, and `vstream apply` restores it. A sealed stream cannot be unsealed: delete
    it once every region has everything (`vstream status`), and apply. For a full stream, raise the limit or purge it.
    """
    for fault in system.stream_faults:
        if fault.code == "VD509":
            yield Issue(about=fault.stream, evidence=fault.evidence, hint=APPLY)


@check("VD510", "paused-consumer", Severity.WARNING, drift=Drift.UNRELATED)
def paused_consumer(system: LiveSystem) -> Iterator[Issue]:
    """
    A consumer of the topology is paused.

    ## Why is this bad?
    Its clients get no messages until the pause ends.

    ## What to do
    `nats consumer resume STREAM CONSUMER`, unless the pause is intended.
    """
    for durable in _list_led_consumers(system):
        key = durable.stream, durable.name
        observed = system.snapshot.consumers.get(key)
        if observed is not None and observed.is_paused:
            yield Issue(about=" > ".join(key), evidence="it is paused", hint=f"`nats consumer resume {' '.join(key)}`")


@check("VD511", "other-deliveries", drift=Drift.UNRELATED, is_in_status=True)
def other_deliveries(system: LiveSystem) -> Iterator[Issue]:
    """
    A consumer of the topology delivers something else than the topology says.

    ## Why is this bad?
    With another filter its clients miss messages, or get those of others. With `headers_only` they get no payloads. With
    `ack_policy: none`, what a client loses never comes again. A consumer that pushes refuses pull requests.

    ## What to do
    `vstream plan` shows the difference, and `vstream apply` restores it. One that pushes or has another `ack_policy` must be deleted first.
    """
    for fault in find_consumer_faults(system.topology, system.snapshot):
        yield Issue(about=fault.consumer, evidence=fault.evidence, hint=APPLY)


@check("VD512", "not-subscribed", drift=Drift.UNRELATED, is_in_status=True)
def not_subscribed(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream exists, and the server that leads it does not listen for it.

    ## Why is this bad?
    It answers STREAM.INFO with all its messages, and publishers get "no responders". A restore that was cut off leaves
    such a stream. An account with more than 100,000 subscriptions on a server is not looked at; `vstream probe` finds it there too.

    ## What to do
    If `vstream backup restore` was interrupted, run it again. Otherwise restart the server that leads the stream.
    """
    for fault in system.stream_faults:
        if fault.code == "VD512":
            yield Issue(about=fault.stream, evidence=fault.evidence, hint=_LISTEN)


@check("VD513", "wrong-end", drift=Drift.UNRELATED, is_in_status=True)
def wrong_end(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream says that it ends before messages that it holds.

    ## Why is this bad?
    It mirrors a stream that has lost messages: the server sets the copy's end back to that of its origin. So nothing else
    shows that the origin lost anything, and the copy may be all that holds it. `vstream repair messages` does not see it.

    ## What to do
    Stop publishing, and do not delete the copy. Another copy that still ends where it ended shows what is missing (VD301):
    `vstream repair messages` publishes that again. Otherwise read the messages with a new consumer of the copy.
    """
    for fault in system.stream_faults:
        if fault.code == "VD513":
            yield Issue(about=fault.stream, evidence=fault.evidence, hint="stop publishing, and keep it")
