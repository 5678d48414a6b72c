"""`vstream region failover` where not everybody could be asked whether the region is dead."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import vstream
from tests.support.ports import free_port


def test_what_nobody_could_be_asked_about_is_given_up_only_if_somebody_declares_it(tmp_path: Path) -> None:
    file = tmp_path / "silent.yaml"
    connect = ", ".join(f"{region}: {{urls: ['nats://127.0.0.1:{free_port()}']}}" for region in ("west", "east"))
    text = f"""\
version: 1
name: silent
server_version: "2.12"
regions: {{west: {{servers: 1}}, east: {{servers: 1}}}}
connect: {{{connect}}}
streams: {{foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}}}
"""
    file.write_text(text)
    asked = vstream("region", "failover", "west", file, "--yes")
    assert (asked.code, "whether `west` is dead is not known" in asked.out) == (3, True), asked.out + asked.err
    assert "Pass `--declare-dead` if you know it" in asked.err
    told = vstream("region", "failover", "west", file, "--yes", "--format", "json")
    assert (told.code, told.json()["proof"]["verdict"], told.json()["done"]) == (3, "unknown", False)
    declared = vstream("region", "failover", "west", file, "--yes", "--declare-dead")
    assert "--declare-dead" not in declared.err
    assert "cannot be reached" in declared.err, declared.err
    assert file.read_text() == text
