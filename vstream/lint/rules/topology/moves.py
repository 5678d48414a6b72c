"""A topology that moves to another routing profile, and streams that take over others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.syntax.quoting import quote_value
from vstream.topology import physical
from vstream.topology.model import Consistency, Naming, Routing, Security
from vstream.topology.profiles import profile_of
from vstream.topology.stream_config import HIDDEN_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.topology.model import Topology


_SINCE = (2, 11)
"""As of `routing: accounts`."""


@rule("VS171", "move-unfit", Severity.ERROR)
def move_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    The topology moves to another routing profile in a way that cannot work, or names an account that it cannot have.

    ## Why is this bad?
    A live topology moves from `routing: mapped` to `accounts`, in three steps: `mapped` with `moves_to: accounts`, `accounts`
    with `moves_from: mapped`, `accounts` alone. Both layouts are in one text of accounts, which vstream writes, so `account`
    has to say what the account of clients is called. Read streams of the new layout source those of the old one: mirrors
    cannot, and counters would count twice.
    """
    topology, document = subject.topology, subject.document
    if topology.account is not None:
        yield from _account(topology, topology.account)
    for key, needed, wording in (
        ("moves_to", Routing.MAPPED, topology.moves_to),
        ("moves_from", Routing.ACCOUNTS, topology.moves_from),
    ):
        if wording is None:
            continue
        if topology.routing is not needed:
            yield Violation(
                at=(key,),
                message=f"`{key}: {wording.value}` goes with `routing: {needed.value}`, not with `{topology.routing.value}`",
                hint="clients are in the layout that `routing` says: first in `mapped`, then in `accounts`",
            )
            return
        if topology.security is Security.OPERATOR:
            yield Violation(
                at=(key,),
                message="a topology with `mode: operator` keeps its routing profile",
                hint="move with accounts in configuration files, or to servers of their own",
            )
            return
        if topology.account is None:
            yield Violation(
                at=(key,),
                message="a topology that moves needs `account`: the account that its clients and streams are in",
                hint="name it, such as `account: ACME`, and let vstream write it (docs/changes.md)",
            )
        yield from _streams(topology)
        if topology.server_version < _SINCE:
            yield Violation(
                at=("server_version",),
                message="servers before 2.11 refuse the accounts of `routing: accounts`",
                hint='upgrade to 2.11 at least and say so, `server_version: "2.11"`',
            )
        counting = (name for name, stream in document.streams.items() if stream.counters)
        for name in counting:
            yield Violation(
                at=("streams", name, "counters"),
                message=f"stream `{name}` counts, and would count everything twice while the topology moves",
                hint="give it another name, with `routing: accounts` in a topology of its own",
            )


def _account(topology: Topology, account: str) -> Iterator[Violation]:
    at = ("account",)
    if topology.routing not in {Routing.MAPPED, Routing.ACCOUNTS}:
        yield Violation(
            at=at,
            message=f"`account` has no meaning with `routing: {topology.routing.value}`, where accounts have fixed names",
            hint="remove it",
            on_key=True,
        )
    if account.startswith(HIDDEN_PREFIXES):
        yield Violation(
            at=at,
            message=f"{quote_value(account)} cannot be the account of clients: hidden accounts begin so",
            hint="call it otherwise, such as `APP`",
        )
    if topology.security is Security.OPERATOR:
        yield Violation(
            at=at,
            message="with `mode: operator` the account of clients is `APP`",
            hint="remove `account`: tokens say what it is called",
            on_key=True,
        )
    if profile_of(topology).has_physical_names and topology.naming is Naming.BLOG:
        yield Violation(
            at=at,
            message="with `naming: blog`, vstream does not write the account: who may publish where cannot be told from its subjects",
            hint="leave `account` out, and include mappings.cfg in an account of your own",
            on_key=True,
        )


def _streams(topology: Topology) -> Iterator[Violation]:
    for stream in topology.streams:
        if stream.consistency is not Consistency.VIRTUAL:
            yield Violation(
                at=("streams", stream.name),
                message=f"the {stream.consistency.value} stream `{stream.name}` cannot move: servers make no mirror of a stream that sources",
                hint="take it out of this topology and give it another name in one with `routing: accounts`",
                on_key=True,
            )
        if stream.takes_over is not None:
            yield Violation(
                at=("streams", stream.name, "takes_over"),
                message=f"`{stream.name}` takes over a plain stream, while the topology moves",
                hint="let that end first: it is one step after the other",
            )


@rule("VS141", "takeover-cannot", Severity.ERROR)
def takeover_cannot(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream takes over a plain one in a way that cannot work.

    ## Why is this bad?
    The read streams source the plain stream beside the write streams. Only `virtual` streams have read streams that
    source, hidden accounts do not reach the plain stream, and nothing can take over one of its own physical streams, or what
    another takes over.
    """
    physical_names = {}
    for virtual_stream in subject.topology.streams:
        for part in virtual_stream.physical:
            physical_names[physical.physical_name(virtual_stream, part.role, part.place)] = virtual_stream.name
    takers: dict[str, str] = {}
    for name, stream in subject.document.streams.items():
        plain, at = stream.takes_over, ("streams", name, "takes_over")
        if plain is None:
            continue
        if stream.consistency != "virtual":
            yield Violation(
                at=at,
                message=f"`{name}` is `{stream.consistency}`: its read streams cannot source a plain stream",
                hint="write `consistency: virtual`, or remove `takes_over`",
                on_key=True,
            )
        elif not profile_of(subject.topology).has_physical_names:
            yield Violation(
                at=at,
                message=f"with `routing: {subject.topology.routing.value}`, read streams do not reach a plain stream",
                hint="write `routing: mapped`, or copy the messages by other means",
                on_key=True,
            )
        elif plain in physical_names:
            yield Violation(
                at=at,
                message=f"`{plain}` is a physical stream of `{physical_names[plain]}`",
                hint="name the stream that clients use now",
            )
        elif plain in takers:
            yield Violation(
                at=at, message=f"`{takers[plain]}` takes over `{plain}` already", hint="one of the two is enough"
            )
        takers.setdefault(plain, name)
