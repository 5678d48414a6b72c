"""Tutorials and how-tos do what they say: every command is run, and what it prints is what the page shows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chart_pods import make_configuration, read_releases
from tests.support.command import vstream, walk_commands
from tests.support.labs import end_all_in
from tests.support.pages import IN_CLONE, ON_LAB, ON_STAND_INS, Reader, matches, read_blocks, read_commands
from tests.support.paths import ROOT
from tests.support.recipe import run_recipe
from vstream import resources
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.render.targets import render_target

DOCS = ROOT / "docs"
TUTORIALS = ("three-regions", "cut-off", "first-topology", "consumer")
"""They go on from each other, on one lab."""
TUTORIALS_AT_NIGHT = ("audit", "scenario-in-ci")
"""Spark, and a rehearsal of half a minute."""
LIVE_HOW_TOS = (
    "add-a-region",
    "remove-a-region",
    "from-mapped-to-accounts",
    "from-a-plain-stream",
    "move-a-stream",
    "rolling-upgrade",
    "prometheus",
)
STAND_INS = (
    "deploy-with-compose",
    "deploy-with-files",
    "deploy-with-helm",
    "deploy-with-systemd",
    "operator-mode",
    "plan-on-pull-requests",
    "prometheus",
)
"""At night a lab stands for their reader's own servers."""
BLOG = "from-the-blog"
HOW_TOS = sorted(page.stem for page in (DOCS / "how-to").glob("*.md"))
PAGES = sorted((*(DOCS / "tutorials").glob("*.md"), *(DOCS / "how-to").glob("*.md")))


@pytest.fixture
def reader(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Reader]:
    yield Reader(tmp_path, is_updating=bool(pytestconfig.getoption("--update-golden")))
    end_all_in(tmp_path)


@pytest.mark.lab
@pytest.mark.night
def test_tutorials_do_what_they_say(reader: Reader) -> None:
    for name in TUTORIALS:
        reader.follow(DOCS / "tutorials" / f"{name}.md")


@pytest.mark.lab
@pytest.mark.night
def test_what_tutorials_install_is_enough_to_follow_them(reader: Reader) -> None:
    """In a clone with an empty home: of the tests' own environment nothing is used."""
    pages = [page for page in PAGES if any(block.place == IN_CLONE for block in read_blocks(page))]
    assert [page.stem for page in pages] == ["audit", "three-regions"]
    for page in reversed(pages):
        reader.install(page)
        reader.follow(page)
        reader.run("vstream lab down --purge")


@pytest.mark.lab
@pytest.mark.night
@pytest.mark.parametrize("name", TUTORIALS_AT_NIGHT)
def test_longer_tutorials_do_what_they_say(reader: Reader, name: str) -> None:
    reader.follow(DOCS / "tutorials" / f"{name}.md")


@pytest.mark.lab
@pytest.mark.night
@pytest.mark.parametrize("name", LIVE_HOW_TOS)
def test_how_tos_on_a_lab_do_what_they_say(reader: Reader, name: str) -> None:
    reader.follow(DOCS / "how-to" / f"{name}.md")


@pytest.mark.lab
@pytest.mark.night
@pytest.mark.parametrize("name", STAND_INS)
def test_how_tos_do_what_they_say_on_servers_of_their_own(reader: Reader, name: str) -> None:
    page = DOCS / "how-to" / f"{name}.md"
    reader.follow(page)
    reader.follow_on_stand_ins(page)
    topology = next(block.title for block in read_blocks(page) if "\nregions:" in block.text)
    reader.type(f"vstream lab up {topology}")
    reader.follow_on_lab(page, "acme")


@pytest.mark.lab
@pytest.mark.night
async def test_the_recipe_of_the_blog_comes_under_vstream_as_its_page_says(
    state: Path, reader: Reader, tmp_path: Path
) -> None:
    await run_recipe(tmp_path / "recipe.yaml", "2.15.1")
    await asyncio.to_thread(reader.follow_on_lab, DOCS / "how-to" / f"{BLOG}.md", "blog")


@pytest.mark.parametrize("name", sorted(set(HOW_TOS) - set(LIVE_HOW_TOS)))
def test_how_tos_without_servers_do_what_they_say(reader: Reader, name: str) -> None:
    reader.follow(DOCS / "how-to" / f"{name}.md")


