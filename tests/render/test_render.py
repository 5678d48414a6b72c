"""Rendering: the same bytes each time, what is meant is what is read back, and broken templates say where."""

from __future__ import annotations

import json
import resource
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support import shapes
from tests.support.call_counts import count_calls
from tests.support.mappings import only_outcome
from tests.support.paths import TESTS
from tests.support.topologies import HEAD, REGIONS, many_streams
from vstream import resources
from vstream.errors import InvalidInputError
from vstream.findings import Severity
from vstream.lint.check_topology import check_topology
from vstream.render.environment import quote, to_json
from vstream.render.pipeline import render_bundle, render_streams
from vstream.render.server_view import default_addresses
from vstream.render.write_bundle import write_bundle
from vstream.servers.bundles import provide_bundle
from vstream.servers.find_servers import Servers
from vstream.subjects.algebra import matches
from vstream.subjects.resolve import OutcomeKind, compile_mappings
from vstream.subjects.transform import SubjectTransform
from vstream.syntax import natsconf
from vstream.topology import naming, physical
from vstream.topology.bundle import Artifact, Bundle
from vstream.topology.model import Role, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.profiles.mapped import READ_RULES

GOLDEN = TESTS / "golden"
TEMPLATES = resources.templates()
STREAMS = "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}, bar: {subjects: [bar.*], write: {max_age: 1h}}}\n"


def topology(text: str = HEAD + REGIONS + STREAMS) -> Topology:
    return check_topology(text.encode(), "t.yaml").require()


def render_text(text: str = HEAD + REGIONS + STREAMS, templates: Path | None = None) -> Bundle:
    return render_bundle(topology(text), templates=templates)


# -- the same input gives the same bytes -----------------------------------------------------------------------------


def test_two_renders_are_equal_to_the_byte() -> None:
    text = (GOLDEN / "awkward.yaml").read_text(encoding="utf-8")
    assert render_text(text).artifacts == render_text(text).artifacts


def test_a_bundle_that_is_only_compared_has_all_but_the_files_of_servers() -> None:
    servers = Servers(endpoints={}, lab=None, description="")
    whole, compared = (provide_bundle(topology(), servers, None, with_files=each) for each in (True, False))
    paths = {artifact.path for artifact in whole.artifacts} - {artifact.path for artifact in compared.artifacts}
    assert {path.partition("/")[0] for path in paths} == {"servers", "contexts"}
    assert replace(compared, artifacts=whole.artifacts) == whole
    # Whoever has templates of his own hears of what is wrong with any of them.
    assert provide_bundle(topology(), servers, TEMPLATES, with_files=False) == provide_bundle(
        topology(), servers, TEMPLATES
    )


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_vstreams_own_templates_write_the_same_as_copies_of_them(file: Path, tmp_path: Path) -> None:
    """Of its own, vstream renders and reads each shape of stream once; of a user's, every stream."""
    shutil.copytree(TEMPLATES, tmp_path / "templates")
    marked = r'streams: {foo: {subjects: [foo.>], read: {description: "\0name"}}, bar: {subjects: [é.>]}}' + "\n"
    for text in (file.read_text(encoding="utf-8"), HEAD + REGIONS + marked):
        topology = check_topology(text.encode(), "t.yaml").topology
        assert topology is not None
        # As texts, so that the order of fields and the types of values count.
        assert repr(render_bundle(topology)) == repr(render_bundle(topology, templates=tmp_path / "templates"))


def test_files_come_in_the_order_of_their_paths_and_each_once() -> None:
    paths = [artifact.path for artifact in render_text().artifacts]
    assert paths == sorted(set(paths))


def test_a_bundle_means_what_its_files_say() -> None:
    bundle = render_text()
    assert [(stream.virtual, stream.region, stream.role) for stream in bundle.streams] == [
        (stream, region, role)
        for stream in ("foo", "bar")
        for region in ("west", "east")
        for role in (Role.WRITE, Role.READ)
    ]
    assert all(json.loads(bundle.text(stream.path)) == stream.config.fields for stream in bundle.streams)
    assert bundle.mappings == profile_of(topology()).list_all_mapping_rules(topology())
    assert bundle.streams[0].config.owner == "acme"


