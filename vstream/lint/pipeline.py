"""
`lint`: what was asked for → what was found, what is corrected, and the new baseline. Reads files, and writes none.

`make_job` adds to a `LintRequest`, the command line, the settings of the directory: a `LintJob`. The caller reads the
`TopologyInputs` that it names. With both, `check_files` reads the files, lets a `Linter` check them, again after each
round of corrections, and returns a `LintOutcome`. One check is `engine.lint`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vstream.errors import VstreamError
from vstream.findings import Severity
from vstream.lint.baseline import Baseline
from vstream.lint.checked_files import LintContext
from vstream.lint.corrections import diff_texts
from vstream.lint.input_files import Roots, list_files, read_included, read_sources
from vstream.lint.linter import CheckResult, Linter
from vstream.lint.parse_files import Source
from vstream.lint.selection import FilePatterns, known_codes, parse_selectors
from vstream.lint.settings import (
    CONFIG_FILES,
    DirectorySettings,
    anchor_at,
    common_directory,
    find_settings,
    load_baseline,
    read_environment,
)
from vstream.lint.settings_file import LintSettings
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.topology.model import ServerVersion, Topology


@value_class
class LintRequest:
    """What was asked for, which counts more than the settings."""

    files: Sequence[str]
    topology: Path | None = None
    uses_topology_of_settings: bool = True
    """Whether to check against the topology that the settings name, if none was named."""
    server_version: str | None = None
    against: Path | None = None
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    extend_select: Sequence[str] = ()
    exclude: Sequence[str] = ()
    force_exclude: bool = False
    fail_on: Severity | None = None
    env: Sequence[str] = ()
    env_file: Sequence[Path] = ()
    allow_outside: bool = False
    baseline: Path | None = None
    write_baseline: bool = False
    fix: bool = False
    """Whether to correct what can be: *diff* is for showing that alone."""
    diff: bool = False

    @property
    def names(self) -> Sequence[str]:
        """The files and directories that are checked."""
        return self.files or (["."] if self.topology is None else [str(self.topology)])

    @property
    def running_names(self) -> Sequence[str]:
        """What the servers run with now."""
        return [] if self.against is None else [str(self.against)]

    @property
    def settings_files(self) -> list[str]:
        """The files beside those that are checked on which a run depends in any case."""
        return [*CONFIG_FILES, *map(str, self.env_file)]


@value_class
class LintJob:
    """What was asked for, completed by the settings of the directory that has all files in it."""

    request: LintRequest
    directory: DirectorySettings
    settings: LintSettings
    """Those of the directory, with what was asked for."""
    topology: Path | None
    baseline: Path | None
    roots: Roots | None
    """The directories that files may lie in; None for all."""

    @property
    def other_files(self) -> list[str]:
        """The files beside those that are checked, as far as they are known before these are read."""
        named = [str(path) for path in (self.topology, self.baseline) if path]
        return [*self.request.settings_files, *named, *list_files(self.request.running_names)]


@value_class
class TopologyInputs:
    """What belongs to topologies: the one that other files are checked against, and what each is rendered with."""

    topology: Topology | None = None
    server_version: ServerVersion | None = None
    overlays: Mapping[str, bytes] = field(default_factory=dict)
    templates: Path | None = None


@value_class
class LintOutcome:
    """What a run has found; nothing is written yet."""

    result: CheckResult
    """What is left, once what is *corrected* is written."""
    is_failed: bool
    """Whether everything could be read, and the answer is no: of *diff*, where something would change."""
    corrected: Mapping[str, str]
    """The new texts of files that change, by name."""
    changes: Sequence[str]
    """Their differences, as lines."""
    baseline: Baseline | None
    """The new one, if it is to be written."""
    files_read: Sequence[str]
    has_nothing_to_check: bool


def make_job(request: LintRequest) -> LintJob:
    """What *request* means where it is made. Raises VstreamError."""
    directory = find_settings(common_directory(request.names))
    settings = _override(directory.settings, request)
    baseline = request.baseline or (directory.path(settings.baseline) if settings.baseline else None)
    if request.write_baseline and not baseline:
        raise VstreamError("`--write-baseline` needs to know the file", hint="add `--baseline FILE`")
    topology = request.topology
    if topology is None and settings.topology and request.uses_topology_of_settings:
        topology = directory.path(settings.topology)
    topology_names = [str(topology)] if topology else []
    roots = None if request.allow_outside else Roots([*request.names, *topology_names, *request.running_names])
    return LintJob(
        request=request, directory=directory, settings=settings, topology=topology, baseline=baseline, roots=roots
    )


def _override(settings: LintSettings, request: LintRequest) -> LintSettings:
    """*settings* with what was asked for. Raises VstreamError."""
    codes = known_codes()
    selected, ignored, added = (
        parse_selectors(words, codes) for words in (request.select, request.ignore, request.extend_select)
    )
    selection = settings.selection
    # What is asked for on the command line counts more than what the settings ignore.
    asked_for = {*selected, *added}
    selection = replace(
        selection,
        select=selected or selection.select,
        ignore=(*(word for word in selection.ignore if not (selected or word in asked_for)), *ignored),
        extend_select=(*(() if selected else selection.extend_select), *added),
    )
    exclude = settings.exclude
    if request.exclude:
        anchor = exclude.anchor if exclude.patterns else anchor_at(Path.cwd())
        exclude = FilePatterns(patterns=(*exclude.patterns, *request.exclude), anchor=anchor)
    return replace(
        settings,
        selection=selection,
        exclude=exclude,
        fail_on=request.fail_on or settings.fail_on,
        server_version=request.server_version or settings.server_version,
    )


def make_linter(job: LintJob, inputs: TopologyInputs) -> Linter:
    """What decides which findings the files of *job* get. Raises VstreamError."""
    request, roots, settings = job.request, job.roots, job.settings
    env_files = [*map(job.directory.path, settings.env_files), *request.env_file]
    may_be_missing = request.write_baseline
    running = list(read_sources(request.running_names, roots=roots))
    if request.against is not None and not running:
        raise VstreamError(
            f"there is nothing to compare with in {request.against}",
            hint="name the configuration that servers run with, or its directory",
        )
    return Linter(
        settings=settings,
        context=LintContext(
            read=read_included if roots is None else roots.read,
            env=read_environment([*settings.env, *request.env], env_files),
            overlays=inputs.overlays,
            templates=inputs.templates,
            is_directory=os.path.isdir,
        ),
        topology=inputs.topology,
        server_version=inputs.server_version,
        baseline=load_baseline(job.baseline, may_be_missing=may_be_missing) if job.baseline else None,
        running=running,
    )


def check_files(job: LintJob, inputs: TopologyInputs) -> LintOutcome:
    """Check the files of *job*, correct them and take a new baseline as it asks for. Raises VstreamError."""
    request = job.request
    linter = make_linter(job, inputs)
    sources = list(
        read_sources(request.names, roots=job.roots, exclude=job.settings.exclude, excludes_named=request.force_exclude)
    )
    result = linter.check(sources)
    texts = result.report.texts
    files_read = [*result.before_baseline.texts]
    corrected: Mapping[str, str] = {}
    if request.fix or request.diff:
        result, corrected = linter.fix(sources, result)
    baseline = None
    if request.write_baseline and job.baseline:
        baseline = linter.update_baseline(result.before_baseline, anchor_at(job.baseline.parent))
        result = result.without(baseline)
    return LintOutcome(
        result=result,
        is_failed=result.is_complete and bool(corrected) if request.diff else result.is_failed,
        corrected=corrected,
        changes=[*diff_texts(texts, corrected)],
        baseline=baseline,
        files_read=files_read,
        has_nothing_to_check=not sources or not _has_something_to_check(sources, result),
    )


def _has_something_to_check(sources: Iterable[Source], result: CheckResult) -> bool:
    return bool(result.report.files or result.report.findings) or any(source.is_named for source in sources)
