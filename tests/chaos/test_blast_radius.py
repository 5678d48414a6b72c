"""What a fault will take away, before it takes it."""

from __future__ import annotations

import pytest

from vstream.chaos.blast_radius import GroupEffect, Impact, Quorum, assess_impact
from vstream.cli.views import chaos as view
from vstream.lint import check_topology
from vstream.topology.model import Topology


def topology(servers: int, *, replicas: int | None = None, regions: int = 3) -> Topology:
    names = ("west", "central", "east")[:regions]
    listed = ", ".join(f"{name}: {{servers: {servers}}}" for name in names)
    setting = f", replicas: {replicas}" if replicas else ""
    text = (
        f'version: 1\nname: acme\nserver_version: "2.12"\nregions: {{{listed}}}\n'
        f"streams:\n  foo: {{subjects: [foo.>], canary: foo._canary.*, write: {{max_age: 1h{setting}}}}}\n"
    )
    return check_topology.check_topology(text.encode(), "acme.yaml").require()


WEST = ("west-1", "west-2", "west-3")
CENTRAL = ("central-1", "central-2", "central-3")
KEPT, PERHAPS, LOST = Quorum.KEPT, Quorum.PERHAPS, Quorum.LOST


@pytest.mark.parametrize(
    ("servers", "replicas", "lost", "taken", "quorums", "majority", "refusals"),
    [
        (3, 3, (), ("west-1",), (KEPT, KEPT, KEPT), True, 0),
        (3, 3, (), WEST[:2], (LOST, KEPT, KEPT), True, 0),
        (3, 3, (), WEST, (LOST, KEPT, KEPT), True, 0),
        (3, 3, ("west-1",), ("west-2",), (LOST, KEPT, KEPT), True, 0),
        (3, 3, ("west-1",), ("central-1",), (KEPT, KEPT, KEPT), True, 0),
        # A server of a second region costs that one nothing.
        (3, 3, WEST, ("central-1",), (LOST, KEPT, KEPT), True, 0),
        (3, 3, WEST, CENTRAL[:2], (LOST, LOST, KEPT), False, 2),
        (3, 3, WEST[:2], CENTRAL[:2], (LOST, LOST, KEPT), True, 1),
        (3, 3, WEST, CENTRAL, (LOST, LOST, KEPT), False, 2),
        (3, 3, (*WEST, *CENTRAL), ("east-1",), (LOST, LOST, KEPT), False, 1),
        (3, 1, (), ("west-1",), (PERHAPS, KEPT, KEPT), True, 0),
        (3, 1, ("west-1",), ("east-1",), (PERHAPS, KEPT, PERHAPS), True, 1),
        (3, 1, (), WEST, (LOST, KEPT, KEPT), True, 0),
        (5, 3, (), WEST[:2], (PERHAPS, KEPT, KEPT), True, 0),
        (5, 3, (), ("west-1",), (KEPT, KEPT, KEPT), True, 0),
        (1, None, (), ("west-1",), (LOST, KEPT, KEPT), True, 0),
        (1, None, ("west-1",), ("east-1",), (LOST, KEPT, LOST), False, 2),
        (3, 3, WEST, (), (LOST, KEPT, KEPT), True, 0),
    ],
)
def test_quorums_and_majorities_that_lost_servers_leave(
    servers: int,
    replicas: int | None,
    lost: tuple[str, ...],
    taken: tuple[str, ...],
    quorums: tuple[Quorum, ...],
    majority: bool,
    refusals: int,
) -> None:
    effects = assess_impact(topology(servers, replicas=replicas), missing_servers=lost, taken_servers=taken)
    assert tuple(region.quorum for region in effects.regions) == quorums
    assert effects.meta is not None
    assert effects.meta.has_majority is majority
    assert len(effects.refusals) == refusals


def test_of_two_servers_neither_can_be_missed() -> None:
    effects = assess_impact(topology(1, regions=2), missing_servers=(), taken_servers=("west-1",))
    assert effects.refusals == (
        "the JetStream meta group would have 1 of its 2 servers: no majority, so no leader anywhere",
    )


def test_a_refusal_names_every_region_that_would_be_without() -> None:
    effects = assess_impact(topology(3, replicas=3), missing_servers=WEST[:2], taken_servers=CENTRAL[:2])
    assert effects.refusals == ("regions `central` and `west` would be without a write quorum at the same time",)


def test_a_server_that_is_lost_already_is_not_counted_twice() -> None:
    effects = assess_impact(topology(3, replicas=3), missing_servers=("west-1",), taken_servers=("west-1", "west-2"))
    assert effects.meta is not None
    assert (effects.regions[0].left, effects.meta.left, effects.meta.peers) == (1, 7, 9)