# -- user templates --------------------------------------------------------------------------------------------------


def override(directory: Path, template: str, text: str) -> Path:
    path = directory / template
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return directory


def change_template(template: str, old: str, new: str) -> str:
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


def test_a_file_of_the_users_templates_wins_and_the_others_stay(tmp_path: Path) -> None:
    text = change_template("mappings.cfg.j2", "# Subject mappings of", "# Ours:")
    ours, theirs = render_text(templates=override(tmp_path, "mappings.cfg.j2", text)), render_text()
    assert ours.text("mappings.cfg").startswith("# Ours: acme")
    assert ours.mappings == theirs.mappings
    assert ours.streams == theirs.streams


NAMED = (GOLDEN / "named.yaml").read_text(encoding="utf-8").replace("account: APP\n", "")
"""An order that carries the virtual name, whose rules lead nowhere where no region says better."""


@pytest.mark.parametrize(
    "spelled",
    [
        "{destination: << destination.subject | q >><% if destination.cluster %>, cluster: << destination.cluster | q >><% endif %>}",
        "<% if destination.cluster %>{dest: << destination.subject | q >>, cluster: << destination.cluster | q >>},<% else %><< destination.subject | q >>,<% endif %>",
    ],
)
def test_a_destination_for_everywhere_else_can_be_said_in_templates_of_the_users(tmp_path: Path, spelled: str) -> None:
    """And one that cannot be meant is refused: it would let publishes past the write streams."""
    (line,) = (
        splitline for splitline in change_template(MAPPINGS, "", "").splitlines() if "{destination: " in splitline
    )
    ours = render_text(NAMED, override(tmp_path, MAPPINGS, change_template(MAPPINGS, line, spelled)))
    assert ours.mappings == render_text(NAMED).mappings
    former = "{destination: << destination.subject | q >>, cluster: << destination.cluster | q >>}"
    with pytest.raises(InvalidInputError) as caught:
        render_text(NAMED, override(tmp_path, MAPPINGS, change_template(MAPPINGS, line, former)))
    assert [finding.message for finding in caught.value.findings] == [
        "the rule for `ledger.*` lacks the destination without a cluster"
    ]


WRITE, READ, MAPPINGS, SERVER, CONTEXT = (
    "streams/write.json.j2",
    "streams/read.json.j2",
    "mappings.cfg.j2",
    "server.conf.j2",
    "context.json.j2",
)


