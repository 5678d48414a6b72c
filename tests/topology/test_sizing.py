"""Sizes are worked out by hand here; drawings are whole, and the same each time."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.command import vstream
from tests.support.paths import ROOT
from vstream.cli.views import graph
from vstream.lint import check_topology
from vstream.topology.sizing import Load, Sizing, estimate_size

EXAMPLES = ROOT / "examples"
TEXT = """\
version: 1
name: sized
server_version: "2.12"
regions: {{west: {{servers: 1}}, central: {{servers: 1}}, east: {{servers: 1}}}}
jetstream: {{max_file: {room}}}
streams:
  foo: {{subjects: [foo.>], write: {{max_age: 1h{write}}}, read: {{max_age: 2h}}}}
"""


def size_topology(load_: Load, *, room: str = "10GB", write: str = "") -> Sizing:
    topology = check_topology.check_topology(TEXT.format(room=room, write=write).encode(), "sized.yaml").require()
    return estimate_size(topology, {"foo": load_})


def test_sizes_and_traffic_of_a_virtual_stream_follow_from_its_load() -> None:
    sizing = size_topology(Load(rate=100, size=930))
    (foo,) = sizing.streams
    # 930 bytes, 30 of the record, 40 of the subject; read streams also the header that names the origin.
    by_name = {part.stream: part for part in foo.parts}
    assert by_name["foo-write-west"].bytes == 1000 * 100 * 3600
    assert by_name["foo-read-west"].bytes == 1120 * 300 * 7200
    assert foo.outage == 3600
    # Each of three regions sends 100 messages of 930 + 40 + 120 bytes to two others.
    assert foo.crossing == 3 * 2 * 100 * 1090 * 8
    assert [place.bytes for place in sizing.places] == [1000 * 100 * 3600 + 1120 * 300 * 7200] * 3
    assert sizing.fits
    assert (sizing.rules, sizing.sources) == (9, 9)


def test_the_first_limit_ends_the_outage() -> None:
    assert size_topology(Load(rate=100, size=930), write=", max_bytes: 100MB").streams[0].outage == 1000
    assert size_topology(Load(rate=100, size=930), write=", max_msgs: 6000").streams[0].outage == 60
    assert size_topology(Load(rate=0, size=930)).places[0].bytes == 0


def test_a_place_with_too_little_room_does_not_fit() -> None:
    assert not size_topology(Load(rate=100, size=930), room="1GB").fits


@pytest.mark.parametrize(("room", "fits", "code"), [("10GB", True, 0), ("1GB", None, 3), ("100MB", False, 1)])
def test_where_subjects_decide_figures_are_at_most(room: str, fits: bool | None, code: int, tmp_path: Path) -> None:
    """360 MB are certain; how much less than 2.4 GB it is in the read stream, nobody knows."""
    file = tmp_path / "sized.yaml"
    file.write_text(TEXT.format(room=room, write="").replace("2h", "2h, max_msgs_per_subject: 5"))
    ran = vstream("size", file, "--rate", "100/s", "--size", "930B", "--format", "json")
    assert ran.code == code, ran.err
    assert {(place["bytes_at_least"], place["fits"]) for place in ran.json()["places"]} == {(360_000_000, fits)}
    assert ran.json()["fits"] is fits
    shown = vstream("size", file).out
    assert shown.count("at most") == 1 + 3
    file.write_text(file.read_text().replace("2h", "unlimited"))
    endless = vstream("size", file).out
    assert ("by subjects" in endless, "at most 29 GiB a day" in endless) == (True, True), endless


def test_size_says_what_a_topology_needs(tmp_path: Path) -> None:
    file = tmp_path / "sized.yaml"
    file.write_text(TEXT.format(room="1GB", write=""))
    small = vstream("size", file, "--rate", "60/min", "--size", "1KiB", "--format", "json")
    assert small.code == 0, small.err
    assert small.json()["streams"][0]["rate_per_region"] == 1
    big = vstream("size", file, "--rate", "1/s", "--rate", "foo=50000/s")
    assert big.code == 1
    assert "too little" in big.out
    last = [line.split(":")[0] for line in big.out.splitlines()[-3:]]
    assert last == ["between regions 2.84 Gbit/s", "9 mapping rules", "9 sources"], big.out
    for wrong in (["--rate", "fast"], ["--rate", "bar=1/s"], ["--size", "1K"], ["--format", "xml"]):
        ran = vstream("size", file, *wrong)
        assert ran.code == 2, wrong


@pytest.mark.parametrize("name", ["consistency", "five-regions", "three-regions", "single-region"])
def test_drawings_are_complete_and_the_same_each_time(name: str) -> None:
    topology = check_topology.check_topology((EXAMPLES / f"{name}.yaml").read_bytes(), name).require()
    picture = graph.draw_svg(topology, topology.streams)
    root = ET.fromstring(picture)
    texts = {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(box.attrib.get("x", 0)) + float(box.attrib["width"]) <= width
        assert float(box.attrib.get("y", 0)) + float(box.attrib["height"]) <= height
    chart = graph.draw_mermaid(topology, topology.streams)
    assert chart.startswith("flowchart LR\n")
    assert chart.count("subgraph") == chart.count("\n  end\n")
    for stream in topology.streams:
        for region in stream.regions:
            assert f"publish {stream.name} in {region}" in texts
            assert f"publish {stream.name} in {region}" in chart
        if stream.write_settings:
            assert f"{stream.name}-write-{stream.regions[0]}" in texts
            assert f'["{stream.name}-write-{stream.regions[0]}"]' in chart
    assert picture == graph.draw_svg(topology, topology.streams)


def test_links_are_drawn_with_what_they_carry() -> None:
    text = (EXAMPLES / "three-regions.yaml").read_text() + "links: {west-east: {rtt: 140ms, rate: 200mbit}}\n"
    topology = check_topology.check_topology(text.encode(), "linked").require()
    assert "140 ms · 200 Mbit/s</text>" in graph.draw_svg(topology, topology.streams)
    (link,) = graph.as_dict(topology, topology.streams)["links"]
    assert link == {"between": ["west", "east"], "rtt_ms": 140, "rate": 200_000_000}


def test_the_drawing_command() -> None:
    file = EXAMPLES / "consistency.yaml"
    ran = vstream("graph", file, "-s", "stock")
    assert ran.code == 0, ran.err
    assert "stock-read-west" in ran.out
    assert "ledger" not in ran.out
    assert vstream("graph", file, "--format", "svg").out.startswith("<svg ")
    assert vstream("graph", file, "-s", "nobody").code == 2
    drawn = vstream("graph", file, "-s", "stock", "--format", "json").json()
    assert {"stream": "stock-read-west", "virtual": "stock", "role": "read", "place": "west"} in drawn["streams"]
    assert {stream["virtual"] for stream in drawn["streams"]} == {"stock"}
    fed = {feed["reader"] for feed in drawn["replication"]}
    assert fed == {stream["stream"] for stream in drawn["streams"] if stream["role"] == "read"}
    written = {stream["stream"] for stream in drawn["streams"]} - fed
    assert {publish["into"] for publish in drawn["publishes"]} == written
