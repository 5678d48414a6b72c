"""`vstream scenario verdict`: a capture alone is enough."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.captures import REGIONS, SECOND, History, Shape, clean
from tests.support.command import vstream
from vstream.capture.records import Window

SCENARIO = """\
scenario: 1
name: synthetic
topology: somewhere/else.yaml
steps:
  - wait: 1s
    as: calm
expect:
  - in: calm
    published: 100%
"""
TOPOLOGY = f"""\
version: 1
name: acme
server_version: "2.12"
regions: {{{", ".join(f"{region}: {{servers: 1}}" for region in REGIONS)}}}
streams: {{foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}}}
"""


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(clean(Shape(messages=20)), tmp_path / "run")


def write(history: History, path: Path) -> Path:
    history.windows.append(Window(name="calm", start=0, end=SECOND, action="wait 1s"))
    history.write(path)
    (path / "scenario.yaml").write_text(SCENARIO)
    (path / "topology.yaml").write_text(TOPOLOGY)
    return path


def test_a_clean_capture_passes(capture: Path) -> None:
    ran = vstream("scenario", "verdict", capture)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("✓ PASS synthetic")


def test_what_the_scenario_expects_is_judged(capture: Path) -> None:
    ran = vstream("scenario", "verdict", capture, "--format", "json")
    names = [case["name"] for case in ran.json()["cases"]]
    assert [f"foo: published in {region} during calm == 100 %" in names for region in REGIONS] == [True] * 3


def test_a_capture_with_a_loss_fails(tmp_path: Path) -> None:
    history = clean(Shape(messages=20))
    history.streams["foo-read-west"].pop()
    ran = vstream("scenario", "verdict", write(history, tmp_path), "--format", "junit")
    assert ran.code == 1
    assert ET.fromstring(ran.out).get("failures") == "1"


def test_an_incomplete_capture_is_unknown(capture: Path) -> None:
    shutil.rmtree(capture / "streams")
    ran = vstream("scenario", "verdict", capture)
    assert ran.code == 3
    assert ran.out.startswith("? UNKNOWN synthetic")


def test_without_a_scenario_safety_is_judged(capture: Path) -> None:
    (capture / "scenario.yaml").unlink()
    ran = vstream("scenario", "verdict", capture)
    assert ran.code == 0
    assert "only what must always hold" in ran.err


def test_a_scenario_that_cannot_be_understood_is_no_verdict(capture: Path) -> None:
    (capture / "scenario.yaml").write_text("scenario: 1\n")
    ran = vstream("scenario", "verdict", capture)
    assert (ran.code, ran.out) == (3, "")
    assert "the capture's scenario cannot be understood" in " ".join(ran.err.split())
    assert "scenario.yaml:1" in "".join(ran.err.split())


def test_a_directory_without_a_capture_is_one_clear_error(tmp_path: Path) -> None:
    ran = vstream("scenario", "verdict", tmp_path)
    assert ran.code == 3
    assert "is not a capture" in ran.err


def test_an_unknown_format_is_refused(capture: Path) -> None:
    assert vstream("scenario", "verdict", capture, "--format", "xml").code == 2
