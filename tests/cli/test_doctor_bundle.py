"""`vstream doctor --bundle`: what a supporter needs is in it, and no secret is."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

from tests.support.command import check_output, require_success, vstream
from tests.support.shared_lab import shared_lab
from vstream.health.redact import REDACTED, redact
from vstream.jetstream import monitoring
from vstream.jetstream.monitoring import read_raw_answers
from vstream.lab.state import lab_directory
from vstream.topology.model import Endpoint

NAME = "bundled"
TOPOLOGY = f"""\
version: 1
name: {NAME}
server_version: "2.12"
routing: accounts
security: {{transport: {{cert_file: server.pem, key_file: server-key.pem, ca_file: ca.pem}}}}
regions: {{west: {{servers: 1}}, east: {{servers: 1}}}}
streams: {{foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}}}
"""


@pytest.mark.lab
def test_a_lab_with_passwords_and_tls_leaves_no_secret(tmp_path: Path) -> None:
    with shared_lab(tmp_path, TOPOLOGY, "--tls") as file:
        require_success(vstream("apply", file, "--yes"))
        out = tmp_path / "out.tar.gz"
        require_success(vstream("doctor", file, "--bundle", out))
        lab = lab_directory(NAME)
        texts = [path.read_text() for top in (lab.conf, lab.certificates) for path in top.rglob("*") if path.is_file()]
    passwords = {secret for text in texts for secret in re.findall(r'PASSWORD\w*: "([^"]+)"', text)}
    keys = {line for text in texts if "PRIVATE KEY" in text for line in text.splitlines()[1:-1]}
    assert passwords
    assert keys
    secrets = passwords | keys
    with tarfile.open(out) as archive:
        files = {member.name: archive.extractfile(member).read().decode() for member in archive if member.isfile()}  # type: ignore[union-attr]
    leaks = [(name, secret) for name, text in files.items() for secret in secrets if secret in text]
    assert leaks == []
    manifest = json.loads(files["out/manifest.json"])
    check_output(manifest)
    assert manifest["problems"] == {}
    assert {"topology.yaml", "status.json", "doctor.json", "plan.json", "servers/west-1.json"} <= {*manifest["files"]}
    assert json.loads(files["out/servers/west-1.json"])["/varz"]["version"]
    assert "foo" in files["out/servers/west-1.json"]
    assert vstream("doctor", file, "--bundle", out).code == 1


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('password: "a b"', "a b"),
        ("token: s3cr3t, x: 1", "s3cr3t"),
        ("{user: u, pass: hunter2}", "hunter2"),
        ("VSTREAM_PASSWORD_APP=hunter2", "hunter2"),
        ("nats://u:hunter2@host:4222", "hunter2"),
        ("x: SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY", "SUACSSL3"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", "MIIE"),
        ("hash $2a$11$" + "a" * 53, "aaaaaaaa"),
        ('"jwt": "eyJ0.eyJq.c2ln"', "eyJ0"),
    ],
)
def test_what_looks_like_a_secret_goes(text: str, secret: str) -> None:
    assert secret not in redact(text, ())
    assert REDACTED in redact(text, ())


def test_what_is_known_to_be_a_secret_goes_wherever_it_stands() -> None:
    assert redact("say friend and enter", {"friend"}) == f"say {REDACTED} and enter"


def test_variables_and_ordinary_fields_stay() -> None:
    text = 'users: [{user: "app", password: $VSTREAM_PASSWORD_APP}]\nmax_payload: 5\nsubject: foo.key'
    assert redact(text, ()) == text


async def test_what_a_server_calls_itself_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(*_: object) -> dict[str, str]:
        return {"server_name": "../../\x1b[31m\n\x00.." + "x" * 5_000}

    monkeypatch.setattr(monitoring, "get", get)
    answers, _ = await read_raw_answers({"west": Endpoint(monitor=("http://127.0.0.1:1",))}, timeout=1)
    (name,) = answers
    assert re.fullmatch(r"[\w-]{1,100}", name)
