"""VS1xx: what a topology says, checked across its places."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any

from vstream import subjects as subject_algebra
from vstream.diagnostics import Severity
from vstream.lint.registry import Finding, Rule, rule
from vstream.model.topology import Naming, Role
from vstream.topology import naming
from vstream.topology.decode import DEDUPE_OFF_SINCE, SMALLEST_WINDOW
from vstream.topology.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vstream.model.topology import Topology, VirtualStream
    from vstream.syntax.yaml import Path
    from vstream.topology.document import SettingsDocument, TopologyDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySubject:
    """A topology as written and as resolved."""

    document: TopologyDocument
    topology: Topology

    def setting_levels(self) -> Iterator[tuple[Path, SettingsDocument]]:
        """Every place where settings are written, with its path."""
        document = self.document
        levels: list[tuple[Path, Any]] = [(("defaults",), document.defaults)]
        levels.extend((("presets", name), preset) for name, preset in document.presets.items())
        for name, stream in document.streams.items():
            levels.append((("streams", name), stream))
            levels.extend((("streams", name, "overrides", region), one) for region, one in stream.overrides.items())
        for path, level in levels:
            yield path, level
            yield (*path, "write"), level.write
            yield (*path, "read"), level.read

    def physical(self) -> Iterator[tuple[Path, VirtualStream, Role, str, Mapping[str, Any]]]:
        """Every physical stream: the path of its virtual stream, its role, region and resolved fields."""
        for stream in self.topology.streams:
            for role, by_region in ((Role.WRITE, stream.write), (Role.READ, stream.read)):
                for region, settings in by_region.items():
                    yield ("streams", stream.name), stream, role, region, settings.fields


@rule("VS101", "unknown-region", Severity.ERROR)
def unknown_region(subject: TopologySubject) -> Iterator[Finding]:
    """
    Something names a region that the topology does not define.

    ## Why is this bad?
    No server carries that cluster name, so neither a write stream nor a read
    stream can be placed there.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}, east: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], regions: [east, wset], write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}, east: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], regions: [east, west], write: {max_age: 1h}}
    ```
    """
    document = subject.document
    known = list(document.regions)
    for name, stream in document.streams.items():
        if stream.regions != "all":
            for index, region in enumerate(stream.regions):
                if region not in known:
                    yield Finding(
                        at=("streams", name, "regions", index),
                        message=f"stream `{name}` uses unknown region `{region}`",
                        hint=_closest(region, known, "defined regions"),
                    )
        for region in stream.overrides:
            if region not in known:
                yield Finding(
                    at=("streams", name, "overrides", region),
                    message=f"stream `{name}` overrides unknown region `{region}`",
                    hint=_closest(region, known, "defined regions"),
                    on_key=True,
                )
    for region in document.connect:
        if region not in known:
            yield Finding(
                at=("connect", region),
                message=f"`connect` names unknown region `{region}`",
                hint=_closest(region, known, "defined regions"),
                on_key=True,
            )
    for index, region in enumerate(document.stretch.members if document.stretch else ()):
        if region not in known:
            yield Finding(
                at=("stretch", "members", index),
                message=f"the stretch cluster has a member in unknown region `{region}`",
                hint=_closest(region, known, "defined regions"),
            )


@rule("VS102", "bad-subject", Severity.ERROR)
def bad_subject(subject: TopologySubject) -> Iterator[Finding]:
    """
    A virtual stream's subject is not valid, or not one that may be mapped.

    ## Why is this bad?
    Servers refuse invalid subjects. A mapping of `$JS.>`, `$SYS.>`, `_INBOX.>` or
    `_vs.>` would send the servers' own traffic, or what is already mapped, into
    the write stream. A first token that is a wildcard would do the same.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: ["foo..>"], write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: ["foo.>"], write: {max_age: 1h}}
    ```
    """
    reserved = ("$JS", "$SYS", "$JSC", "_INBOX", "_R_", "_GR_", naming.PHYSICAL_PREFIX)
    for name, stream in subject.document.streams.items():
        if not stream.subjects:
            yield Finding(at=("streams", name, "subjects"), message=f"stream `{name}` has no subjects")
        for index, one in enumerate(stream.subjects):
            at: Path = ("streams", name, "subjects", index)
            first = one.partition(".")[0]
            if not subject_algebra.is_valid(one) or not one.isprintable():
                yield Finding(
                    at=at,
                    message=f"`{one}` is not a valid subject",
                    hint="tokens are separated by single dots and hold no spaces; `>` comes last",
                )
            elif "{{" in one or (naming.is_wildcard(first)):
                yield Finding(
                    at=at,
                    message=f"`{one}` begins with a wildcard, so it would also catch the servers' own traffic"
                    if naming.is_wildcard(first)
                    else f"`{one}` holds a mapping function, which has no meaning in a subject",
                    hint=f"give the stream a root of its own, such as `{name}.>`",
                )
            elif first in reserved:
                yield Finding(
                    at=at,
                    message=f"`{one}` belongs to the servers: `{first}` cannot be mapped",
                    hint=f"give the stream a root of its own, such as `{name}.>`",
                )


@rule("VS103", "overlapping-subjects", Severity.ERROR)
def overlapping_subjects(subject: TopologySubject) -> Iterator[Finding]:
    """
    Two subjects of virtual streams match the same message.

    ## Why is this bad?
    Each becomes a mapping rule. The server walks its rules in the random order of
    a Go map and takes the first that matches, so where a message is stored would
    change from one start to the next (server/accounts.go, selectMappedSubject).

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    defaults: {write: {max_age: 1h}}
    streams:
      orders: {subjects: [orders.>]}
      europe: {subjects: [orders.eu.>]}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    defaults: {write: {max_age: 1h}}
    streams:
      orders: {subjects: [orders.us.>]}
      europe: {subjects: [orders.eu.>]}
    ```
    """
    places: list[tuple[str, Path, str]] = [
        (name, ("streams", name, "subjects", index), one)
        for name, stream in subject.document.streams.items()
        for index, one in enumerate(stream.subjects)
        if subject_algebra.is_valid(one)
    ]
    trie = subject_algebra.SubjectTrie(one for _, _, one in places)
    # A file that overlaps everywhere has as many pairs as the square of its subjects.
    for first, second in sorted(islice(trie.overlapping_pairs(), 200)):
        stream, _, pattern = places[first]
        _, at, other = places[second]
        example = subject_algebra.example_of_overlap(pattern, other)
        yield Finding(
            at=at,
            message=f"`{other}` and `{pattern}` of stream `{stream}` both match `{example}`",
            hint="make them disjoint: servers would choose one at random at each start",
        )


@rule("VS104", "too-many-replicas", Severity.ERROR)
def too_many_replicas(subject: TopologySubject) -> Iterator[Finding]:
    """
    A physical stream wants more replicas than its region has servers.

    ## Why is this bad?
    The servers answer `no suitable peers for placement`, and `apply` stops there.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 1}}
    streams:
      foo: {subjects: [foo.>], replicas: 3, write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], replicas: 3, write: {max_age: 1h}}
    ```
    """
    seen: set[tuple[str, str]] = set()
    for path, stream, _, region, fields in subject.physical():
        servers = len(subject.topology.region(region).servers)
        replicas = fields["num_replicas"]
        if isinstance(replicas, int) and replicas > servers and (stream.name, region) not in seen:
            seen.add((stream.name, region))
            yield Finding(
                at=(*path, "replicas"),
                message=f"stream `{stream.name}` wants {replicas} replicas, region `{region}` has {_count(servers, 'server')}",
                hint=f"lower `replicas`, or set it for this region under `overrides: {{{region}: …}}`",
            )


@rule("VS105", "model-not-available", Severity.ERROR)
def model_not_available(subject: TopologySubject) -> Iterator[Finding]:
    """
    The topology asks for a consistency model that this version of vstream does not run.

    ## Why is this bad?
    The language has words for `ordered`, `stretch` and `homed` streams and for the
    stretch cluster; this version renders `virtual` streams only, and doing
    something else in silence would be worse than refusing.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], consistency: homed, write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], consistency: virtual, write: {max_age: 1h}}
    ```
    """
    hint = "this version of vstream renders `virtual` streams only"
    if subject.document.stretch is not None:
        yield Finding(at=("stretch",), message="a stretch cluster is not available yet", hint=hint, on_key=True)
    for name, stream in subject.document.streams.items():
        if stream.consistency != "virtual":
            yield Finding(
                at=("streams", name, "consistency"),
                message=f"consistency `{stream.consistency}` is not available yet",
                hint=hint,
            )


@rule("VS106", "bad-canary", Severity.ERROR)
def bad_canary(subject: TopologySubject) -> Iterator[Finding]:
    """
    The agreed canary subject cannot carry canaries.

    ## Why is this bad?
    A canary must enter the stream like any message, so its subject must match one
    of the stream's. With `max_msgs_per_subject`, canaries of several regions on
    one subject would push each other out, so a `*` must keep them apart.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], canary: bar.canary, write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], canary: foo.canary.*, write: {max_age: 1h}}
    ```
    """
    for stream in subject.topology.streams:
        canary = stream.canary
        if canary is None:
            continue
        at = ("streams", stream.name, "canary")
        if not subject_algebra.is_valid(canary) or ">" in canary.split(".") or canary.split(".").count("*") > 1:
            yield Finding(at=at, message=f"`{canary}` is no canary subject", hint="a literal subject, with at most one `*`")
            continue
        if not any(subject_algebra.is_subset(canary, pattern) for pattern in stream.subjects):
            yield Finding(
                at=at,
                message=f"the canary subject `{canary}` does not lie within {_listed(stream.subjects)}",
                hint="choose one that does, such as "
                + f"`{naming.probe_subject(stream.subjects[0]).replace('_vstream_probe', '_canary')}`"
                if stream.subjects
                else None,
            )
        per_subject = [settings.fields["max_msgs_per_subject"] for settings in stream.read.values()]
        if "*" not in canary.split(".") and any(isinstance(n, int) and 0 < n < len(stream.regions) for n in per_subject):
            yield Finding(
                at=at,
                message=f"canaries of {len(stream.regions)} regions would push each other out of `{canary}`",
                hint="put a `*` into it: it stands for the region of origin",
            )


@rule("VS107", "outage-not-stated", Severity.ERROR)
def outage_not_stated(subject: TopologySubject) -> Iterator[Finding]:
    """
    Nothing says how long a write stream keeps its messages.

    ## Why is this bad?
    The write stream's `max_age` is the longest outage that loses nothing: a region
    that is cut off for longer never receives what expired meanwhile. Without a
    limit the write streams grow for ever. Only you know the right number.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>]}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 24h}}
    ```
    """
    from vstream.topology.decode import levels  # noqa: PLC0415 - only this rule asks what was said

    for name, stream in subject.document.streams.items():
        for region in subject.document.regions:
            if any("max_age" in level.model_fields_set for level in levels(subject.document, stream, region, Role.WRITE)):
                continue
            yield Finding(
                at=("streams", name),
                message=f"stream `{name}` does not say how long an outage may last without loss",
                hint="set `write: {max_age: 24h}` here or under `defaults` (`unlimited` keeps everything)",
                on_key=True,
            )
            break


@rule("VS108", "reserved-name", Severity.ERROR)
def reserved_name(subject: TopologySubject) -> Iterator[Finding]:
    """
    A virtual stream is called like a word of the JetStream API.

    ## Why is this bad?
    Its API mappings would also match requests about other streams:
    `$JS.API.CONSUMER.*.NEXT.>` matches `$JS.API.CONSUMER.MSG.NEXT.foo.bar`.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      NEXT: {subjects: [next.>], write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      next: {subjects: [next.>], write: {max_age: 1h}}
    ```
    """
    for name in subject.document.streams:
        if name in naming.RESERVED_NAMES:
            yield Finding(
                at=("streams", name),
                message=f"`{name}` is a word of the JetStream API and cannot name a virtual stream",
                hint=f"`{name.lower()}` is fine",
                on_key=True,
            )


@rule("VS109", "name-collision", Severity.ERROR)
def name_collision(subject: TopologySubject) -> Iterator[Finding]:
    """
    Two things of a topology get the same name.

    ## Why is this bad?
    Stream names are shared by all regions of a super-cluster, and clusters and
    servers are told apart by name: the second would overwrite or never start.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3, cluster: one}, east: {servers: 3, cluster: one}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3, cluster: one}, east: {servers: 3, cluster: two}}
    ```
    """
    document, topology = subject.document, subject.topology
    taken: dict[str, str] = {}
    for stream in topology.streams:
        names = {stream.name} | {
            naming.physical_name(stream.name, role, region) for role in Role for region in stream.regions
        }
        for name in sorted(names):
            other = taken.setdefault(name, stream.name)
            if other != stream.name:
                yield Finding(
                    at=("streams", stream.name),
                    message=f"streams `{other}` and `{stream.name}` both need the name `{name}`",
                    hint="rename one of them",
                    on_key=True,
                )
    clusters: dict[str, str] = {}
    hosts: dict[str, str] = {}
    servers: dict[str, str] = {}
    for region in topology.regions:
        at: Path = ("regions", region.name)
        other = clusters.setdefault(region.cluster, region.name)
        if other != region.name:
            written = document.regions[region.name].cluster is not None
            yield Finding(
                at=(*at, "cluster") if written else at,
                message=f"regions `{other}` and `{region.name}` have the same cluster name `{region.cluster}`",
                hint="each region is a cluster of its own",
                on_key=not written,
            )
        for index, server in enumerate(region.servers):
            if (other := servers.setdefault(server.name, region.name)) != region.name:
                yield Finding(
                    at=at,
                    message=f"regions `{other}` and `{region.name}` both get a server called `{server.name}`",
                    hint="rename one of the regions",
                    on_key=True,
                )
            if server.host and (other := hosts.setdefault(server.host, region.name)) != region.name:
                yield Finding(
                    at=(*at, "servers", index),
                    message=f"host `{server.host}` is in region `{other}` already",
                    hint="a server belongs to one region",
                )


@rule("VS110", "tags-do-not-match-servers", Severity.ERROR)
def tags_do_not_match_servers(subject: TopologySubject) -> Iterator[Finding]:
    """
    A region has another number of tag entries than servers.

    ## Why is this bad?
    Tags are given to servers in order. With a different count nobody can tell
    which server is in which availability zone.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3, tags: [az:a, az:b]}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3, tags: [az:a, az:b, az:c]}}
    ```
    """
    for name, region in subject.document.regions.items():
        if region.tags and len(region.tags) != len(region.servers):
            yield Finding(
                at=("regions", name, "tags"),
                message=f"region `{name}` has {_count(len(region.servers), 'server')} and "
                f"{len(region.tags)} tag {'entry' if len(region.tags) == 1 else 'entries'}",
                hint="give one entry for each server, in order; a server with several tags takes a list",
            )


@rule("VS111", "field-belongs-to-vstream", Severity.ERROR)
def field_belongs_to_vstream(subject: TopologySubject) -> Iterator[Finding]:
    """
    `config` or `metadata` sets something that vstream itself decides.

    ## Why is this bad?
    Names, subjects, sources, placement and retention make the virtual stream work;
    another value would break it in a way that only shows in an outage. Fields that
    have a word of their own in the language are set by that word.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 1h, config: {retention: workqueue}}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 1h}}
    ```
    """
    for path, level in subject.setting_levels():
        for key in level.config or {}:
            if key in _OWNED:
                yield Finding(
                    at=(*path, "config", key), message=f"`{key}` is vstream's own: {_OWNED[key]}", on_key=True
                )
            elif key in _WORDS:
                yield Finding(
                    at=(*path, "config", key),
                    message=f"`{key}` has a word of its own in the topology language",
                    hint=f"write `{_WORDS[key]}` beside `config`",
                    on_key=True,
                )
        for key in level.metadata or {}:
            if key.startswith(("vstream.", "_nats.")):
                yield Finding(
                    at=(*path, "metadata", key),
                    message=f"metadata `{key}` is written by {'vstream' if key[0] == 'v' else 'the servers'}",
                    hint="choose another prefix",
                    on_key=True,
                )


_OWNED = {
    "name": "it is derived from the virtual stream and the region",
    "subjects": "they follow from the virtual stream's `subjects` and `naming`",
    "sources": "every read stream sources all write streams",
    "mirror": "a virtual stream sources, it does not mirror",
    "subject_transform": "together with a source filter it doubles the data after a restart",
    "placement": "each physical stream lives in its region; see `placement_tags`",
    "retention": "a virtual stream can only have limits: acknowledgements in one region say nothing about another",
    "allow_direct": "Direct Get is the only read that works in an isolated region",
    "mirror_direct": "it concerns mirrors only",
    "sealed": "a sealed stream stores nothing",
    "republish": "a republished message would be published into the virtual stream again",
}
_WORDS = {
    "num_replicas": "replicas",
    "allow_rollup_hdrs": "allow_rollup",
    **{
        word: word
        for word in (
            "storage", "max_age", "max_bytes", "max_msgs", "max_msgs_per_subject", "max_msg_size", "max_consumers",
            "discard", "compression", "duplicate_window", "allow_msg_ttl", "deny_delete", "deny_purge", "description",
            "metadata",
        )
    },
}  # fmt: skip


@rule("VS112", "needs-newer-server", Severity.ERROR)
def needs_newer_server(subject: TopologySubject) -> Iterator[Finding]:
    """
    A setting needs a newer server than the topology promises to run on.

    ## Why is this bad?
    An older server drops fields that it does not know, without a word (2.11 and
    before) or refuses them (2.12 and later).

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.10"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], allow_msg_ttl: true, write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.11"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], allow_msg_ttl: true, write: {max_age: 1h}}
    ```
    """
    oldest = subject.topology.server_version
    for path, level in subject.setting_levels():
        said: list[tuple[Path, str]] = [((*path, "config", key), key) for key in level.config or {}]
        if level.allow_msg_ttl is not None:
            said.append(((*path, "allow_msg_ttl"), "allow_msg_ttl"))
        for at, key in said:
            since = _SINCE.get(key)
            if since and oldest < since:
                yield Finding(
                    at=at,
                    message=f"`{key}` needs nats-server {_dotted(since)}, the topology says {_dotted(oldest)}",
                    hint=f'raise `server_version` to "{_dotted(since)}" if all servers are that new',
                    on_key=True,
                )


_SINCE = {
    "allow_msg_ttl": (2, 11),
    "subject_delete_marker_ttl": (2, 11),
    "allow_atomic": (2, 12),
    "allow_msg_counter": (2, 12),
    "allow_msg_schedules": (2, 12),
    "persist_mode": (2, 12),
    "allow_batched": (2, 14),
}


@rule("VS113", "bad-duplicate-window", Severity.ERROR)
def bad_duplicate_window(subject: TopologySubject) -> Iterator[Finding]:
    """
    A duplicate window that the servers refuse, or read as something else.

    ## Why is this bad?
    A window may not be longer than `max_age` nor shorter than 100 ms
    (server/stream.go, checkStreamCfg). Before 2.14 a window of 0 meant 2 minutes,
    in which a read stream drops the second of two messages with the same
    `Nats-Msg-Id` from two regions, and regions keep different ones.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 1m, duplicate_window: 2m}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 5m, duplicate_window: 2m}}
    ```
    """
    seen: set[tuple[str, Role]] = set()
    for path, stream, role, _, fields in subject.physical():
        window, max_age = fields["duplicate_window"], fields["max_age"]
        if (stream.name, role) in seen:
            continue
        message = None
        if max_age and window > max_age:
            message = f"is longer than its max_age of {format_duration(max_age)}"
        elif 0 < window < SMALLEST_WINDOW:
            message = "is shorter than the 100ms that servers accept"
        elif window == 0 and (role is Role.WRITE or subject.topology.server_version < DEDUPE_OFF_SINCE):
            message = "is 0, which a server reads as 2 minutes"
        if message:
            seen.add((stream.name, role))
            shown = format_duration(window) if window else "0s"
            yield Finding(
                at=(*path, role.value, "duplicate_window"),
                message=f"the {role.value} stream's duplicate_window of {shown} {message}",
                hint="set `duplicate_window` between 100ms and `max_age`",
            )


@rule("VS114", "unknown-preset", Severity.ERROR)
def unknown_preset(subject: TopologySubject) -> Iterator[Finding]:
    """
    A stream extends a preset that the topology does not define.

    ## Why is this bad?
    Its settings would be missing without a word.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    presets: {small: {write: {max_age: 1h}}}
    streams:
      foo: {subjects: [foo.>], extends: smal, write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    presets: {small: {write: {max_age: 1h}}}
    streams:
      foo: {subjects: [foo.>], extends: small}
    ```
    """
    known = list(subject.document.presets)
    for name, stream in subject.document.streams.items():
        for index, preset in enumerate(stream.extends):
            if preset not in known:
                yield Finding(
                    at=("streams", name, "extends", index),
                    message=f"stream `{name}` extends unknown preset `{preset}`",
                    hint=_closest(preset, known, "defined presets"),
                )


@rule("VS115", "bad-connection", Severity.ERROR)
def bad_connection(subject: TopologySubject) -> Iterator[Finding]:
    """
    A region's connection is missing something, or says two things.

    ## Why is this bad?
    vstream would have to guess which servers to change.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    connect: {west: {user: ops}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    connect: {west: {urls: "nats://w1.example.net:4222", user: ops, password_env: OPS_PASSWORD}}
    ```
    """
    for name, connect in subject.document.connect.items():
        at: Path = ("connect", name)
        if bool(connect.context) == bool(connect.urls):
            yield Finding(
                at=at,
                message=f"`connect.{name}` needs either a `context` or `urls`",
                hint="`context: NAME` takes a nats CLI context; `urls: nats://host:4222` names servers",
                on_key=True,
            )
        if bool(connect.user) != bool(connect.password_env):
            yield Finding(
                at=at,
                message=f"`connect.{name}` needs `user` and `password_env` together",
                hint="the password itself never stands in the topology",
                on_key=True,
            )
        for index, url in enumerate(connect.urls):
            scheme, separator, rest = url.partition("://")
            if scheme not in {"nats", "tls", "ws", "wss"} or not separator or not rest:
                yield Finding(
                    at=(*at, "urls", index), message=f"`{url}` is no server address", hint="write `nats://host:4222`"
                )
            elif "@" in rest:
                yield Finding(
                    at=(*at, "urls", index),
                    message="an address must not hold a user or password",
                    hint="use `user` and `password_env`, `creds` or `nkey`",
                )