@pytest.mark.parametrize(
    ("template", "text", "code", "line", "message"),
    [
        (WRITE, change_template(WRITE, "<< name |", "<< nam |"), "VS201", 2, "template error: 'nam' is undefined"),
        (SERVER, "#\n#\n<< addres.host >>", "VS401", 3, "template error: 'addres' is undefined"),
        (READ, change_template(READ, "source.name", "source.nam"), "VS201", 8, "template error: 'dict object' has no attribute 'nam'"),
        (WRITE, "{\n<% for x in subjects %>\n}", "VS201", 3, ("template error: Unexpected end of template. Jinja was looking for the "
         "following tags: 'endfor' or 'else'. The innermost block that needs to be closed is 'for'.")),
        (WRITE, "\n\n<< name | jsn >>", "VS201", 3, "template error: No filter named 'jsn'."),
        (WRITE, "\n<< 1 / 0 >>", "VS201", 2, "template error: ZeroDivisionError: division by zero"),
        (MAPPINGS, '<% include "more.j2" %>', "VS301", 1, "template `more.j2` is missing"),
        (WRITE, "", "VS201", 1, "the output is not JSON: Expecting value (line 1 of the output)"),
        (WRITE, change_template(WRITE, "<< subjects | json >>,", "<< subjects | json >>"), "VS201", 1,
         "the output is not JSON: Expecting ',' delimiter (line 4 of the output)"),
        (WRITE, "[]", "VS201", 1, "the output is not a JSON object"),
        (WRITE, '{"name": NaN}', "VS201", 1, "the output is not JSON: `NaN` is not a JSON value"),
        (WRITE, change_template(WRITE, "<< name | json >>", '"x"'), "VS201", 1, "the stream `foo-write-west` comes out with the name `x`"),
        (WRITE, change_template(WRITE, "<< subjects | json >>", '"foo.>"'), "VS201", 1,
         "the stream `foo-write-west` needs `subjects`, a list of texts"),
        (READ, change_template(READ, '"sources"', '"source"'), "VS201", 1, "the stream `foo-read-west` needs `sources`, a list of objects"),
        (READ, change_template(READ, "<< metadata | json >>", "{}"), "VS201", 1,
         "the stream `foo-read-west` comes out without its metadata `vstream.topology`, by which vstream knows that it is its own"),
        (READ, change_template(READ, "<< metadata | json >>", "[1]"), "VS201", 1, "the stream `foo-read-west` needs `metadata`, a map of texts"),
        (MAPPINGS, change_template(MAPPINGS, "mappings = {", "maps = {"), "VS301", 1, "the output has no `mappings` block"),
        (MAPPINGS, change_template(MAPPINGS, "destination: << destination.subject | q >>,", ""), "VS301", 1,
         "the rule for `foo.>` has a destination without a subject"),
        (MAPPINGS, "mappings = {\n\n  a: [b\n", "VS301", 1, None),
        (SERVER, "listen = \n", "VS401", 1,
         "the output is not a NATS configuration: a value is missing before the end of the line (line 1 of the output)"),
        (CONTEXT, "{,}", "VS402", 1,
         "the output is not JSON: Expecting property name enclosed in double quotes (line 1 of the output)"),
    ],
)  # fmt: skip
def test_a_broken_template_gives_one_finding_with_its_name_and_line(
    tmp_path: Path, template: str, text: str, code: str, line: int, message: str | None
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        render_text(templates=override(tmp_path, template, text))
    (finding,) = caught.value.findings
    assert finding.span is not None
    assert (finding.code, finding.severity, finding.span.file, finding.span.line) == (
        code, Severity.ERROR, f"templates/{template}", line,
    )  # fmt: skip
    assert message in {finding.message, None}
    assert finding.hint
    # Who needs the streams alone is not told of the other templates.
    with pytest.raises(InvalidInputError) if code == "VS201" else nullcontext() as refused:
        assert tuple(render_streams(topology(), tmp_path)) == render_text().streams
    assert refused is None or refused.value.findings == (finding,)


@pytest.mark.parametrize(
    "attempt",
    [
        'cycler.__init__.__globals__.os.popen("touch " ~ mark).read()',
        "subjects.__class__.__mro__[1].__subclasses__()",
        "self._TemplateReference__context",
        '(name | attr("__class__")).__mro__',
        '"{0.__class__.__mro__}".format(name)',
        "metadata.update(a=1)",
    ],
)
def test_a_template_runs_no_code_and_changes_nothing(tmp_path: Path, attempt: str) -> None:
    mark = tmp_path / "mark"
    code = f"<% set mark = {json.dumps(str(mark))} %>\n<< {attempt} >>"
    with pytest.raises(InvalidInputError) as caught:
        render_text(templates=override(tmp_path, WRITE, code))
    (finding,) = caught.value.findings
    assert finding.message.startswith("template error: ")
    assert not mark.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bound the memory of a process")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("<% for a in range(99999) %><% for b in range(99999) %><% endfor %><% endfor %>", "TimeoutError: it runs for"),
        ("<% for a in range(99999) %><< 'x' * 99999 >><% endfor %>", "MemoryError: it takes too much memory"),
        ("<< 'x' * 9999999999 >>", "MemoryError: it takes too much memory"),
        ("<< '%9999999999d' | format(1) >>", "MemoryError: it takes too much memory"),
        ("<< 10 ** (10 ** 9) >>", "TypeError: `**` is not for templates"),
        ("<< 'x' * 99999999 >>", "ValueError: it writes more than 67,108,864 characters"),
    ],
)
def test_a_template_ends_and_leaves_memory_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setattr("vstream.render.environment._SECONDS", 0.5 if "Timeout" in message else 60)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(InvalidInputError) as caught:
        render_text(templates=override(tmp_path, WRITE, code))
    (finding,) = caught.value.findings
    assert finding.message.startswith(f"template error: {message}")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_no_template_is_a_link_out_of_its_repository(tmp_path: Path) -> None:
    """Who opens a pull request can make any template a link: to what lies in the home directory of a CI runner."""
    repository, secret = tmp_path / "repository", tmp_path / "secret"
    secret.write_text("hunter2\n")
    (repository / "mine").mkdir(parents=True)
    (repository / "mine/mappings.cfg.j2").symlink_to(secret)
    with pytest.raises(InvalidInputError) as caught:
        render_text(templates=repository / "mine")
    assert "hunter2" in caught.value.findings[0].message  # outside of a repository, who runs vstream made the link
    (repository / ".git").mkdir()
    with pytest.raises(InvalidInputError) as caught:
        render_text(templates=repository / "mine")
    (finding,) = caught.value.findings
    assert finding.message == f"template error: {repository}/mine/mappings.cfg.j2 is a link out of the repository"
    (repository / "shared.j2").write_text(change_template("mappings.cfg.j2", "# Subject mappings of", "# Ours:"))
    (repository / "mine/mappings.cfg.j2").unlink()
    (repository / "mine/mappings.cfg.j2").symlink_to("../shared.j2")
    assert render_text(templates=repository / "mine").text("mappings.cfg").startswith("# Ours: acme")


