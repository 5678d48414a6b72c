"""How clients reach streams: what a routing profile needs, and the subjects of publishes, canaries and subscribers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from vstream.findings import Severity
from vstream.formatting import quote_names, quote_value
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.subjects import algebra as subject_algebra
from vstream.subjects.functions import parse_token
from vstream.syntax.yaml import Path
from vstream.topology import naming
from vstream.topology.accounts import VSTREAM_USER, regional_user
from vstream.topology.decode import list_levels
from vstream.topology.model import Consistency, Naming, Role, Security, Topology
from vstream.topology.profiles import PROFILES, profile_of
from vstream.topology.replication import physical_streams
from vstream.topology.stream_config import HIDDEN_PREFIXES

_WITH_ROOTS = tuple(routing.value for routing, profile in PROFILES.items() if profile.has_roots)


@rule("VS136", "routing-unfit", Severity.ERROR)
def routing_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    The routing profile cannot be combined with another setting of the topology.

    ## Why is this bad?
    With `routing: accounts`, a message is stored under the subject that it was published on; with `domains` and
    `regional`, under a fixed, different one. None of them can use `naming: blog`. Servers before 2.11 refuse the
    configuration of `accounts` and `regional`: several accounts share flow control.

    With `routing: domains`, only copies of stored messages cross regions: no stretch cluster can decide on an order,
    and publishes do not cross regions.
    """
    topology = subject.topology
    profile = profile_of(topology)
    if profile.has_domains:
        yield from _unfit_for_domains(topology)
    elif subject.document.hubs.model_fields_set:
        yield Violation(at=("hubs",), message="`hubs` needs `routing: domains`", hint="remove them", on_key=True)
    if profile.has_physical_names:
        return
    if topology.naming is Naming.BLOG:
        yield Violation(
            at=("naming",),
            message=f"`naming: blog` has no effect with `routing: {topology.routing.value}`",
            hint="omit `naming`, or use `routing: mapped`",
        )
    if profile.since is not None and topology.server_version < profile.since:
        since = f"{profile.since[0]}.{profile.since[1]}"
        yield Violation(
            at=("server_version",),
            message=f"servers before {since} refuse the accounts of `routing: {topology.routing.value}`",
            hint=f'upgrade to at least {since} and set `server_version: "{since}"`, or use `routing: mapped`',
        )


def _unfit_for_domains(topology: Topology) -> Iterator[Violation]:
    if topology.stretch is not None:
        yield Violation(
            at=("stretch",),
            message="`routing: domains` cannot have a stretch cluster: each domain is one region",
            hint="omit `stretch`, or use `routing: accounts`",
            on_key=True,
        )
    for stream in topology.streams:
        if stream.consistency is not Consistency.VIRTUAL:
            yield Violation(
                at=("streams", stream.name, "consistency"),
                message=f"the {stream.consistency.value} stream `{stream.name}` cannot be in `routing: domains`: "
                + (
                    "publishes do not cross regions"
                    if stream.consistency is Consistency.HOMED
                    else "there is no stretch cluster"
                ),
                hint="make it `virtual`, or use `routing: accounts`, which supports all models",
            )
    for region in topology.regions:
        if region.name.startswith(HIDDEN_PREFIXES):
            yield Violation(
                at=("regions", region.name),
                message=f"`{region.name}` cannot be the name of a domain: names of hidden accounts begin like this",
                hint="give the region another name",
                on_key=True,
            )


