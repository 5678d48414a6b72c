"""The list of public configurations, and what `scripts/lint_corpus.py` says of copies of them."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from scripts.lint_corpus import Configuration, Defect, judge, read_configurations, read_defects
from tests.support.paths import ROOT

SOUND = "server_name: a\nlisten: 127.0.0.1:4222\n"
DEFECTIVE = SOUND + 'mappings {\n  "a.*": "b.{{wildcard(1)}"\n}\n'
REFUSED = "no_such_option: 1\n"
DEFECT = Defect(repository="owner/two", path="nats.conf", line=4, column=10, code="VS308")


def write_configurations(directory: Path, texts: dict[str, str]) -> list[Configuration]:
    configurations = []
    for name, text in texts.items():
        configuration = Configuration(
            repository=f"owner/{name}", commit="0" * 40, path="nats.conf", sha256=sha256(text.encode()).hexdigest()
        )
        file = directory / configuration.copy
        file.parent.mkdir()
        file.write_text(text)
        configurations.append(configuration)
    return configurations


def test_the_list_has_two_hundred_different_files_of_many_repositories() -> None:
    configurations = read_configurations()
    assert len({configuration.sha256 for configuration in configurations}) == len(configurations) >= 200
    assert len({configuration.repository for configuration in configurations}) >= 50
    assert all(re.fullmatch("[0-9a-f]{40}", configuration.commit) for configuration in configurations)
    assert sorted(configurations, key=lambda file: (file.repository, file.commit, file.path)) == list(configurations)


def test_every_known_defect_is_in_a_listed_file_and_explained() -> None:
    places = {(configuration.repository, configuration.path) for configuration in read_configurations()}
    page = (ROOT / "docs/lint-corpus.md").read_text()
    for defect in read_defects():
        assert (defect.repository, defect.path) in places
        assert f"{defect.repository}` `{defect.path}` {defect.line}:{defect.column} {defect.code}" in page


@pytest.mark.server
def test_known_defects_pass_and_a_new_one_or_a_missing_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"one": SOUND, "two": DEFECTIVE} | {f"more-{number}": SOUND for number in range(20)}
    configurations = write_configurations(tmp_path, files)
    assert judge(configurations, frozenset({DEFECT}), tmp_path) == 0
    assert "1 of 22 accepted files end with 1" in capsys.readouterr().out
    assert judge(configurations, frozenset(), tmp_path) == 1
    assert f"new: {DEFECT}" in capsys.readouterr().out
    (tmp_path / configurations[1].copy).write_text(SOUND)
    assert judge(configurations, frozenset({DEFECT}), tmp_path) == 0  # a changed file is left out
    assert judge(write_configurations(tmp_path / "..", {}), frozenset(), tmp_path) == 0


@pytest.mark.server
def test_more_than_one_in_twenty_that_fails_is_too_many_and_few_files_say_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configurations = write_configurations(tmp_path, {"one": SOUND, "two": DEFECTIVE})
    assert judge(configurations, frozenset({DEFECT}), tmp_path) == 1
    refused = write_configurations(tmp_path, {"three": REFUSED})
    assert judge([*configurations, *refused], frozenset({DEFECT}), tmp_path) == 3
    assert "too few files" in capsys.readouterr().err
