"""What `vstream audit` takes for what it is given, before Spark is started for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vstream.audit.connector.values import ABSENT, ReadSnapshot, StreamRef
from vstream.audit.extract.extract_plan import require_readable
from vstream.audit.request import AuditedTables, AuditRequest, NamedTarget, reserve_outputs, uri_of
from vstream.cli.app import run
from vstream.cli.audit import find_target
from vstream.errors import NotReachableError, VstreamError

WANTED = AuditRequest()
EXCLUDED = """
acme.yaml --publish-as delta | --publish-as | needs --publish
acme.yaml --master local --remote sc://host | --remote | not both
tables --follow | --follow | only a topology
acme.yaml --follow --master local | --follow | this machine
acme.yaml --follow --tables t | --follow | `--tables`
acme.yaml --follow --sample 1 | --follow | `--sample`
acme.yaml --follow --publish p | --follow | `--publish`
acme.yaml --follow --format junit | --follow | junit`
tables --state kept | --state | only for a topology
acme.yaml --state kept --remote sc://host | --state | this machine
acme.yaml --state kept --since 1h | --state | holds everything
acme.yaml --state kept -s foo | --state | holds everything
tables --since 1h | --since | only for a topology
tables --sample 1 | --sample | only for a topology
acme.yaml --from judge | --from | tables of an earlier audit
tables -s foo --tables tables | --tables | a subset
"""
"""Arguments, the option that is refused for them, and part of the reason."""


def test_a_directory_with_nothing_of_an_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VstreamError, match="contains neither a capture nor tables") as refused:
        find_target(NamedTarget.at(str(tmp_path)), WANTED)
    assert "--tables" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("errors", "said", "hint"),
    [
        ([ABSENT, ABSENT], "none of the 2 streams exist", "`vstream apply` creates them"),
        (["no answer", ABSENT], "no stream can be read: no answer", "are the servers running"),
        (["certificate verify failed: expired", ABSENT], "verify failed", "the certificate must name the host"),
    ],
)
def test_why_nothing_can_be_read_is_said(errors: list[str], said: str, hint: str) -> None:
    stream_ref = StreamRef(stream="w", region="west", virtual="foo", role="write")
    snapshots = [ReadSnapshot(stream_ref=stream_ref, snapshot_ns=1, error=error) for error in errors]
    with pytest.raises(NotReachableError, match=said) as refused:
        require_readable(snapshots)
    assert hint in str(refused.value.hint)
    with_readable = [*snapshots, ReadSnapshot(stream_ref=stream_ref, snapshot_ns=1)]
    assert require_readable(with_readable) == with_readable


def test_everything_that_opens_no_connection_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    connect = ", ".join(
        f"{region}: {{urls: 'tls://10.255.255.1', creds: {region}.creds}}" for region in ("west", "east")
    )
    regions = "west: {servers: 1}, east: {servers: 1}"
    file.write_text(f'version: 1\nname: acme\nserver_version: "2.12"\nregions: {{{regions}}}\nconnect: {{{connect}}}\n')
    with pytest.raises(
        VstreamError, match=r"`west`: .* west.creds does not exist; .*`east`: .* east.creds does not exist"
    ):
        find_target(NamedTarget.at(str(file)), WANTED)


def test_tables_are_not_written_where_something_else_is(tmp_path: Path) -> None:
    """`streams` is also what captures and rendered configurations call a directory."""
    capture, file, tables = tmp_path / "capture", tmp_path / "file", tmp_path / "own"
    (capture / "streams").mkdir(parents=True)
    file.touch()
    for place in (capture, file):
        with pytest.raises(VstreamError, match=f"`{place}` is not"):
            find_target(NamedTarget.at("s3a://audits/a"), replace(WANTED, tables_uri=uri_of(str(place))))
    (tables / "state").mkdir(parents=True)
    (tables / "state" / "part-00000.json").touch()
    for name in (str(tables), str(tmp_path / "new"), "s3a://audits/b/"):
        assert find_target(NamedTarget.at("s3a://audits/a"), replace(WANTED, tables_uri=uri_of(name))) == AuditedTables(
            uri="s3a://audits/a"
        )
    assert uri_of("s3a://audits/b/") == "s3a://audits/b"


def test_where_nothing_can_be_written_is_said_before_anything_is_read(tmp_path: Path) -> None:
    file, new = tmp_path / "file", tmp_path / "new" / "place"
    file.touch()
    for tables, html in ((uri_of(f"{file}/tables"), None), (None, file / "audit.html"), (None, file / "a" / "b.html")):
        message = f"cannot write files in {file}.*: (File exists|Not a directory)"
        with pytest.raises(VstreamError, match=message) as refused, reserve_outputs(tables, html):
            pass
        assert refused.value.hint == "name a directory that you may write to"
    with reserve_outputs(uri_of(str(new)), tmp_path / "pages" / "audit.html"):
        assert not any(new.iterdir())
    with reserve_outputs("s3a://audits/a", Path("/dev/stdout")), reserve_outputs("s3a://audits/a", None):
        pass


def test_two_audits_do_not_write_their_tables_over_each_other(tmp_path: Path) -> None:
    uri = uri_of(str(tmp_path / "one"))
    with reserve_outputs(uri, None):
        with pytest.raises(VstreamError, match="another audit is writing to"), reserve_outputs(uri, None):
            pass
        with reserve_outputs(uri_of(str(tmp_path / "other")), None):
            pass
    with reserve_outputs(uri, None):
        pass


def test_tables_are_taken_here_and_wherever_spark_can_read(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    assert find_target(NamedTarget.at(str(tmp_path)), WANTED) == AuditedTables(uri=uri_of(str(tmp_path)))
    assert find_target(NamedTarget.at("s3a://audits/2026-11-20"), WANTED) == AuditedTables(
        uri="s3a://audits/2026-11-20"
    )


@pytest.mark.parametrize(
    ("routing", "step", "way_out"),
    [("mapped", "moves_to: accounts", "remove `moves_to`"), ("accounts", "moves_from: mapped", "`--since`")],
)
def test_a_topology_in_the_midst_of_a_move_is_refused(tmp_path: Path, routing: str, step: str, way_out: str) -> None:
    """Its new streams source the old ones: of all messages the audit would say that they come from nowhere."""
    topology = tmp_path / "acme.yaml"
    topology.write_text(
        f'version: 1\nname: acme\nserver_version: "2.12"\nrouting: {routing}\naccount: ACME\n{step}\n'
        "regions: {west: {servers: 1}, east: {servers: 1}}\nstreams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"
    )
    with pytest.raises(VstreamError, match="this topology moves") as refused:
        find_target(NamedTarget.at(str(topology)), WANTED)
    assert way_out in str(refused.value.hint)


@pytest.mark.parametrize("row", EXCLUDED.strip().splitlines())
def test_options_that_exclude_each_other_are_refused(
    row: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, option, problem = row.split(" | ")
    (here / "tables").mkdir()
    monkeypatch.setattr("sys.argv", ["vstream", "audit", *words.split()])
    with pytest.raises(SystemExit) as ended:
        run()
    printed = " ".join(capsys.readouterr().err.split())
    assert (ended.value.code, option in printed, problem in printed) == (2, True, True), printed
