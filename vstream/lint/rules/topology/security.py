"""Where accounts and users are written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Finding, rule
from vstream.model.topology import Routing, Security

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.subject import TopologySubject

_SINCE = (2, 12)
_MOST_REGIONS = 12
"""Each takes about 70 kB of the token of the account of clients, which is pushed in one message of at most 1 MB."""


@rule("VS160", "operator-unfit", Severity.ERROR)
def operator_unfit(subject: TopologySubject) -> Iterator[Finding]:
    """
    The topology asks for operator mode, and for something that it cannot be combined with.

    ## Why is this bad?
    Operator mode is rendered for the accounts of `routing: accounts`. Servers before 2.12.6 (and 2.11.15) refuse their
    tokens: several accounts share flow control. The token of the account of clients is pushed in one message, which a
    server takes up to 1 MB of: that is enough for 12 regions.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    routing: mapped
    security: {mode: operator}
    regions: {west: {servers: 3}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    routing: accounts
    security: {mode: operator}
    regions: {west: {servers: 3}}
    ```
    """
    topology = subject.topology
    if topology.security is not Security.OPERATOR:
        return
    at = ("security", "mode")
    if topology.routing is not Routing.ACCOUNTS:
        yield Finding(
            at=at,
            message=f"`mode: operator` has no meaning with `routing: {topology.routing.value}`",
            hint="use `routing: accounts`, or put the mappings into your account's token yourself",
        )
    if topology.server_version < _SINCE:
        yield Finding(
            at=("server_version",),
            message="servers before 2.12 refuse the tokens of `mode: operator`",
            hint='upgrade to 2.12.6 at least and say so, `server_version: "2.12"`, or leave `security` out',
        )
    if len(topology.regions) > _MOST_REGIONS:
        yield Finding(
            at=at,
            message=f"with {len(topology.regions)} regions, the token of the account of clients is too large to be pushed",
            hint=f"`mode: configuration` has no such limit; {_MOST_REGIONS} regions are possible",
        )
