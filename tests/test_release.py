"""What is released can be built again, and nothing that it runs with moves by itself."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support.command import environment
from tests.support.paths import ROOT

WORKFLOWS = sorted((*ROOT.glob(".github/**/*.yml"), *ROOT.glob("examples/ci/*.yml")))
USES = re.compile(r"^\s*(?:- )?uses: (\S+)", re.MULTILINE)


@pytest.mark.wheel
def test_the_same_commit_gives_the_same_wheel(tmp_path: Path) -> None:
    digests = set()
    for umask in (0o022, 0o077):
        directory = tmp_path / oct(umask)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
            cwd=ROOT,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1800000000"},
            umask=umask,
            check=True,
            capture_output=True,
        )
        (wheel,) = directory.glob("*.whl")
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_every_dependency_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(requirement for group in optional for requirement in group)]
    assert [text for text in requirements if "<" not in text and not text.startswith("vstream[")] == []


def test_actions_are_pinned_by_commit_and_install_pinned_versions() -> None:
    files = [ROOT / "action.yml", ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *WORKFLOWS]
    used = {use for file in files for use in USES.findall(file.read_text()) if not use.startswith("./")}
    assert used
    assert [use for use in used if re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use) is None] == []
    assert "--constraint" in (ROOT / "action.yml").read_text()


def test_workflows_and_examples_are_yaml_and_run_scripts_that_exist() -> None:
    assert {"tests.yml", "docs.yml", "release.yml", "github-plan.yml", "gitlab-plan.yml"} < {
        file.name for file in WORKFLOWS
    }
    for file in WORKFLOWS:
        assert isinstance(yaml.safe_load(file.read_text()), dict)
        for script in re.findall(r"\bscripts/[\w-]+", file.read_text()):
            assert (ROOT / script).is_file(), f"{file.name}: {script}"


FORM_KEYS = {"label", "description", "placeholder", "render", "value"}
"""Of GitHub's issue forms. A comma in a text without quotes begins the next key: GitHub refuses the form then."""


def test_issue_forms_have_no_keys_that_github_does_not_know() -> None:
    forms = [path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.stem != "config"]
    fields = [field for path in forms for field in yaml.safe_load(path.read_text())["body"]]
    assert len(fields) > 8
    assert [field["attributes"] for field in fields if not field["attributes"].keys() <= FORM_KEYS] == []


def test_only_what_pypi_takes_is_uploaded(tmp_path: Path) -> None:
    """The manual pages are a `.tar.gz`, too, and no source distribution."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    (step,) = [step["run"] for step in jobs["pypi"]["steps"] if "run" in step]
    (tmp_path / "dist").mkdir()
    uploaded = ["vstream-0.1.0-py3-none-any.whl", "vstream-0.1.0.tar.gz"]
    for name in [*uploaded, "vstream-0.1.0-man.tar.gz", "vstream-0.1.0.cdx.json", "SHA256SUMS"]:
        (tmp_path / "dist" / name).touch()
    variables = {**os.environ, "GITHUB_REF_NAME": "v0.1.0"}
    subprocess.run(["bash", "-ec", step], cwd=tmp_path, env=variables, check=True)
    assert sorted(path.name for path in (tmp_path / "upload").iterdir()) == uploaded


def test_the_browser_of_ci_keeps_its_screenshots() -> None:
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]["browser"]["steps"]
    assert {"scripts/browser"} < {step.get("run") for step in steps}
    assert steps[-1]["with"]["path"] == "build/browser"


def test_the_container_is_built_from_files_that_exist() -> None:
    sources = re.findall(r"^COPY ((?:[\w./]+ )+)[\w./]+$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert sources
    assert [source for line in sources for source in line.split() if not (ROOT / source).exists()] == []


def test_no_placeholder_is_left() -> None:
    texts = [*WORKFLOWS, ROOT / "README.md", ROOT / "pyproject.toml", *(ROOT / "docs").rglob("*.md")]
    assert [file.name for file in texts if re.search(r"OWNER/|TODO|FIXME", file.read_text())] == []


@pytest.mark.lab
def test_an_installed_vstream_can_be_tried(tmp_path: Path) -> None:
    """`scripts/release` does it with one that is installed from the wheel alone."""
    tried = subprocess.run(
        [ROOT / "scripts" / "try-installed", Path(sys.executable).with_name("vstream")],
        env=environment({"TMPDIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "PASS" in tried.stdout
    assert list(tmp_path.iterdir()) == []