def test_every_page_is_run() -> None:
    assert sorted((*TUTORIALS, *TUTORIALS_AT_NIGHT)) == sorted(page.stem for page in (DOCS / "tutorials").glob("*.md"))
    assert set(LIVE_HOW_TOS) <= set(HOW_TOS)
    stand_ins = [page.stem for page in PAGES if any(block.place in ON_LAB for block in read_blocks(page))]
    assert sorted((*STAND_INS, BLOG)) == sorted(stand_ins)


def test_every_command_is_run() -> None:
    """The bar is 0: a block of commands that no test runs says nowhere that it is run."""
    blocks = [(page.stem, block) for page in PAGES for block in read_blocks(page)]
    places = [block.place for _, block in blocks if block.language in {"sh", "bash", "shell"}]
    assert len(places) > 8
    assert set(places) == {*ON_LAB, IN_CLONE, ON_STAND_INS}
    elsewhere = [name for name, block in blocks if block.place == ON_STAND_INS and name not in STAND_INS]
    assert not elsewhere


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        ("took 4 ms", "took 1.3 s", True),
        ("a\n...\nb", "a\nx\ny\nb", True),
        ("a\n...\nb", "a\nx", False),
        (" ─────\n  west   15301", "──\nwest 4", True),
        ("PASS: 33 ok", "FAIL: 33 failed", False),
    ],
)
def test_numbers_may_differ_and_words_may_not(shown: str, printed: str, *, is_right: bool) -> None:
    assert matches(shown, printed) is is_right


def test_commands_of_a_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('```console\n$ one \\\n    two\nprinted\n$ three\n```\n\n```yaml title="a.yaml"\na: 1\n```\n')
    commands, file = read_blocks(page)
    assert [(command.line, command.shown) for command in read_commands(commands)] == [
        ("one \\\n    two", "printed"),
        ("three", ""),
    ]
    assert (file.title, file.text) == ("a.yaml", "a: 1\n")


def test_no_copy_gives_the_directories_of_a_host_another_owner() -> None:
    """`rsync -a hosts/w1/ root@w1:/` would make `/` and `/etc` the property of whoever copies, with their permissions."""
    texts = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    copies = [line for text in (*texts, vstream("apply", "--help").out) for line in re.findall(r"rsync (-\w+)", text)]
    assert copies
    assert set(copies) == {"-r"}


def test_servers_with_tls_are_monitored_with_tls() -> None:
    """`security.transport` puts TLS on every port: a server answers `http://` with 400 there."""
    examples = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.yaml")]
    blocks = [block.text for page in DOCS.rglob("*.md") for block in read_blocks(page)]
    secure = [text for text in (*examples, *blocks) if "tls://" in text and "monitor: [" in text]
    assert len(secure) > 3
    assert not [text for text in secure if "monitor: [http:" in text]


def test_the_helm_how_to_says_where_the_chart_lets_a_pod_be_monitored() -> None:
    page = (DOCS / "how-to" / "deploy-with-helm.md").read_text(encoding="utf-8")
    text = next(block.text for block in read_blocks(DOCS / "how-to" / "deploy-with-helm.md") if block.title)
    topology = check_topology(text.encode(), "acme.yaml").require()
    releases = read_releases(render_target("helm", topology, render_bundle(topology), [resources.templates()]))
    configuration = make_configuration(releases["west"], re.findall("--namespace ([a-z]+)", page)[0])
    host, port = re.findall(r"https://([a-z0-9.-]+):(\d+)", page)[0]
    assert int(port) == configuration["https_port"]
    assert configuration["cluster"]["routes"][0].startswith(f"tls://{host}.")


def test_every_command_that_is_named_exists_with_its_options() -> None:
    """Also those that no test runs: in prose, tables and help, in hints of errors, and in examples for CI and containers."""
    options = {
        name: {"--help", "--overlay"}.union(*([*part.opts, *part.secondary_opts] for part in command.params))
        for name, command in walk_commands(with_groups=True)
    }
    folders = ("docs", "examples", "templates", "scenarios", "vstream", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix not in {".pyc", ".png"}]
    named, wrong = 0, []
    for path in [*files, *ROOT.glob("*.md"), ROOT / "Containerfile"]:
        for line in re.findall(r"(?:^|[`$ ])vstream ([a-z][^`\n#|&]*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            words = line.split()
            name = " ".join(words[:2]) if " ".join(words[:2]) in options else words[0]
            if name in options:
                named += 1
                asked = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", re.sub("'[^']*'", "", line)))
                wrong += [f"{path.name}: vstream {line}"] if asked - options[name] else []
    assert not wrong
    assert named > 1_000
