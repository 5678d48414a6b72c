"""A topology that moves to another routing profile, and streams that take over others."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.formatting import quote_value
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.topology.model import Consistency, Naming, Routing, Security, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.replication import index_physical_streams
from vstream.topology.stream_config import HIDDEN_PREFIXES

_SINCE = (2, 11)
"""The first server version that supports `routing: accounts`."""


@rule("VS171", "move-unfit", Severity.ERROR)
def move_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    The move to another routing profile cannot work, or `account` is not a possible name.

    ## Why is this bad?
    A live topology moves from `routing: mapped` to `accounts`, in three steps: `mapped` with `moves_to: accounts`,
    `accounts` with `moves_from: mapped`, `accounts` alone. vstream writes the accounts of both layouts into one file,
    so `account` must name the account of clients. Read streams of the new layout source those of the old one: mirrors
    cannot do that, and counters would count twice.
    """
    topology, document = subject.topology, subject.document
    if topology.account is not None:
        yield from _check_account(topology, topology.account)
    for key, needed, wording in (
        ("moves_to", Routing.MAPPED, topology.moves_to),
        ("moves_from", Routing.ACCOUNTS, topology.moves_from),
    ):
        if wording is None:
            continue
        if topology.routing is not needed:
            yield Violation(
                at=(key,),
                message=f"`{key}: {wording.value}` needs `routing: {needed.value}`, not `{topology.routing.value}`",
                hint="`routing` says which layout clients use: first `mapped`, then `accounts`",
            )
            return
        if topology.security is Security.OPERATOR:
            yield Violation(
                at=(key,),
                message="a topology with `mode: operator` keeps its routing profile",
                hint="use accounts in configuration files to move, or set up new servers",
            )
            return
        if topology.account is None:
            yield Violation(
                at=(key,),
                message="a topology that moves needs `account`: the account of its clients and streams",
                hint="name it, such as `account: ACME`, and let vstream write it (docs/changes.md)",
            )
        yield from _check_streams(topology)
        if topology.server_version < _SINCE:
            yield Violation(
                at=("server_version",),
                message="servers before 2.11 refuse the accounts of `routing: accounts`",
                hint='upgrade to at least 2.11 and set `server_version: "2.11"`',
            )
        counting = (name for name, stream in document.streams.items() if stream.counters)
        for name in counting:
            yield Violation(
                at=("streams", name, "counters"),
                message=f"stream `{name}` holds counters, and would count everything twice while the topology moves",
                hint="give it another name in a separate topology with `routing: accounts`",
            )


def _check_account(topology: Topology, account: str) -> Iterator[Violation]:
    at = ("account",)
    if not profile_of(topology).may_name_account:
        yield Violation(
            at=at,
            message=f"`account` has no effect with `routing: {topology.routing.value}`, where account names are fixed",
            hint="remove it",
            on_key=True,
        )
    if account.startswith(HIDDEN_PREFIXES):
        yield Violation(
            at=at,
            message=(
                f"{quote_value(account)} cannot be the account of clients: names of hidden accounts begin like this"
            ),
            hint="choose another name, such as `APP`",
        )
    if topology.security is Security.OPERATOR:
        yield Violation(
            at=at,
            message="with `mode: operator`, the account of clients is always `APP`",
            hint="remove `account`: tokens contain its name",
            on_key=True,
        )
    if profile_of(topology).has_physical_names and topology.naming is Naming.BLOG:
        yield Violation(
            at=at,
            message=(
                "with `naming: blog`, vstream cannot write the account: its subjects do not show who may publish where"
            ),
            hint="omit `account`, and include mappings.cfg in an account of your own",
            on_key=True,
        )


def _check_streams(topology: Topology) -> Iterator[Violation]:
    for stream in topology.streams:
        if stream.consistency is not Consistency.VIRTUAL:
            yield Violation(
                at=("streams", stream.name),
                message=(
                    f"the {stream.consistency.value} stream `{stream.name}` cannot move: servers cannot "
                    "mirror a stream that has sources"
                ),
                hint="remove it from this topology and give it another name in one with `routing: accounts`",
                on_key=True,
            )
        if stream.takes_over is not None:
            yield Violation(
                at=("streams", stream.name, "takes_over"),
                message=f"`{stream.name}` takes over a plain stream, while the topology moves",
                hint="finish the takeover first, then move",
            )


@rule("VS141", "takeover-cannot", Severity.ERROR)
def takeover_cannot(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream cannot take over the plain stream in `takes_over`.

    ## Why is this bad?
    The read streams source the plain stream as well as the write streams. Only `virtual` streams have read streams with
    sources, streams in hidden accounts cannot reach the plain stream, and a stream cannot take over one of its own
    physical streams, or a stream that another one takes over.
    """
    takes_any = any(stream.takes_over is not None for stream in subject.document.streams.values())
    physical_streams = index_physical_streams(subject.topology) if takes_any else {}
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
                message=f"with `routing: {subject.topology.routing.value}`, read streams cannot source a plain stream",
                hint="write `routing: mapped`, or copy the messages with another tool",
                on_key=True,
            )
        elif plain in physical_streams:
            yield Violation(
                at=at,
                message=f"`{plain}` is a physical stream of `{physical_streams[plain].virtual}`",
                hint="name the stream that clients use today",
            )
        elif plain in takers:
            yield Violation(
                at=at, message=f"`{takers[plain]}` already takes over `{plain}`", hint="keep one of the two"
            )
        takers.setdefault(plain, name)
