"""`vstream validate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vstream.cli import options
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.finding_output import Format, default_format, print_cleaned_lines
from vstream.cli.lazy_group import load_late
from vstream.cli.lint_options import parse_version
from vstream.cli.views import console
from vstream.cli.views.lint import report_lines, summary_lines
from vstream.findings import Severity
from vstream.formatting import format_count, summarize_names
from vstream.lint import detect
from vstream.lint.input_files import read_included
from vstream.lint.parse_files import STDIN, Source
from vstream.lint.pipeline import LintRequest, TopologyInputs, make_job, make_linter
from vstream.syntax.yaml import MAX_BYTES
from vstream.topology.bundle import Bundle
from vstream.topology.model import Role
from vstream.topology.stream_limits import GROWTH_LIMITS, read_limit


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    templates: options.TemplatesDirectory = None,
    output_format: Format = None,
) -> None:
    """
    Check a topology file, and everything that it renders to; or a scenario file. Exits with 1 for errors and warnings.

    It is `vstream lint` of one file: the same rules, settings and exit codes.

    Examples: `vstream validate`, `vstream validate acme.yaml --format json`
    """
    content = options.read_bytes(file, limit=MAX_BYTES + 1)
    name = STDIN if str(file) == "-" else str(file)
    job = make_job(LintRequest(files=(name,), uses_topology_of_settings=False))
    inputs = TopologyInputs(
        server_version=parse_version(job.settings.server_version), overlays=options.read_overlays(), templates=templates
    )
    result = make_linter(job, inputs).check([_as_source(content, name)])
    report = result.report
    print_cleaned_lines(
        report_lines(
            report, output_format or default_format(), anchor=job.directory.top, docs_url=job.settings.docs_url
        )
    )
    if report.findings:
        for line in summary_lines(report, is_fixing=False):
            console.print_note(line)
    is_good = result.is_complete and not result.is_failed
    if not report.has_any(Severity.ERROR):
        _print_outline(content, name, report.bundles, "is valid" if is_good else "has warnings, no errors")
    exit_unless_yes(is_no=result.is_failed, is_unknown=not result.is_complete)


def _print_outline(content: bytes, name: str, bundles: Sequence[Bundle], verdict: str) -> None:
    """What a file without errors is about."""
    if bundles:
        bundle = bundles[0]
        console.print_note(
            f"{name} {verdict}: {format_count(len(bundle.servers), 'server')}, "
            f"{format_count(len(bundle.streams), 'physical stream')}, {format_count(len(bundle.mappings), 'mapping rule')}"
        )
        for note in _list_notes(bundle):
            console.print_note(note)
    else:
        # What reads scenarios takes long to import, and a topology does not need it.
        checked = load_late("vstream.lint.check_scenario").check_scenario(content, name, read_included)
        outline = load_late("vstream.cli.views.scenario").describe_scenario(checked.require())
        console.print_note(f"{name} {verdict}: {outline}")


def _list_notes(bundle: Bundle) -> Iterator[str]:
    """What is right, and perhaps not what was meant."""
    if not bundle.streams:
        yield "It has no streams: `vstream apply` creates nothing."
    endless = set()
    for stream in bundle.streams:
        is_limited = any(read_limit(stream.config.fields, name) for name in GROWTH_LIMITS)
        if stream.role is not Role.CATALOG and not is_limited:
            endless.add(stream.virtual)
    if endless:
        names = summarize_names(sorted(endless))
        yield f"Some streams of {names} have no limit: they grow until the disk is full (set `max_age` or `max_bytes`)."


def _as_source(content: bytes, name: str) -> Source:
    """The file as a topology or a scenario, whatever it is called: nothing else can be meant."""
    kind = detect.detect(content.decode("utf-8", errors="replace"), f"{name}.yaml")
    if kind is not detect.FileKind.SCENARIO:
        kind = detect.FileKind.TOPOLOGY
    return Source(name=name, content=content, kind=kind)
