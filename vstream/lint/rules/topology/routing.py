"""How clients reach streams: what a routing profile needs, and what may be routed as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream import subjects as subject_algebra
from vstream.diagnostics import Severity
from vstream.lint.registry import Finding, rule
from vstream.lint.rules.topology.subjects import subject_problem
from vstream.model.topology import Naming, Routing
from vstream.syntax.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.subject import TopologySubject

_ACCOUNTS_SINCE = (2, 11)
"""2.10 refuses two imports of one subject from different accounts, which flow control needs."""


@rule("VS136", "routing-unfit", Severity.ERROR)
def routing_unfit(subject: TopologySubject) -> Iterator[Finding]:
    """
    The topology asks for accounts and for something that they cannot be combined with.

    ## Why is this bad?
    With `routing: accounts`, a message is stored under the subject that it was published on, so there is no place
    for `naming: blog`. Servers before 2.11 refuse the configuration: several accounts share flow control.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.10"
    routing: accounts
    regions: {west: {servers: 3}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    routing: accounts
    regions: {west: {servers: 3}}
    ```
    """
    topology = subject.topology
    if topology.routing is not Routing.ACCOUNTS:
        return
    if topology.naming is Naming.BLOG:
        yield Finding(
            at=("naming",),
            message="`naming: blog` has no meaning with `routing: accounts`",
            hint="leave `naming` out, or use `routing: mapped`",
        )
    if topology.server_version < _ACCOUNTS_SINCE:
        yield Finding(
            at=("server_version",),
            message="servers before 2.11 refuse the accounts of `routing: accounts`",
            hint='upgrade to 2.11 at least and say so, `server_version: "2.11"`, or use `routing: mapped`',
        )


@rule("VS137", "root-unfit", Severity.ERROR)
def root_unfit(subject: TopologySubject) -> Iterator[Finding]:
    """
    A root holds more than streams that take publishes in each region, or cannot be mapped.

    ## Why is this bad?
    Everything below a root goes to the write streams of the publisher's region: a stream with one origin for all
    regions would get nothing, and a subject that is only partly below it would be mapped twice.
    Without `routing: accounts`, roots change nothing.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    routing: accounts
    roots: [v.>]
    regions: {west: {servers: 3}, east: {servers: 3}}
    streams:
      prices: {subjects: [v.prices.>], consistency: homed, home: east}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    routing: accounts
    roots: [v.>]
    regions: {west: {servers: 3}, east: {servers: 3}}
    streams:
      prices: {subjects: [prices.>], consistency: homed, home: east}
    ```
    """
    topology = subject.topology
    for index, root in enumerate(topology.roots):
        at = ("roots", index)
        problem = subject_problem(root)
        if problem is not None:
            yield Finding(at=at, message=f"{shown(root)} {problem[0]}", hint=problem[1] or "name another root")
            continue
        if topology.routing is not Routing.ACCOUNTS:
            yield Finding(
                at=at, message=f"{shown(root)} is a root without `routing: accounts`", hint="remove it, or say so"
            )
            continue
        other = next((one for one in topology.roots[:index] if subject_algebra.overlaps(one, root)), None)
        if other is not None:
            yield Finding(at=at, message=f"{shown(root)} overlaps the root {shown(other)}", hint="keep one of the two")
        for stream in topology.streams:
            for one in stream.subjects:
                if not subject_algebra.overlaps(one, root):
                    continue
                if stream.consistency.has_origin:
                    yield Finding(
                        at=at,
                        message=f"{shown(root)} holds {shown(one)} of the {stream.consistency.value} stream "
                        f"`{stream.name}`, which takes all publishes in one place",
                        hint="give that stream a subject outside of it",
                    )
                elif not subject_algebra.is_subset(one, root):
                    yield Finding(
                        at=at,
                        message=f"{shown(root)} holds only a part of {shown(one)} of stream `{stream.name}`",
                        hint="widen the root, or give the stream another subject",
                    )