@rule("VS170", "region-users-shared", Severity.ERROR)
def region_users_shared(subject: TopologySubject) -> Iterator[Violation]:
    """
    With `routing: regional`, `connect` uses the same user for two regions.

    ## Why is this bad?
    A user belongs to one account, and each region has its own account. A client that connects to the east as a user of
    the west publishes and reads in the west, so vstream would compare the streams of the wrong region.
    """
    if not profile_of(subject.topology).has_region_accounts:
        return
    seen: dict[tuple[str, str], str] = {}
    formats = {
        Security.PASSWORDS: "user: {}",
        Security.NKEYS: "nkey: user-{}.nk",
        Security.CERTIFICATES: "tls: {{cert: user-{}.pem, …}}",
        Security.OPERATOR: "creds: user-{}.creds",
    }[subject.topology.security]
    for region, endpoint in subject.document.connect.items():
        logins: dict[Path, str | None] = {
            (field,): getattr(endpoint, field) for field in ("context", "creds", "nkey", "user")
        }
        if subject.topology.security is Security.CERTIFICATES and endpoint.tls is not None:
            logins["tls", "cert"] = endpoint.tls.cert
        for field, value in logins.items():
            if value is None:
                continue
            earlier_region = seen.setdefault((str(field[-1]), value), region)
            if earlier_region != region:
                yield Violation(
                    at=("connect", region, *field),
                    message=(
                        f"regions `{region}` and `{earlier_region}` use the same {field[-1]} "
                        f"{quote_value(value)}, but a user belongs to one region"
                    ),
                    hint=f"name one of region `{region}`, such as `{formats.format(regional_user(VSTREAM_USER, region))}`",
                )