def test_a_template_that_is_no_text_or_no_file_is_a_finding_too(tmp_path: Path) -> None:
    (tmp_path / "mappings.cfg.j2").write_bytes(b"\xff")
    with pytest.raises(InvalidInputError, match="1 error"):
        render_text(templates=tmp_path)


# -- quoting ---------------------------------------------------------------------------------------------------------

awkward = st.text(st.sampled_from('"\\{}<>%#$ \n\t\r\x00\x1f\x7f\u2028\u00e9💡ax0(),;:=[]/')) | st.text()


@given(awkward)
def test_any_text_in_a_configuration_reads_back_equal(text: str) -> None:
    document = natsconf.parse(
        f"key: {quote(text)}\nnext: [{quote(text)}, {quote(text)}]\n", "t.conf", include=_no_files
    )
    assert document.findings == ()
    assert natsconf.to_python(document.root) == {"key": text, "next": [text, text]}


@given(awkward)
def test_any_text_in_json_reads_back_equal_on_one_line(text: str) -> None:
    assert json.loads(to_json({text: [text]})) == {text: [text]}
    assert "\n" not in to_json(text)


@given(awkward.filter(lambda text: text and "/" not in text), awkward)
@settings(max_examples=30)
def test_any_text_of_a_topology_reads_back_equal_from_its_files(directory: str, description: str) -> None:
    key = "".join(filter(str.isprintable, description))
    value = {
        "version": 1, "name": "acme", "server_version": "2.12", "regions": {"west": {"servers": 1}}, "jetstream": {"store_dir": directory},
        "streams": {"foo": {"subjects": "foo", "max_age": "1h", "description": description, "metadata": {key: directory}}},
    }  # fmt: skip
    bundle = render_bundle(check_topology(shapes.as_file(value), "t.yaml").require())
    assert bundle.streams[0].config.fields["description"] == description
    assert bundle.streams[0].config.metadata[key] == directory
    conf = natsconf.parse(bundle.text("servers/west-1.conf"), "t.conf", include=lambda path, _: (path, "")).root
    assert natsconf.to_python(conf)["jetstream"]["store_dir"] == f"{directory}/west-1"  # type: ignore[call-overload, index]


def _no_files(path: str, _: str) -> tuple[str, str]:
    raise AssertionError(path)


# -- mappings --------------------------------------------------------------------------------------------------------

