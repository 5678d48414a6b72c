"""
Where a message goes over leaf node connections.

Source: `server/leafnode.go` (newLeafNodeCfg, addLeafNodeConnection, leafMsgAllowed) and `server/parser.go`, which maps
what comes over a leaf connection as it maps what a client publishes.

A message crosses where somebody listens on the other side, if neither side denies its subject. The account that it comes
to there maps it again, and passes it on to its own imports and to other leaf nodes, but not back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from vstream.findings import Span
from vstream.subjects.account_flow import AccountFlow, AccountLink
from vstream.subjects.algebra import matches
from vstream.subjects.resolve import compile_mappings
from vstream.value_class import value_class

JETSTREAM_SUBJECTS: Final = ("$JS.API.>", "$KV.>", "$OBJ.>")
"""What no leaf connection lets pass, but one of the system account: another domain is asked at `$JS.<domain>.API`."""
_PERCENT = 100


@value_class
class LeafSide:
    """One end of a connection: an account on a server, and the servers that share its messages."""

    server: str
    system: str
    """The servers that are linked by routes and gateways have the same."""
    account: str
    cluster: str | None
    flow: AccountFlow = field(compare=False)


@value_class
class SubjectFilter:
    """
    What may cross in one direction: *allow* None is everything; each of *deny* was written at its place.

    *opposite* is what the leaf node does not take in. Once the hub has a subscriber with a wildcard, it does not let that
    out either (server/leafnode.go, processLeafSub, loadMsgDenyFilterIfNeeded).
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[tuple[str, Span | None], ...] = ()
    opposite: tuple[tuple[str, Span | None], ...] = ()

    def find_denial(self, subject: str) -> tuple[str, Span | None] | None:
        """The rule that stops the literal *subject*; None if nothing does."""
        for pattern, span in self.deny:
            if matches(subject, pattern):
                return f"`{pattern}` is denied", span
        for pattern, span in self.opposite:
            if matches(subject, pattern):
                return (
                    f"the leaf node may not take in `{pattern}`, and so subscribers with wildcards do not get it",
                    span,
                )
        if self.allow is not None and not any(matches(subject, pattern) for pattern in self.allow):
            return "it is not among what the user may", None
        return None


@value_class
class LeafLink:
    """A leaf node connection, and what may cross it in either direction."""

    hub: LeafSide
    leaf: LeafSide
    to_hub: SubjectFilter
    to_leaf: SubjectFilter
    span: Span | None = field(default=None, compare=False)


@value_class
class LeafArrival:
    """
    *percent* of the messages come to *side* by way of *links*, and are seen in *account* there as *subject*.

    *refusal* says what stops them instead, and *subject* is then what they had before. *imports* brought them from the
    account of the connection to *account*. *percent* is None where the server picks one of several rules at random.
    """

    side: LeafSide
    account: str
    subject: str
    percent: float | None
    links: tuple[LeafLink, ...]
    imports: tuple[AccountLink, ...] = ()
    refusal: tuple[str, Span | None] | None = None


def cross_leaves(links: Iterable[LeafLink], origin: LeafSide, subject: str) -> Iterator[LeafArrival]:
    """Who sees what has the literal *subject* at *origin*, after its mappings, beyond leaf node connections."""
    yield from _follow(
        tuple(links), LeafArrival(side=origin, account=origin.account, subject=subject, percent=_PERCENT, links=())
    )


def _follow(links: tuple[LeafLink, ...], message: LeafArrival) -> Iterator[LeafArrival]:
    for link in links:
        if link in message.links:
            continue
        for near, far, allowed in ((link.hub, link.leaf, link.to_leaf), (link.leaf, link.hub, link.to_hub)):
            if (near.system, near.account) == (message.side.system, message.account):
                yield from _cross(links, message, link, far, allowed)


def _cross(
    links: tuple[LeafLink, ...], message: LeafArrival, link: LeafLink, far: LeafSide, allowed: SubjectFilter
) -> Iterator[LeafArrival]:
    path = (*message.links, link)
    refusal = allowed.find_denial(message.subject)
    if refusal is not None:
        yield LeafArrival(
            side=far, account=far.account, subject=message.subject, percent=message.percent, links=path, refusal=refusal
        )
        return
    table = far.flow.tables.get(far.account) or compile_mappings(())
    for subject, share in table.resolve(message.subject, far.cluster).share_out(message.percent):
        arrival = LeafArrival(side=far, account=far.account, subject=subject, percent=share, links=path)
        yield arrival
        for brought in far.flow.arrivals(far.account, subject, far.cluster):
            is_known = share is not None and brought.percent is not None
            percent = (share or 0) * (brought.percent or 0) / _PERCENT if is_known else None
            yield LeafArrival(
                side=far,
                account=brought.account,
                subject=brought.subject,
                percent=percent,
                links=path,
                imports=brought.links,
            )
        yield from _follow(links, arrival)
