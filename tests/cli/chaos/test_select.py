"""What commands of `vstream chaos` say of names that are not what they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from vstream.chaos import select
from vstream.cli.chaos.commands import heal
from vstream.cli.lab_options import choose_lab
from vstream.errors import LabError, UnknownNameError
from vstream.lint import check_topology
from vstream.servers import target_servers
from vstream.servers.target_servers import TargetServers

REGIONS = "regions: {west: {servers: 1, cluster: c-west}, central: {servers: 1}, east: {servers: 1}}"
TAKE_SERVERS = select._FOR_SERVERS
ACROSS = (
    "; `stretch` is a cluster across regions, and each of its servers goes with its own region; "
    f"{TAKE_SERVERS} take one alone: stretch-west, stretch-central, stretch-east"
)
KNOWN = "regions: west, central, east"


def wide() -> TargetServers:
    """Three regions with a stretch cluster."""
    text = (
        f'version: 1\nname: wide\nserver_version: "2.12"\n{REGIONS}\nstretch: {{members: all}}\n'
        "streams: {stock: {subjects: [stock.>], consistency: stretch}}\n"
    )
    topology = check_topology.check_topology(text.encode(), "wide.yaml").require()
    return target_servers.make_api_target(topology, {}, None)


@pytest.mark.parametrize(
    ("take", "name", "hint"),
    [
        (select.require_running_in_region, "stretch", KNOWN + ACROSS),
        (lambda where, name: select.parse_sides(where, ["west", name]), "stretch", KNOWN + ACROSS),
        (lambda where, name: select.list_links_around(where, [name]), "stretch", KNOWN + ACROSS),
        (lambda where, name: select.find_link(where, "west", name), "stretch", KNOWN + ACROSS),
        (
            select.require_serving_servers,
            "stretch",
            f"{KNOWN}; servers: west-1, central-1, east-1, stretch-west, stretch-central, stretch-east{ACROSS}",
        ),
        (select.require_running_in_region, "c-west", f"{KNOWN}; `c-west` is the cluster of region `west`"),
        (
            select.require_running_in_region,
            "stretch-east",
            f"{KNOWN}; `stretch-east` is a server in region `east`: {TAKE_SERVERS} take it alone",
        ),
        (select.require_running_in_region, "wset", KNOWN),
    ],
)
def test_what_is_no_region_is_told_apart(take: Callable[[TargetServers, str], object], name: str, hint: str) -> None:
    with pytest.raises(UnknownNameError, match=f"^there is no region( or server)? `{name}`$") as caught:
        take(wide(), name)
    assert caught.value.hint == hint


def test_a_region_has_its_member_of_the_stretch_cluster() -> None:
    assert wide().list_in_region("west") == ("west-1", "stretch-west")


def make_labs(state: Path, labs: Sequence[str]) -> None:
    for name in labs:
        directory = state / "labs" / name
        directory.mkdir(parents=True)
        (directory / "lab.json").write_text("{}")


def test_where_there_are_several_labs_the_hint_says_how_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path))
    make_labs(tmp_path, ("acme", "other"))
    with pytest.raises(LabError, match=r"^there are several labs: acme, other$") as caught:
        heal()
    assert caught.value.hint == "name the one you mean, such as `--lab acme`"
    with pytest.raises(LabError) as caught:
        choose_lab(None, is_argument=True)
    assert caught.value.hint == "name the one you mean, such as `acme`"