tokens = st.sampled_from(["a", "b", "west", "east", "foo", "_vs", "$x", "{b}", "größe", "x-1", "0", "_canary"])
roots = st.sampled_from(["foo", "bar", "west", "a", "CONSUMER", "$y", "größe"])
patterns = st.tuples(roots, st.lists(tokens | st.sampled_from(["*"]), max_size=3), st.sampled_from(["", ".>"])).map(
    lambda parts: ".".join([parts[0], *parts[1]]) + parts[2]
)
WORDS = [
    "ACCOUNT", "API", "CONSUMER", "CREATE", "DELETE", "DIRECT", "DURABLE", "GET", "INFO", "LEADER", "LIST", "META", "MIGRATE", "MSG", "NAMES",
    "NEXT", "PAUSE", "PEER", "PURGE", "REMOVE", "RESET", "RESTORE", "SERVER", "SNAPSHOT", "STEPDOWN", "STREAM", "TEMPLATE", "UNPIN", "UPDATE",
]  # fmt: skip
worlds = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "name": st.just("acme"),
        "server_version": st.just("2.12"),
        "naming": st.sampled_from(["isolated", "blog"]),
        "regions": st.sampled_from(
            [{"west": {"servers": 1}}, {"west": {"servers": 1}, "east": {"servers": 1, "cluster": "c1"}}]
        ),
        "defaults": st.just({"max_age": "1h"}),
        "streams": st.dictionaries(
            st.sampled_from(["foo", "foo-read", "_", "0", *WORDS]),
            st.lists(patterns, min_size=1, max_size=3, unique=True).map(lambda subjects: {"subjects": subjects}),
            min_size=1,
            max_size=3,
        ),
    }
)


def literal(pattern: str, data: st.DataObject) -> str:
    """A subject that a client can publish on and that *pattern* matches."""
    more = st.lists(tokens, min_size=1, max_size=3).map(".".join)
    drawn = [
        data.draw(tokens) if token == "*" else data.draw(more) if token == ">" else token
        for token in pattern.split(".")
    ]
    return ".".join(drawn)


@given(worlds, st.data())
def test_a_subject_that_is_mapped_and_then_read_is_the_subject_that_was_published(
    world: dict[str, Any], data: st.DataObject
) -> None:
    loaded = check_topology(shapes.as_file(world), "t.yaml")
    assume(not any(finding.is_error for finding in loaded.findings))
    topology = loaded.require()
    table = compile_mappings(profile_of(topology).list_all_mapping_rules(topology))
    for stream in topology.streams:
        for pattern in stream.subjects:
            subject = literal(pattern, data)
            for region in stream.regions:
                outcome = only_outcome(table.resolve(subject, topology.region(region).cluster))
                assert outcome is not None
                assert outcome.kind is OutcomeKind.MAPPED
                stored_in = [
                    (stream.name, place)
                    for stream in topology.streams
                    for place in stream.regions
                    if any(
                        matches(outcome.subject, write_subject)
                        for write_subject in physical.write_subjects(topology, stream, place)
                    )
                ]
                assert stored_in == [(stream.name, region)]
                pairs = physical.source_transforms(topology, stream, region)
                transforms = [SubjectTransform.parse(source, destination) for source, destination in pairs]
                read = [
                    transform.apply(outcome.subject)
                    for transform in transforms
                    if isinstance(transform, SubjectTransform)
                ]
                assert len(read) == len(pairs)
                assert [published for published in read if published is not None] == [subject]


@given(worlds)
def test_the_mappings_of_a_valid_topology_never_overlap_and_the_server_takes_them_all(world: dict[str, Any]) -> None:
    loaded = check_topology(shapes.as_file(world), "t.yaml")
    assume(not any(finding.is_error for finding in loaded.findings))
    table = compile_mappings(profile_of(loaded.require()).list_all_mapping_rules(loaded.require()))
    assert list(table.overlapping()) == []
    assert table.errors == ()
    assert table.overridden == ()


