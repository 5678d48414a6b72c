"""A scenario among the files: what is wrong with it. Imported late, by `late`."""

from __future__ import annotations

from vstream.lint.check_scenario import check_scenario
from vstream.lint.checked_files import CheckedFiles, Surroundings
from vstream.lint.gather import Source
from vstream.lint.suppress import find_yaml_comments
from vstream.syntax import yaml


def check_scenario_file(source: Source, surroundings: Surroundings) -> CheckedFiles:
    """What is wrong with a scenario, and with its topology."""
    checked = check_scenario(source.content, source.name, surroundings.read, surroundings.is_directory)
    document = yaml.parse(source.content, source.name)
    return CheckedFiles([*checked.findings], {**checked.texts}, [*find_yaml_comments(document)])
