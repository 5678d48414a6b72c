"""What is wrong with streams and consumers: layouts that lose or double, placement, replicas, failed writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vstream.diagnostics import Severity
from vstream.health.doctor.check import APPLY, Drift, Patient, Symptom, check
from vstream.health.stream_faults import find_stream_faults
from vstream.health.units import list_names
from vstream.topology.replication import all_physical_streams, durables
from vstream.topology.versions import format_version, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.health.snapshot import Snapshot, StreamSnapshot
    from vstream.topology.replication import Durable, PhysicalStream
    from vstream.topology.versions import Version

_DOUBLES = (((2, 11, 12), (2, 12, 0)), ((2, 12, 3), (2, 15, 0)))
"""From (inclusive) and to (exclusive): a new leader looks for the filtered subject among transformed ones."""
_STOPPED = "last msgid mismatch"
_RECREATE = "stop publishing with `Nats-Expected-Last-Msg-Id`, and make the stream anew: `vstream explain VD508`"
_STORES_POSITIONS: Version = (2, 15, 0)
_START_SERVERS = "start the servers that are away (VD404)"


@check("VD101", "doubles-on-restart")
def doubles_on_restart(patient: Patient) -> Iterator[Symptom]:
    """
    A stream doubles what it sources when its leader restarts or changes.

    ## Why is this bad?
    It has a stream-level `subject_transform`, and sources with a `filter_subject`. To find out how far it had come,
    a new leader looks for messages on the filtered subject among its own, which have the transformed one. It finds
    none and begins again: from 2.11.12, 2.12.3 and 2.14 on at every change of the leader; on 2.15 after a crash.
    If its first messages have expired, it begins at its last message instead, and skips for good what was late.

    ## What to do
    Give each source its own `subject_transforms`, without `filter_subject`, and remove the stream's
    `subject_transform`: what `vstream render` writes. A changed source begins from its start: set `opt_start_seq` to
    one more than its position, or the update doubles everything once.
    """
    for name, config, versions in _configs(patient):
        filtered = [str(source["name"]) for source in _sources(config) if source.get("filter_subject")]
        transform = config.get("subject_transform")
        if filtered and transform and any(map(_has_doubling_leaders, versions)):
            running = ", ".join(sorted(format_version(version) for version in set(versions)))
            yield Symptom(
                about=name,
                evidence=(
                    f"`subject_transform` {transform.get('src')} → {transform.get('dest')}, and a `filter_subject` on "
                    f"{list_names(filtered)}; its servers run {running}"
                ),
                do="per-source `subject_transforms`, as `vstream render` writes them, with `opt_start_seq`",
            )


@check("VD102", "goes-back", Severity.WARNING)
def goes_back(patient: Patient) -> Iterator[Symptom]:
    """
    A stream that keeps few messages of a subject can go back to old values when its server restarts.

    ## Why is this bad?
    Before 2.15, servers find their position in a source among the messages that they have of it. Where a later
    value of another region has replaced the last one, older values are sourced again, and become the newest.

    ## What to do
    Upgrade to 2.15, which stores positions. Until then run `vstream beacon`: a small message of each origin on a
    subject of its own stays, and pins the position.
    """
    for name, config, versions in _configs(patient):
        keeps, sources = config.get("max_msgs_per_subject") or -1, len(_sources(config))
        if sources > 1 and keeps > 0 and min(versions) < _STORES_POSITIONS:
            oldest = format_version(min(versions))
            yield Symptom(
                about=name,
                evidence=f"it keeps {keeps} of each subject, has {sources} sources, and a server of its cluster runs {oldest}",
                do="upgrade to 2.15; until then `vstream beacon`",
            )


def _configs(patient: Patient) -> Iterator[tuple[str, Mapping[str, Any], tuple[Version, ...]]]:
    """Each stream whose configuration is known, and the versions of the servers of its cluster."""
    for stream, observed in _streams_seen(patient):
        cluster = observed.cluster or patient.topology.cluster_at(stream.place)
        versions = versions_in(patient.snapshot, cluster)
        if observed.config is not None and versions:
            yield stream.name, observed.config, versions


def _streams_seen(patient: Patient) -> Iterator[tuple[PhysicalStream, StreamSnapshot]]:
    """Each physical stream that something is known of."""
    for stream in all_physical_streams(patient.topology):
        observed = patient.snapshot.streams.get(stream.name)
        if observed is not None:
            yield stream, observed


def _sources(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [source for source in config.get("sources") or () if isinstance(source, dict)]


def _has_doubling_leaders(version: Version) -> bool:
    # From 2.15 on positions are stored, but a crash loses the newest ones, and then it looks as before.
    return version >= _STORES_POSITIONS or any(since <= version < until for since, until in _DOUBLES)


def versions_in(snapshot: Snapshot, cluster: str) -> tuple[Version, ...]:
    """The versions of the servers of *cluster* that answer."""
    texts = (server.version for server in snapshot.servers if server.version and server.cluster == cluster)
    return tuple(version for version in map(parse_version, texts) if version is not None)


@check("VD501", "overflowed", drift=Drift.DIFFERENCE)
def find_overflow(patient: Patient) -> Iterator[Symptom]:
    """
    A stream lives in another cluster than the topology says.

    ## Why is this bad?
    Servers place a stream elsewhere when it does not fit and no `placement` forbids it. Its region's clients then write or
    read over the WAN, and lose it with another region.

    ## What to do
    `vstream plan` shows the difference in `placement`; applying it moves the stream while it works.
    """
    for stream, observed in _streams_seen(patient):
        expected = patient.topology.cluster_at(stream.place)
        if observed.cluster is not None and observed.cluster != expected:
            yield Symptom(
                about=stream.name,
                evidence=f"it lives in cluster `{observed.cluster}` (leader `{observed.leader}`), not in `{expected}`",
                do=APPLY,
            )


@check("VD502", "no-stream")
def no_stream(patient: Patient) -> Iterator[Symptom]:
    """
    A stream of the topology does not exist.

    ## What to do
    `vstream plan` shows it, `vstream apply` makes it.
    """
    known_absent = patient.snapshot.absent - patient.snapshot.streams.keys()
    absent = [stream.name for stream in all_physical_streams(patient.topology) if stream.name in known_absent]
    if absent:
        yield Symptom(about=list_names(absent), evidence=f"{len(absent):,} do not exist", do=APPLY)


@check("VD503", "no-leader")
def no_leader(patient: Patient) -> Iterator[Symptom]:
    """
    A stream has no leader, or no server answers for it.

    ## Why is this bad?
    Nothing can be written to it, and it takes nothing. Direct Get still works where a replica is up.

    ## What to do
    The majority of its replicas must run: see VD404.
    """
    silent = []
    for stream in all_physical_streams(patient.topology):
        observed = patient.snapshot.streams.get(stream.name)
        is_silent = stream.name not in patient.snapshot.absent if observed is None else observed.leader is None
        if is_silent:
            silent.append(stream.name)
    if silent:
        yield Symptom(
            about=list_names(silent),
            evidence=f"{len(silent):,} without a leader, or without an answer",
            do=_START_SERVERS,
        )


@check("VD504", "few-replicas", Severity.WARNING)
def few_replicas(patient: Patient) -> Iterator[Symptom]:
    """
    Replicas of a stream are away, or have not caught up.

    ## Why is this bad?
    It survives one loss less.

    ## What to do
    Look for VD404 and VD405; a replica that never catches up is built anew by `nats stream cluster peer-remove`.
    """
    for stream, observed in _streams_seen(patient):
        if observed.current < observed.replicas:
            yield Symptom(
                about=stream.name,
                evidence=f"{observed.current} of {observed.replicas} replicas have everything",
                do="start the servers that are away, or wait until they have caught up",
            )


@check("VD505", "no-consumer")
def no_consumer(patient: Patient) -> Iterator[Symptom]:
    """
    A consumer of the topology does not exist.

    ## Why is this bad?
    Clients that bind to it there fail, and while the region is cut off nobody can create it.

    ## What to do
    `vstream plan` shows it, `vstream apply` makes it. It begins as its `deliver_policy` says.
    """
    for durable in _consumers_of_led_streams(patient):
        key = durable.stream, durable.name
        if patient.snapshot.consumers.get(key, "not asked") is None:
            yield Symptom(about=" > ".join(key), evidence="it does not exist", do=APPLY)


@check("VD506", "silent-consumer")
def silent_consumer(patient: Patient) -> Iterator[Symptom]:
    """
    A consumer of the topology does not answer, although its stream does.

    ## Why is this bad?
    Its clients get no messages. A consumer has replicas of its own: it may have lost its leader alone.

    ## What to do
    Start the servers that are away (VD404). If all run, have it elect a leader: `nats consumer cluster step-down`.
    """
    for durable in _consumers_of_led_streams(patient):
        key = durable.stream, durable.name
        if key not in patient.snapshot.consumers:
            yield Symptom(about=" > ".join(key), evidence="it does not answer", do=_START_SERVERS)


def _consumers_of_led_streams(patient: Patient) -> Iterator[Durable]:
    """The topology's consumers on streams that have a leader: of others, the stream is the finding."""
    for durable in durables(patient.topology):
        stream = patient.snapshot.streams.get(durable.stream)
        if stream is not None and stream.leader is not None:
            yield durable