API_OF_ANOTHER_STREAM = [
    "CONSUMER.CREATE.other", "CONSUMER.CREATE.other.c", "CONSUMER.CREATE.other.c.a.b", "CONSUMER.DURABLE.CREATE.other.c",
    "CONSUMER.NAMES.other", "CONSUMER.LIST.other", "CONSUMER.INFO.other.c", "CONSUMER.DELETE.other.c", "CONSUMER.PAUSE.other.c",
    "CONSUMER.RESET.other.c", "CONSUMER.UNPIN.other.c", "CONSUMER.MSG.NEXT.other.c", "CONSUMER.LEADER.STEPDOWN.other.c",
    "STREAM.CREATE.other", "STREAM.UPDATE.other", "STREAM.INFO.other", "STREAM.DELETE.other", "STREAM.PURGE.other", "STREAM.SNAPSHOT.other",
    "STREAM.RESTORE.other", "STREAM.MSG.GET.other", "STREAM.MSG.DELETE.other", "STREAM.LEADER.STEPDOWN.other", "STREAM.PEER.REMOVE.other",
    "STREAM.NAMES", "STREAM.LIST", "DIRECT.GET.other", "DIRECT.GET.other.a.b", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "INFO",
]  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_a_stream_whose_name_is_allowed_takes_no_request_about_another(name: str) -> None:
    rules = [source.replace("<stream>", name) for source, _ in READ_RULES]
    requests = [
        request for request in API_OF_ANOTHER_STREAM if any(matches(f"$JS.API.{request}", rule) for rule in rules)
    ]
    assert requests == [] or name in naming.RESERVED_NAMES


# -- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1,), (3, 3, 3), (10, 10), (11, 3, 40), (99,) * 47, (1,) * 469])
def test_servers_without_hosts_have_ports_of_their_own_below_the_ephemeral_ones(sizes: tuple[int, ...]) -> None:
    regions = ", ".join(f"r{number}: {{servers: {size}}}" for number, size in enumerate(sizes))
    addresses = default_addresses(topology(f"{HEAD}regions: {{{regions}}}\n"))
    ports = [
        port for address in addresses for port in (address.client, address.monitor, address.cluster, address.gateway)
    ]
    assert len(set(ports)) == len(ports) == 4 * sum(sizes)
    assert min(ports) == 14000
    assert max(ports) < 32768


def test_a_growing_region_keeps_the_ports_of_the_others() -> None:
    small, large = (
        default_addresses(topology(f"{HEAD}regions: {{west: {{servers: {count}}}, east: {{servers: 3}}}}\n"))
        for count in (1, 10)
    )
    assert [address.client for address in small if address.region == "east"] == [
        address.client for address in large if address.region == "east"
    ]


def test_servers_with_hosts_listen_there_on_the_ports_of_their_region() -> None:
    text = f"{HEAD}security: {{transport: {{none: test}}, users: elsewhere}}\nregions: {{west: {{servers: [w1, '[::1]'], ports: {{client: 4333}}, jetstream: {{store_dir: /data/}}}}}}\n"
    first, second = default_addresses(topology(text))
    assert (first.host, first.client, first.monitor, first.store_dir) == ("w1", 4333, 8222, "/data/west-1")
    assert second.host == "[::1]"


def test_a_region_that_has_a_context_already_gets_none() -> None:
    paths = {artifact.path for artifact in render_text(HEAD + REGIONS + "connect: {west: {context: sc}}\n").artifacts}
    assert {path for path in paths if path.startswith("contexts/")} == {"contexts/acme-east.json"}


# -- speed -----------------------------------------------------------------------------------------------------------


def test_checking_and_rendering_grow_with_the_streams_and_no_faster() -> None:
    def once(streams: int) -> int:
        return count_calls(lambda: render_bundle(check_topology(many_streams(streams), "t.yaml").require()))

    once(1)  # templates are compiled once
    assert once(40) < 4.5 * once(10)


def test_writing_grows_with_the_files_and_no_faster(tmp_path: Path) -> None:
    def write(streams: int) -> int:
        artifacts = [Artifact(path=f"streams/{number}.json", text="{}") for number in range(streams)]
        return count_calls(lambda: write_bundle(artifacts, tmp_path / str(streams)))

    assert write(80) < 4.5 * write(20)


def test_a_template_that_was_changed_is_rendered_as_it_is_now(tmp_path: Path) -> None:
    """Also within one process, which keeps what it has compiled."""
    for limit in ("1MB", "2MB", "1MB"):
        text = (TEMPLATES / SERVER).read_text(encoding="utf-8") + f"max_payload: {limit}\n"
        bundle = render_text(templates=override(tmp_path, SERVER, text))
        assert bundle.text("servers/west-1.conf").endswith(f"max_payload: {limit}\n")
