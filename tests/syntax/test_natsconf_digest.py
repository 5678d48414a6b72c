"""The digest of a configuration is the one that nats-server names it by: compared with `nats-server -t`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vstream.lab import binaries
from vstream.lint import check_topology
from vstream.render.pipeline import render_bundle
from vstream.syntax import natsconf
from vstream.syntax.natsconf.digest import digest

pytestmark = pytest.mark.server

EXAMPLES = ROOT / "examples"
VALUES = r"""
text: "<x & y> é \" \\ \t end"
word: plain
size: 1k
sizes: 1kib
number: -12
yes: on
none: ""
when: 2016-05-04T18:53:41Z
tree { b: 1, A: 2, é: yes, a: { deep: [1, 2.5, "x", { y: z }] } }
half: 1.5
whole: 2.0
tiny: 0.00000123
tinier: 0.0000005
large: 12345678901234567890.0
enormous: 123456789012345678901234567890.0
"""


def servers_digest(file: Path) -> str:
    ran = subprocess.run([binaries.find_or_fetch(), "-t", "-c", file], capture_output=True, text=True, check=False)
    match = re.search(r"is valid \((sha256:\w+)\)", ran.stdout + ran.stderr)
    assert match is not None, ran.stdout + ran.stderr
    return match[1]


def own_digest(file: Path) -> str:
    def include(path: str, by: str) -> tuple[str, str]:
        included = Path(by).parent / path
        return str(included), included.read_text()

    document = natsconf.parse(file.read_text(), str(file), include=include, env={})
    assert not document.findings
    return digest(document)


def test_values_of_every_kind_have_the_digest_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "values.conf"
    document = natsconf.parse(VALUES, "")
    # A server takes keys that it does not know where something refers to them, and an array without an end for none.
    used = "".join(f"${entry.key}\n" for entry in document.root.effective_entries())
    file.write_text(f'{VALUES}used: [\n{used}"')
    assert digest(document) == servers_digest(file)


def test_rendered_configurations_have_the_digest_of_the_server(tmp_path: Path) -> None:
    name = "three-regions.yaml"
    bundle = render_bundle(check_topology.check_topology((EXAMPLES / name).read_bytes(), name).require())
    for artifact in bundle.artifacts:
        path = tmp_path / artifact.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(artifact.text)
    files = sorted((tmp_path / "servers").glob("*.conf"))
    digests = [own_digest(file) for file in files]
    assert len(set(digests)) == len(files) > 1
    assert digests[0] == servers_digest(files[0])
    # Comments, order and spelling do not count; what an included file says does.
    mappings = tmp_path / "mappings.cfg"
    mappings.write_text("# a comment\n" + mappings.read_text())
    assert own_digest(files[0]) == digests[0]
    mappings.write_text(mappings.read_text().replace("foo", "fooo"))
    assert own_digest(files[0]) != digests[0]