def test_the_stretch_cluster_loses_its_member_with_the_region() -> None:
    text = (
        'version: 1\nname: acme\nserver_version: "2.12"\n'
        "regions: {west: {servers: 3}, central: {servers: 3}, east: {servers: 3}}\nstretch: {}\nstreams: {}\n"
    )
    stretched = check_topology.check_topology(text.encode(), "acme.yaml").require()
    west = (*WEST, "stretch-west")
    impact = assess_impact(stretched, missing_servers=(), taken_servers=west)
    assert impact.stretch == GroupEffect(peers=3, left=2)
    assert impact.meta == GroupEffect(peers=12, left=8)
    assert impact.refusals == ()
    two = assess_impact(stretched, missing_servers=west, taken_servers=("stretch-east",))
    assert two.refusals == ("the stretch cluster would have 1 of its 3 servers: no majority",)
    assert assess_impact(stretched, missing_servers=(), taken_servers=("west-1",)).stretch == GroupEffect(
        peers=3, left=3
    )


def cut(*pairs: str) -> tuple[tuple[str, str], ...]:
    """`west-east` is what west sends to east."""
    return tuple((near, far) for near, _, far in (pair.partition("-") for pair in pairs))


WEST_ALONE = cut("west-central", "central-west", "west-east", "east-west")


@pytest.mark.parametrize(
    ("silent", "broken", "sides", "majority", "refusals"),
    [
        ((), WEST_ALONE, (("west",), ("central", "east")), True, 0),
        # One direction is enough to be out of touch, and somebody in between to be in touch.
        ((), cut("west-central", "west-east"), (("west",), ("central", "east")), True, 0),
        ((), cut("west-east", "east-west"), (("west", "central", "east"),), True, 0),
        (WEST_ALONE, cut("central-east"), (("west",), ("central",), ("east",)), False, 1),
        (WEST_ALONE, (), (("west",), ("central", "east")), True, 0),
    ],
)
def test_cut_links_leave_sides(
    silent: tuple[tuple[str, str], ...],
    broken: tuple[tuple[str, str], ...],
    sides: tuple[tuple[str, ...], ...],
    majority: bool,
    refusals: int,
) -> None:
    effects = assess_impact(
        topology(3, replicas=3), missing_servers=(), taken_servers=(), missing_links=silent, taken_links=broken
    )
    assert tuple(side.regions for side in effects.sides) == sides
    assert effects.meta is not None
    assert effects.meta.has_majority is majority
    assert len(effects.refusals) == refusals
    assert all(region.quorum is KEPT for region in effects.regions)


def test_lost_servers_and_cut_links_add_up() -> None:
    effects = assess_impact(
        topology(3, replicas=3), missing_servers=(), taken_servers=CENTRAL[:2], missing_links=WEST_ALONE
    )
    assert effects.meta == GroupEffect(peers=9, left=4)
    assert [(side.servers, side.has_meta_majority) for side in effects.sides] == [(3, False), (4, False)]
    assert len(effects.refusals) == 1


def test_what_is_lost_for_good_is_always_more_than_was_asked_for() -> None:
    effects = assess_impact(
        topology(3, replicas=3), missing_servers=(), taken_servers=("west-1",), permanent_losses=("5 seconds are gone",)
    )
    assert effects.refusals == ("5 seconds are gone",)


def test_a_region_without_its_hub_serves_and_copies_nothing() -> None:
    text = (
        'version: 1\nname: acme\nserver_version: "2.12"\nrouting: domains\nroots: [v.>]\n'
        "regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}\n"
        "streams: {foo: {subjects: [v.foo.>], write: {max_age: 1h}}}\n"
    )
    domains = check_topology.check_topology(text.encode(), "acme.yaml").require()
    assert render_impact(assess_impact(domains, missing_servers=(), taken_servers=("hub-west",))) == [
        "west: no hub, nothing is copied to or from it"
    ]
    assert render_impact(assess_impact(domains, missing_servers=("hub-west",), taken_servers=("west-1",))) == [
        "west: 0 of 1 servers left, 1 of 1 write stream cannot store"
    ]
    assert assess_impact(domains, missing_servers=("hub-west",), taken_servers=("east-1",)).apart == ("west",)
    assert render_impact(assess_impact(domains, missing_servers=(), taken_servers=(), taken_links=WEST_ALONE)) == [
        "on one side: west, 1 server, a meta leader in each region",
        "on one side: central, east, 2 servers, a meta leader in each region",
    ]
    assert render_impact(assess_impact(domains, missing_servers=(), taken_servers=())) == [
        "every server, and every link"
    ]


def render_impact(effects: Impact) -> list[str]:
    return [line.plain.strip() for line in view.render_impact(effects)]