@check("VD508", "cannot-write")
def cannot_write(patient: Patient) -> Iterator[Symptom]:
    """
    Servers cannot write to a stream, a consumer or a Raft group, and have given it up.

    ## Why is this bad?
    JetStream is on, and `/jsz` and STREAM.INFO say nothing of it; publishes have no answer, or are refused. If a disk is full, or a file
    could not be written, the replica refuses everything until its server is restarted, also when there is space again.

    `last msgid mismatch` is another thing: on 2.14.6 and 2.15.1, one publish with the header `Nats-Expected-Last-Msg-Id` beside those of
    other clients stops a stream with several replicas for good. It is in the log of all replicas: a restart comes to the same, and so does
    a smaller number of replicas (2.12.8 refuses the publish, as it should).

    Servers say this only of what has several replicas. Of a stream with one, a publish that is refused is the only sign:
    `vstream probe` and `vstream beacon` publish.

    ## What to do
    Make space, then restart the servers that are named, one after the other.

    After `last msgid mismatch`: stop whoever sends the header. Wait until `vstream status` shows that every region has all of the
    stream; what it had stored can still be read. Then delete it (`nats stream rm NAME`) and make it anew (`vstream apply`, which
    lets it begin behind what was taken of the old one).
    """
    servers_of: dict[tuple[str, str], list[str]] = {}
    for refusal in patient.snapshot.write_errors:
        error = refusal.error.rpartition("is not current: ")[2]
        servers_of.setdefault((refusal.about, error), []).append(refusal.server)
    for (about, error), names in servers_of.items():
        yield Symptom(
            about=about,
            evidence=f"{list_names(names)} cannot write to it: {error}",
            do=_RECREATE if _STOPPED in error else "free disk space, then restart the servers one after the other",
        )


