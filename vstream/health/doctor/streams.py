"""What is wrong with streams themselves: layouts that lose or double on the running version, placement, replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vstream.health.doctor.finding import APPLY, diagnose
from vstream.health.units import list_names
from vstream.topology.replication import PhysicalStream, all_physical_streams, durables
from vstream.topology.versions import format_version, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.diagnostics import Finding
    from vstream.health.snapshot import Snapshot, StreamSnapshot
    from vstream.topology.model import Topology
    from vstream.topology.versions import Version

_DOUBLES = (((2, 11, 12), (2, 12, 0)), ((2, 12, 3), (2, 15, 0)))
"""From (inclusive) and to (exclusive): a new leader looks for the filtered subject among transformed ones."""
_STOPPED = "last msgid mismatch"
_MADE_ANEW = "no publish with `Nats-Expected-Last-Msg-Id` any more, and a new stream: `vstream explain VD508`"
_STORES_POSITIONS: Version = (2, 15, 0)


def check(topology: Topology, facts: Snapshot) -> Iterator[Finding]:
    """Findings about the physical streams of *topology*."""
    missing: list[str] = []
    silent: list[str] = []
    for part in all_physical_streams(topology):
        found = facts.streams.get(part.name)
        if found is None:
            (missing if part.name in facts.absent else silent).append(part.name)
            continue
        if found.leader is None:
            silent.append(part.name)
        yield from _one(topology, part, found, facts)
    if missing:
        yield diagnose(code="VD502", about=list_names(missing), evidence=f"{len(missing):,} do not exist", do=APPLY)
    if silent:
        yield diagnose(
            code="VD503",
            about=list_names(silent),
            evidence=f"{len(silent):,} without a leader, or nobody answers for them",
            do="start the servers that are away (VD404)",
        )
    yield from _consumers(topology, facts)
    yield from _refused(facts)


def _refused(facts: Snapshot) -> Iterator[Finding]:
    """One for each stream, consumer or Raft group, and error."""
    said: dict[tuple[str, str], list[str]] = {}
    for one in facts.write_errors:
        said.setdefault((one.about, one.error.rpartition("is not current: ")[2]), []).append(one.server)
    for (about, error), names in said.items():
        yield diagnose(
            code="VD508",
            about=about,
            evidence=f"{list_names(names)} cannot write to it: {error}",
            do=_MADE_ANEW if _STOPPED in error else "make space, then restart the servers one after the other",
        )


def _consumers(topology: Topology, facts: Snapshot) -> Iterator[Finding]:
    """Of streams that are well: of others, the stream is the finding."""
    for one in durables(topology):
        found, about = facts.streams.get(one.stream), f"{one.stream} > {one.name}"
        if found is None or found.leader is None:
            continue
        if (one.stream, one.name) not in facts.consumers:
            evidence = "nobody answers for it"
            yield diagnose(code="VD506", about=about, evidence=evidence, do="start the servers that are away (VD404)")
        elif facts.consumers[one.stream, one.name] is None:
            yield diagnose(code="VD505", about=about, evidence="it does not exist", do=APPLY)


def _one(topology: Topology, part: PhysicalStream, found: StreamSnapshot, facts: Snapshot) -> Iterator[Finding]:
    expected = topology.cluster_at(part.place)
    if found.cluster is not None and found.cluster != expected:
        yield diagnose(
            code="VD501",
            about=part.name,
            evidence=f"it lives in cluster `{found.cluster}` (leader `{found.leader}`), not in `{expected}`",
            do=APPLY,
        )
    if found.current < found.replicas:
        yield diagnose(
            code="VD504",
            about=part.name,
            evidence=f"{found.current} of {found.replicas} replicas have everything",
            do="start the servers that are away, or wait until they have caught up",
        )
    versions = versions_at(facts, found.cluster or expected)
    if found.config is not None and versions:
        yield from _layout(part.name, found.config, versions)


def _layout(name: str, config: Any, versions: tuple[Version, ...]) -> Iterator[Finding]:
    sources = [one for one in config.get("sources") or () if isinstance(one, dict)]
    filtered = [str(one["name"]) for one in sources if one.get("filter_subject")]
    transform = config.get("subject_transform")
    if filtered and transform and any(_doubles(version) for version in versions):
        running = ", ".join(sorted(format_version(version) for version in set(versions)))
        yield diagnose(
            code="VD101",
            about=name,
            evidence=(
                f"`subject_transform` {transform.get('src')} → {transform.get('dest')}, and a `filter_subject` on "
                f"{list_names(filtered)}; its servers run {running}"
            ),
            do="per-source `subject_transforms`, as `vstream render` writes them, with `opt_start_seq`",
        )
    keeps = config.get("max_msgs_per_subject") or -1
    if len(sources) > 1 and keeps > 0 and min(versions) < _STORES_POSITIONS:
        oldest = format_version(min(versions))
        yield diagnose(
            code="VD102",
            about=name,
            evidence=f"it keeps {keeps} of each subject, has {len(sources)} sources, and a server of its cluster runs {oldest}",
            do="upgrade to 2.15; until then `vstream beacon`",
        )


def _doubles(version: Version) -> bool:
    # From 2.15 on positions are stored, but a crash loses the newest ones, and then it looks as before.
    return version >= _STORES_POSITIONS or any(since <= version < until for since, until in _DOUBLES)


def versions_at(facts: Snapshot, cluster: str) -> tuple[Version, ...]:
    """The versions of the servers of *cluster* that answer."""
    here = (parse_version(server.version) for server in facts.servers if server.version and server.cluster == cluster)
    return tuple(version for version in here if version is not None)