@rule("VS116", "read-stream-refuses", Severity.ERROR)
def read_stream_refuses(subject: TopologySubject) -> Iterator[Finding]:
    """
    A read stream that refuses messages once it is full.

    ## Why is this bad?
    With `discard: new` a full read stream refuses what it sources. Its source is
    retried for ever, and the region falls behind without an error.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 1h}, read: {max_msgs: 100, discard: new}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 1h}, read: {max_msgs: 100, discard: old}}
    ```
    """
    seen: set[str] = set()
    for path, stream, role, _, fields in subject.physical():
        if role is Role.READ and fields["discard"] == "new" and stream.name not in seen:
            seen.add(stream.name)
            yield Finding(
                at=(*path, "read", "discard"),
                message=f"the read stream of `{stream.name}` would refuse what it sources once it is full",
                hint="use `discard: old` on read streams; `write: {discard: new}` pushes back on publishers",
            )


@rule("VS117", "naming-needs-token", Severity.ERROR)
def naming_needs_token(subject: TopologySubject) -> Iterator[Finding]:
    """
    The blog's naming has no place for the region in this subject.

    ## Why is this bad?
    `naming: blog` puts the region after the first token, `foo.west.bar`, so a virtual
    subject that has a region's name there cannot be told from a physical one.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    naming: blog
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.west.>], write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    naming: isolated
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.west.>], write: {max_age: 1h}}
    ```
    """
    if subject.topology.naming is not Naming.BLOG:
        return
    regions = {region.name for region in subject.topology.regions}
    for name, stream in subject.document.streams.items():
        for index, one in enumerate(stream.subjects):
            rest = one.split(".")[1:]
            if rest and rest[0] in regions:
                yield Finding(
                    at=("streams", name, "subjects", index),
                    message=f"`{one}` names a region where `naming: blog` puts one",
                    hint="use `naming: isolated`, or another subject",
                )


RULES: tuple[Rule[TopologySubject], ...] = (
    unknown_region,
    bad_subject,
    overlapping_subjects,
    too_many_replicas,
    model_not_available,
    bad_canary,
    outage_not_stated,
    reserved_name,
    name_collision,
    tags_do_not_match_servers,
    field_belongs_to_vstream,
    needs_newer_server,
    bad_duplicate_window,
    unknown_preset,
    bad_connection,
    read_stream_refuses,
    naming_needs_token,
)


def _closest(word: str, known: list[str], label: str) -> str:
    close = get_close_matches(word, known, n=1)
    return f"did you mean `{close[0]}`?" if close else f"{label}: {_listed(known) if known else 'none'}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
