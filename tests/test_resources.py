"""What ships with vstream is inside the wheel, and is found when only the wheel is there."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vstream import resources

TEMPLATES = ROOT / "templates"
SCENARIOS = ROOT / "scenarios"
WHERE = "from vstream import resources; print(resources.templates())"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(directory), str(ROOT)], check=True, capture_output=True, cwd=directory)
    (built,) = directory.glob("vstream-*.whl")
    return built


def test_in_a_checkout_the_templates_are_those_at_its_top() -> None:
    assert resources.templates().resolve() == TEMPLATES


@pytest.mark.wheel
def test_the_wheel_holds_every_template_and_the_marker_for_type_checkers(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    templates = {path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*") if path.is_file()}
    assert {"server.conf.j2", "reports/verdict.css"} <= templates
    assert {f"vstream/_templates/{file}" for file in templates} | {"vstream/py.typed"} <= names


@pytest.mark.wheel
def test_the_wheel_holds_every_scenario_and_what_they_name(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {path.relative_to(SCENARIOS).as_posix() for path in SCENARIOS.rglob("*") if path.is_file()}
    assert "walkthrough.yaml" in files
    assert {f"vstream/_scenarios/{file}" for file in files} <= names


@pytest.mark.wheel
def test_an_installed_wheel_finds_its_own_templates(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    # -I: neither this checkout nor the working directory is on the path, nor is an installed vstream before it.
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {WHERE}"
    ran = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    directory = Path(ran.stdout.strip())
    assert directory == tmp_path / "vstream" / "_templates"
    assert (directory / "mappings.cfg.j2").read_bytes() == (TEMPLATES / "mappings.cfg.j2").read_bytes()


@pytest.mark.wheel
def test_an_installed_wheel_explains_a_rule_with_its_example(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    command = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from vstream.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-I", "-c", command, "lint", "--explain", "VS303"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "## Example" in done.stdout
    assert "## Use instead" in done.stdout
