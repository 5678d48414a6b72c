"""How clients reach streams: what a routing profile needs, and what may be routed as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.topology.subjects import subject_problem
from vstream.subjects import algebra as subject_algebra
from vstream.syntax.quoting import quote_value
from vstream.topology.accounts import VSTREAM_USER, regional_user
from vstream.topology.model import Consistency, Naming, Security
from vstream.topology.profiles import profile_of
from vstream.topology.stream_config import HIDDEN_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path
    from vstream.topology.model import Topology


@rule("VS136", "routing-unfit", Severity.ERROR)
def routing_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    The topology asks for accounts or domains, and for something that they cannot be combined with.

    ## Why is this bad?
    With `routing: accounts`, a message is stored under the subject that it was published on, so there is no place
    for `naming: blog`; with `domains` and `regional` under another that is fixed. Servers before 2.11 refuse the
    configuration of `accounts` and `regional`: several accounts share flow control.

    With `routing: domains` nothing spans regions but the copies of what was written: there is no stretch cluster to
    decide on an order, and publishes do not cross to the region of an origin.
    """
    topology = subject.topology
    profile = profile_of(topology)
    if profile.has_domains:
        yield from _unfit_for_domains(topology)
    elif subject.document.hubs.model_fields_set:
        yield Violation(
            at=("hubs",), message="there are no hubs without `routing: domains`", hint="remove them", on_key=True
        )
    if profile.has_physical_names:
        return
    if topology.naming is Naming.BLOG:
        yield Violation(
            at=("naming",),
            message=f"`naming: blog` has no meaning with `routing: {topology.routing.value}`",
            hint="leave `naming` out, or use `routing: mapped`",
        )
    if profile.since is not None and topology.server_version < profile.since:
        yield Violation(
            at=("server_version",),
            message=f"servers before 2.11 refuse the accounts of `routing: {topology.routing.value}`",
            hint='upgrade to 2.11 at least and say so, `server_version: "2.11"`, or use `routing: mapped`',
        )


def _unfit_for_domains(topology: Topology) -> Iterator[Violation]:
    if topology.stretch is not None:
        yield Violation(
            at=("stretch",),
            message="`routing: domains` has no stretch cluster: a domain ends with its region",
            hint="leave `stretch` out, or use `routing: accounts`",
            on_key=True,
        )
    for stream in topology.streams:
        if stream.consistency is not Consistency.VIRTUAL:
            yield Violation(
                at=("streams", stream.name, "consistency"),
                message=f"the {stream.consistency.value} stream `{stream.name}` cannot be in `routing: domains`: "
                + (
                    "publishes do not cross to the region of an origin"
                    if stream.consistency is Consistency.HOMED
                    else "there is no stretch cluster"
                ),
                hint="make it `virtual`, or use `routing: accounts`, which has all models",
            )
    for region in topology.regions:
        if region.name.startswith(HIDDEN_PREFIXES):
            yield Violation(
                at=("regions", region.name),
                message=f"`{region.name}` cannot be the name of a domain: hidden accounts begin so",
                hint="give the region another name",
                on_key=True,
            )


@rule("VS170", "region-users-shared", Severity.ERROR)
def region_users_shared(subject: TopologySubject) -> Iterator[Violation]:
    """
    With `routing: regional`, `connect` logs in to two regions as one user.

    ## Why is this bad?
    A user belongs to one account, and each region has an account of its own: whoever connects to the east as a user of the
    west publishes and reads in the west, and everything would be compared with the streams of the wrong region.
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
                    message=f"region `{region}` is reached as region `{earlier_region}` is, by the {field[-1]} {quote_value(value)}: "
                    "a user belongs to one region",
                    hint=f"name one of region `{region}`, such as `{formats.format(regional_user(VSTREAM_USER, region))}`",
                )


@rule("VS137", "root-unfit", Severity.ERROR)
def root_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    A root holds more than streams that take publishes in each region, or cannot be mapped.

    ## Why is this bad?
    Everything below a root goes to the write streams of the publisher's region: a stream with one origin for all
    regions would get nothing, and a subject that is only partly below it would be mapped twice.
    With `routing: mapped`, roots change nothing. A root that no stream is below is probably misspelled (a warning): what is
    published there reaches nobody.
    """
    for index, root in enumerate(subject.topology.roots):
        at = ("roots", index)
        problem = subject_problem(root)
        if problem is not None:
            yield Violation(at=at, message=f"{quote_value(root)} {problem[0]}", hint=problem[1] or "name another root")
        elif profile_of(subject.topology).has_physical_names and subject.topology.moves_to is None:
            yield Violation(
                at=at,
                message=f"{quote_value(root)} is a root without `routing: accounts`, `domains` or `regional`",
                hint="remove it, or say so",
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
            message=f"no stream is below {quote_value(root)}: messages there are not stored, and every publish pays for the rule",
            hint="is it misspelled? a root for `v.foo.>` and `v.bar.>` is `v.>`",
            severity=Severity.WARNING,
        )
    for stream, candidate in below:
        if stream.consistency.has_origin:
            yield Violation(
                at=at,
                message=f"{quote_value(root)} holds {quote_value(candidate)} of the {stream.consistency.value} stream "
                f"`{stream.name}`, which takes all publishes in one place",
                hint="give that stream a subject outside of it",
            )
        elif not subject_algebra.is_subset(candidate, root):
            yield Violation(
                at=at,
                message=f"{quote_value(root)} holds only a part of {quote_value(candidate)} of stream `{stream.name}`",
                hint="widen the root, or give the stream another subject",
            )
