"""What survives what, by model, replicas, profile and stretch cluster."""

from __future__ import annotations

import pytest

from vstream.lint.check_topology import check_topology
from vstream.topology.model import Topology
from vstream.topology.survival import Ability, Failure, SurvivalCell, list_incidents, survival_table

_MODELS = """\
  sensors: {subjects: [sensors.>], write: {max_age: 1h}}
  ledger: {subjects: [ledger.>], consistency: ordered, write: {max_age: 1h}}
  stock: {subjects: [stock.>], consistency: stretch}
  prices: {subjects: [prices.>], consistency: homed, home: east}
"""
_VIRTUAL = "  sensors: {subjects: [sensors.>], write: {max_age: 1h}}\n"
_LETTERS = {"yes": "y", "pause": "p", "no": "n", "unknown": "?", "never": "-"}


def _topology(streams: str = _MODELS, *, servers: int = 3, more: str = "") -> Topology:
    regions = ", ".join(f"{region}: {{servers: {servers}}}" for region in ("west", "central", "east"))
    stretch = "stretch: {members: all}\n" if "stretch" in streams else ""
    text = f'version: 1\nname: acme\nserver_version: "2.12"\n{more}regions: {{{regions}}}\n{stretch}streams:\n{streams}'
    return check_topology(text.encode(), "acme.yaml").require()


def _cells(topology: Topology) -> dict[tuple[str, Failure, Ability], SurvivalCell]:
    return {(cell.stream, cell.failure, cell.ability): cell for cell in survival_table(topology)}


def _letters(topology: Topology, stream: str) -> dict[str, str]:
    """By failure, a letter for each ability."""
    rows: dict[str, str] = {}
    for cell in survival_table(topology):
        if cell.stream == stream:
            rows[cell.failure.value] = rows.get(cell.failure.value, "") + _LETTERS[cell.ruling.answer.value]
    return rows


@pytest.mark.parametrize(
    ("stream", "rows"),
    [
        ("sensors", "pypp- ????? yyyp- yyyn- yyyp- yyyn- npnp-"),
        ("ledger", "pyppy ????? yyppy yynny yyppy yynny npnpp"),
        ("stock", "pyppy ????? pyppy nynny pyppy nynny ppppp"),
        ("prices", "pyppy ????? nynpy nynny nynpy nynny npnpn"),
    ],
)
def test_each_model_survives_what_was_measured(stream: str, rows: str) -> None:
    """As measured on three servers in each of three regions, and rehearsed: see docs/survival.md."""
    assert list(_letters(_topology(), stream).values()) == rows.split()


def test_every_cell_has_a_reason() -> None:
    assert all(cell.ruling.reason for cell in survival_table(_topology()))


def test_clients_of_a_region_of_one_server_have_none_left() -> None:
    cell = _cells(_topology(servers=1))["sensors", Failure.SERVER, Ability.READS]
    assert cell.ruling.answer.value == "no"
    assert cell.ruling.reason == "clients in west have no server left"


def test_one_replica_on_some_server_is_not_certain() -> None:
    cell = _cells(_topology(_VIRTUAL.replace("write: {", "replicas: 1, write: {")))
    writes = cell["sensors", Failure.SERVER, Ability.WRITES].ruling
    assert (writes.answer.value, writes.is_certain) == ("no", False)


def test_zones_are_those_of_the_unique_tag() -> None:
    tagged = "server_options: {unique_tag: 'az:'}\n"
    assert list_incidents(_topology(_VIRTUAL), Failure.ZONE) == ()
    text = (
        f'version: 1\nname: acme\nserver_version: "2.12"\n{tagged}regions:\n'
        "  west: {servers: 4, tags: ['az:a', 'az:a', 'az:b', 'az:c']}\n  east: {servers: 3, tags: ['az:a', 'az:b', 'az:c']}\n"
        f"streams:\n{_VIRTUAL}"
    )
    zoned = check_topology(text.encode(), "acme.yaml").require()
    lost = list_incidents(zoned, Failure.ZONE)[0]
    assert (lost.name, sorted(lost.down)) == ("az:a in west", ["west-1", "west-2"])
    # Two servers of west are gone, and only one replica: no two are in one zone.
    assert _letters(zoned, "sensors")["zone"] == "pypp-"


def test_domains_have_a_meta_leader_in_each_region() -> None:
    topology = _topology(_VIRTUAL, more="routing: domains\n")
    rows = _letters(topology, "sensors")
    assert (rows["cut_off"], rows["two_regions"]) == ("yyyy-", "yyyy-")


def test_what_is_on_disk_at_once_survives_a_loss_of_power() -> None:
    assert _letters(_topology(more="jetstream: {sync_interval: always}\n"), "prices")["power"] == "ppppp"


def test_streams_in_memory_do_not_survive_a_loss_of_power() -> None:
    more = "jetstream: {sync_interval: always}\n"
    cell = _cells(_topology(_VIRTUAL.replace("write: {", "storage: memory, write: {"), more=more))
    assert cell["sensors", Failure.POWER, Ability.WRITES].ruling.reason == (
        "`sensors-write-west` is in memory: all of it is gone"
    )


def test_a_stream_of_one_region_is_gone_with_it() -> None:
    cell = _cells(_topology(_VIRTUAL.replace("write: {", "regions: [west], write: {")))
    ruling = cell["sensors", Failure.REGION, Ability.WRITES].ruling
    assert (ruling.answer.value, ruling.reason) == ("no", "the stream is in no region that west leaves")