@check("VD509", "refuses-messages")
def refuses_messages(patient: Patient) -> Iterator[Symptom]:
    """
    A stream refuses messages, or gives them other subjects, because of how it is configured.

    ## Why is this bad?
    A sealed stream stores nothing. A full one with `discard: new` refuses every publish. One that listens on other subjects
    never gets what the mapping rules send it: publishers get "no responders". Messages with other subjects are stored, and
    nobody who reads the virtual stream finds them.

    ## What to do
    `vstream plan` shows what was changed, and `vstream apply` puts it back. A sealed stream cannot be opened again: delete it once
    every region has everything (`vstream status`), and apply. Of a full stream, raise the limit, or purge it.
    """
    for fault in find_stream_faults(patient.topology, patient.snapshot):
        yield Symptom(about=fault.stream, evidence=fault.evidence, do=APPLY)


@check("VD510", "paused-consumer", Severity.WARNING)
def paused_consumer(patient: Patient) -> Iterator[Symptom]:
    """
    A consumer of the topology is paused.

    ## Why is this bad?
    Its clients get no messages until the time that whoever paused it has set.

    ## What to do
    `nats consumer resume STREAM CONSUMER`, unless somebody wants it so.
    """
    for (stream, name), observed in sorted(patient.snapshot.consumers.items()):
        if observed is not None and observed.is_paused:
            yield Symptom(
                about=f"{stream} > {name}", evidence="it is paused", do=f"`nats consumer resume {stream} {name}`"
            )