@rule("VS137", "root-unfit", Severity.ERROR)
def root_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    A root cannot be mapped, or contains subjects of streams that do not store publishes in each region.

    ## Why is this bad?
    Everything below a root goes to the write streams of the publisher's region: a stream with a single origin would
    receive nothing, and a subject that is only partly below the root would be mapped twice. With `routing: mapped`,
    roots have no effect. A root without streams is probably misspelled (a warning): messages published there are not
    stored.
    """
    for index, root in enumerate(subject.topology.roots):
        at = ("roots", index)
        problem = subject_problem(root)
        if problem is not None:
            yield Violation(at=at, message=f"{quote_value(root)} {problem[0]}", hint=problem[1] or "name another root")
        elif not profile_of(subject.topology).has_roots and subject.topology.moves_to is None:
            yield Violation(
                at=at,
                message=f"{quote_value(root)} is a root, which has no effect with `routing: {subject.topology.routing.value}`",
                hint=f"remove it, or set `routing` to one of {quote_names(_WITH_ROOTS)}",
            )
        else:
            yield from _check_root(subject.topology, index, root)


def _check_root(topology: Topology, index: int, root: str) -> Iterator[Violation]:
    at = ("roots", index)
    overlapping = next(
        (candidate for candidate in topology.roots[:index] if subject_algebra.overlaps(candidate, root)), None
    )
    below = []
    for stream in topology.streams:
        for candidate in stream.subjects:
            if subject_algebra.overlaps(candidate, root):
                below.append((stream, candidate))
    if overlapping is not None:
        yield Violation(
            at=at,
            message=f"{quote_value(root)} overlaps the root {quote_value(overlapping)}",
            hint="keep one of the two",
        )
    elif topology.streams and not below:
        yield Violation(
            at=at,
            message=(
                f"no stream has subjects below {quote_value(root)}: its messages are not stored, and the "
                "rule slows every publish"
            ),
            hint="is it misspelled? a root for `v.foo.>` and `v.bar.>` is `v.>`",
            severity=Severity.WARNING,
        )
    for stream, candidate in below:
        if stream.consistency.has_origin:
            yield Violation(
                at=at,
                message=f"{quote_value(root)} holds {quote_value(candidate)} of the {stream.consistency.value} stream "
                f"`{stream.name}`, which stores all publishes in one place",
                hint="give that stream a subject outside of the root",
            )
        elif not subject_algebra.is_subset(candidate, root):
            yield Violation(
                at=at,
                message=f"{quote_value(root)} holds only a part of {quote_value(candidate)} of stream `{stream.name}`",
                hint="widen the root, or give the stream another subject",
            )


@rule("VS102", "bad-subject", Severity.ERROR)
def bad_subject(subject: TopologySubject) -> Iterator[Violation]:
    """
    A virtual stream's subject is not valid or cannot be mapped.

    ## Why is this bad?
    Servers refuse invalid subjects. A mapping of `$JS.>`, `$SYS.>`, `_INBOX.>` or `_vs.>` would send the servers' own
    traffic, or messages that are already mapped, to the write stream. A wildcard as the first token would do the same.
    """
    for name, stream in subject.document.streams.items():
        if not stream.subjects:
            yield Violation(
                at=("streams", name, "subjects"),
                message=f"stream `{name}` has no subjects",
                hint="list the subjects that clients publish on, such as `subjects: [foo.>]`",
            )
        for index, pattern in enumerate(stream.subjects):
            problem = subject_problem(pattern)
            if problem:
                message, hint = problem
                at: Path = ("streams", name, "subjects", index)
                default_hint = f"give the stream a root of its own, such as `{name}.>`"
                yield Violation(at=at, message=f"{quote_value(pattern)} {message}", hint=hint or default_hint)


_RESERVED = frozenset(
    {"$GR", "$JS", "$JSC", "$LDS", "$MQTT", "$NRG", "$SRV", "$SYS", "_GR_", "_INBOX", "_R_", naming.PHYSICAL_PREFIX}
)
"""First tokens of subjects that servers, clients and vstream itself publish on."""


def subject_problem(subject: str) -> tuple[str, str | None] | None:
    """Why a virtual stream cannot have *subject*, and what to do."""
    if not subject_algebra.is_valid(subject) or not subject.isprintable():
        return "is not a valid subject", "tokens are separated by single dots and contain no spaces; `>` comes last"
    if '"' in subject or "\\" in subject:
        # A mapping's source is a key, and keys in NATS configurations know no escapes (conf/lex.go, lexDubQuotedKey).
        return 'contains `"` or `\\`, which are not allowed in the source of a mapping', "choose another character"
    tokens = subject.split(subject_algebra.SEPARATOR)
    if naming.is_wildcard(tokens[0]):
        return "begins with a wildcard, so it would also match the servers' own traffic", None
    if tokens[0] in _RESERVED:
        return f"is reserved for servers: `{tokens[0]}` cannot be mapped", None
    return next(filter(None, map(_find_token_problem, tokens)), None)


def _find_token_problem(token: str) -> tuple[str, str] | None:
    # In the destination of a mapping, servers would read these as functions.
    if parse_token(token) is not None:
        return (
            f"contains the mapping function {quote_value(token)}, which has no effect in a subject",
            "choose another token",
        )
    # Where servers choose a mapping rule, any token that begins with `*` matches everything.
    if not naming.is_wildcard(token) and ("*" in token or ">" in token):
        return (
            f"contains {quote_value(token)}, which is not a wildcard",
            "a wildcard is a whole token: `*` matches one token, `>` all that follow",
        )
    return None


@rule("VS103", "overlapping-subjects", Severity.ERROR)
def overlapping_subjects(subject: TopologySubject) -> Iterator[Violation]:
    """
    Two subjects of virtual streams match the same message.

    ## Why is this bad?
    Each subject becomes a mapping rule. The server tries its rules in the random order of a Go map and uses the first
    that matches, so the stream that stores a message would change from one start to the next (server/accounts.go,
    selectMappedSubject).
    """
    places: list[tuple[str, Path, str]] = []
    for name, stream_document in subject.document.streams.items():
        for index, subject_pattern in enumerate(stream_document.subjects):
            if subject_problem(subject_pattern) is None:
                places.append((name, ("streams", name, "subjects", index), subject_pattern))
    trie = subject_algebra.SubjectTrie(subject_pattern for _, _, subject_pattern in places)
    # A file that overlaps everywhere has as many pairs as the square of its subjects.
    for first, second in sorted(islice(trie.overlapping_pairs(), 200)):
        stream, _, pattern = places[first]
        _, at, second_pattern = places[second]
        example = subject_algebra.example_of_overlap(pattern, second_pattern)
        yield Violation(
            at=at,
            message=f"`{second_pattern}` and `{pattern}` of stream `{stream}` both match `{example}`",
            hint="make them disjoint: servers would choose one of them at random at every start",
        )


@rule("VS106", "bad-canary", Severity.ERROR)
def bad_canary(subject: TopologySubject) -> Iterator[Violation]:
    """
    The canary subject cannot be used for canaries.

    ## Why is this bad?
    A canary must enter the stream like any message, so a subject of the stream must match it. With
    `max_msgs_per_subject`, canaries of several regions on one subject would replace each other, so the subject needs a
    `*` for the region.
    """
    for stream in subject.topology.streams:
        canary = stream.canary
        if canary is None:
            continue
        at = ("streams", stream.name, "canary")
        tokens = canary.split(".")
        if subject_problem(canary) or ">" in tokens or tokens.count("*") > 1:
            yield Violation(
                at=at,
                message=f"{quote_value(canary)} cannot be a canary subject",
                hint="a literal subject, with at most one `*`",
            )
            continue
        if stream.subjects and not any(subject_algebra.is_subset(canary, pattern) for pattern in stream.subjects):
            example = naming.probe_subject(stream.subjects[0]).replace("_vstream_probe", "_canary")
            yield Violation(
                at=at,
                message=f"the canary subject `{canary}` is not matched by {quote_names(stream.subjects)}",
                hint=f"choose a subject of the stream, such as `{example}`",
            )
        limits = [
            part.fields["max_msgs_per_subject"] for part in physical_streams(stream) if part.role is not Role.WRITE
        ]
        if "*" not in tokens and any(isinstance(most, int) and 0 < most < len(stream.regions) for most in limits):
            yield Violation(
                at=at,
                message=f"canaries of {len(stream.regions)} regions would replace each other on `{canary}`",
                hint="add a `*`: it stands for the region of origin",
            )


@rule("VS117", "naming-needs-token", Severity.ERROR)
def naming_needs_token(subject: TopologySubject) -> Iterator[Violation]:
    """
    The blog's naming scheme cannot add the region to this subject.

    ## Why is this bad?
    `naming: blog` puts the region after the first token, `foo.west.bar`, so a virtual subject with a region's name in
    that place looks like a physical one.
    """
    if subject.topology.naming is not Naming.BLOG:
        return
    regions = {region.name for region in subject.topology.regions}
    mapped = {stream.name for stream in subject.topology.streams if not stream.consistency.has_origin}
    for name, stream in subject.document.streams.items():
        for index, pattern in enumerate(stream.subjects if name in mapped else ()):
            rest = pattern.split(".")[1:]
            if rest and rest[0] in regions:
                yield Violation(
                    at=("streams", name, "subjects", index),
                    message=f"{quote_value(pattern)} names a region where `naming: blog` puts one",
                    hint="use `naming: isolated`, or another subject",
                )


@rule("VS149", "core-subscribers-unfit", Severity.ERROR)
def core_subscribers_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    `core_subscribers` is set on a stream whose publishes core subscribers cannot receive.

    ## Why is this bad?
    A publish to a virtual stream is renamed on its way to the write stream, so a subscriber of the virtual subject
    receives nothing. With `routing: accounts`, write streams republish what they store, and the account of clients
    imports it. With `domains` and `regional`, read streams republish in the account of clients: subscribers receive the
    copy of their own region. With `mapped`, all regions share one account, and subscribers would receive a copy from
    every read stream. Streams with a single origin have mirrors elsewhere, which would publish to the origin again.
    Use an ordered consumer instead: it gets every message, in every region.
    """
    routing, profile = subject.topology.routing, profile_of(subject.topology)
    for stream in subject.topology.streams:
        if not stream.core_subscribers:
            continue
        if profile.has_physical_names or (profile.has_write_beside_read and stream.consistency.has_origin):
            is_heard = profile.has_physical_names and stream.consistency.has_origin
            yield Violation(
                at=("streams", stream.name, "core_subscribers"),
                message=f"core subscribers receive `{stream.name}` anyway: nothing maps its subjects"
                if is_heard
                else f"with `routing: {routing.value}`, core subscribers cannot receive `{stream.name}`: "
                + (
                    "a mirror that republished would publish to the origin"
                    if stream.consistency.has_origin
                    else "publishes are renamed on their way to its write streams, and nothing restores their names"
                ),
                hint="remove it" if is_heard else "use a consumer of the stream, or `routing: accounts`",
                on_key=True,
            )
            continue
        role, places = (
            (Role.READ, stream.read_settings) if profile.has_write_beside_read else (Role.WRITE, stream.write_settings)
        )
        for region in places:
            for path, level in list_levels(subject.document, stream.name, region, role):
                if "republish" in (level.config or {}):
                    yield Violation(
                        at=(*path, "config", "republish"),
                        message=f"`core_subscribers` of `{stream.name}` uses `republish` itself",
                        hint="remove one of the two",
                        on_key=True,
                    )
            break
