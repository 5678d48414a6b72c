"""How clients reach streams: what a routing profile needs, and which subjects may share a root."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.formatting import quote_value
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.lint.rules.topology.subjects import subject_problem
from vstream.subjects import algebra as subject_algebra
from vstream.topology.accounts import VSTREAM_USER, regional_user
from vstream.topology.model import Consistency, Naming, Security, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.stream_config import HIDDEN_PREFIXES

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path


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
        yield Violation(
            at=("server_version",),
            message=f"servers before 2.11 refuse the accounts of `routing: {topology.routing.value}`",
            hint='upgrade to at least 2.11 and set `server_version: "2.11"`, or use `routing: mapped`',
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
        elif profile_of(subject.topology).has_physical_names and subject.topology.moves_to is None:
            yield Violation(
                at=at,
                message=f"{quote_value(root)} is a root, but roots need `routing: accounts`, `domains` or `regional`",
                hint="remove it, or set `routing`",
            )
        else:
            yield from _root(subject.topology, index, root)


def _root(topology: Topology, index: int, root: str) -> Iterator[Violation]:
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
