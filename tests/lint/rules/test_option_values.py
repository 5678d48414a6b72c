"""What VS424 says of values, against `nats-server -t`: the server refuses the wrong kind, and takes the right one."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.lint_inputs import make_context
from vstream.lab import binaries
from vstream.lint.engine import lint
from vstream.lint.parse_files import Source
from vstream.lint.rules.servers.option_kinds import OptionKind, TextForm, ValueKind, Words
from vstream.lint.rules.servers.options import BLOCKS, NAMES

NATS_SERVER = binaries.find_or_fetch("2.15.1")
ACCOUNT = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
PLACES = {
    "server": "{}\n",
    "cluster": "cluster {{ {} }}\n",
    "gateway": "gateway {{ {} }}\n",
    "leafnodes": "leafnodes {{ {} }}\n",
    "remote": "leafnodes {{ remotes: [{{ url: 'nats://h', {} }}] }}\n",
    "jetstream": "jetstream {{ {} }}\n",
    "websocket": "websocket {{ {} }}\n",
    "mqtt": "mqtt {{ {} }}\n",
    "tls": "tls {{ {}, cert_file: /none, key_file: /none }}\n",
    "export": "accounts {{ A {{ exports: [{{ service: a, {} }}] }} }}\n",
    "user": "accounts {{ A {{ users: [{{ user: a, {} }}] }} }}\n",
    "account": "accounts {{ A {{ {} }} }}\n",
    "authorization": "authorization {{ {} }}\n",
    "remote_gateway": "gateway {{ name: a, gateways: [{{ name: b, {} }}] }}\n",
    "responses": "authorization {{ users: [{{ user: a, password: b, permissions {{ allow_responses {{ {} }} }} }}] }}\n",
    "jetstream_limits": "jetstream {{ limits {{ {} }} }}\n",
    "account_jetstream": "accounts {{ A {{ jetstream {{ {} }} }} }}\n",
    "msg_trace": "accounts {{ A {{ msg_trace {{ {} }} }} }}\n",
    "import": "accounts {{ B {{ exports: [{{ stream: a }}] }}, A {{ imports: [{{ stream {{ account: B, subject: a }}, {} }}] }} }}\n",
    "auth_callout": f"authorization {{{{ users: [{{{{ user: a, password: b }}}}], auth_callout {{{{ issuer: {ACCOUNT}, auth_users: [a], {{}} }}}} }}}}\n",
    "permissions": "authorization {{ users: [{{ user: a, password: b, permissions {{ {} }} }}] }}\n",
    "subjects": "authorization {{ users: [{{ user: a, password: b, permissions {{ publish {{ {} }} }} }}] }}\n",
    "login": "websocket {{ authorization {{ {} }} }}\n",
    "link_login": "cluster {{ authorization {{ {} }} }}\n",
    "trusted_proxy": "proxies {{ trusted: [{{ {} }}] }}\n",
    "compression": "cluster {{ compression {{ {} }} }}\n",
    "batch_limits": "jetstream {{ limits {{ batch {{ {} }} }} }}\n",
    "tpm": "jetstream {{ store_dir: x, tpm {{ keys_file: a, encryption_password: b, {} }} }}\n",
    "leaf_authorization": "leafnodes {{ authorization {{ {} }} }}\n",
    "leaf_user": "leafnodes {{ authorization {{ users: [{{ user: a, password: b, {} }}] }} }}\n",
    "remote_proxy": "leafnodes {{ remotes: [{{ url: 'ws://h', proxy {{ url: 'http://p:1', {} }} }}] }}\n",
    "proxies": "proxies {{ {} }}\n",
    "ocsp": "ocsp {{ mode: auto, {} }}\n",
    "ocsp_cache": "ocsp_cache {{ type: local, {} }}\n",
    "account_limits": "accounts {{ A {{ limits {{ {} }} }} }}\n",
}
RIGHT = {
    ValueKind.BOOLEAN: "true",
    ValueKind.INTEGER: "3",
    ValueKind.DURATION: '"30s"',
    ValueKind.SYNC: "always",
    ValueKind.SIZE: '"4G"',
    ValueKind.DURATION_TEXT: '"45s"',
    ValueKind.SECONDS: "2",
    ValueKind.TEXT: "text",
    ValueKind.ARRAY: "[]",
    ValueKind.MAP: "{}",
    ValueKind.SWITCH: "enabled",
    ValueKind.FLAG_OR_MAP: "true",
    ValueKind.TEXTS: "text",
    ValueKind.TEXT_OR_MAP: "text",
    ValueKind.ADDRESS: "3",
    ValueKind.FIRST: "auto",
}
WRONG = {
    **dict.fromkeys(ValueKind, ("nonsense",)),
    **dict.fromkeys((ValueKind.TEXT, ValueKind.TEXTS, ValueKind.TEXT_OR_MAP), ("7",)),
    ValueKind.DURATION: ("nonsense", "2"),
    ValueKind.DURATION_TEXT: ("nonsense", "45"),
    ValueKind.SYNC: ("nonsense", "2"),
}
LISTED = {
    "cipher_suites",
    "curve_preferences",
    "allowed_connection_types",
    "connection_types",
    "clients",
    "pinned_certs",
}
CASES = [(block, option, kind) for block, table in BLOCKS.items() for option, kind in table.kinds.items()]

OTHER_REASONS = (b"X509",)

pytestmark = pytest.mark.server


def write_option(block: str, option: str, value: str) -> str:
    return "server_name: s\n" + PLACES[block].format(
        f"{option}: [{value}]" if option in LISTED else f"{option}: {value}"
    )


def server_refuses(directory: Path, text: str) -> bool:
    """Whether it complains of the value; that there is no certificate is another matter."""
    file = directory / f"{abs(hash(text))}.conf"
    file.write_text(text)
    done = subprocess.run([NATS_SERVER, "-t", "-c", file.name], cwd=directory, capture_output=True, check=False)
    return done.returncode != 0 and not any(word in done.stderr for word in OTHER_REASONS)


def we_refuse(text: str) -> bool:
    report = lint([Source(name="a.conf", content=text.encode())], make_context({}))
    return any(finding.code == "VS424" for finding in report.findings)


def example_of(kind: Words | TextForm) -> str:
    return kind.example if isinstance(kind, TextForm) else kind[-1]


def disagreement(directory: Path, case: tuple[str, str, OptionKind]) -> str | None:
    block, option, kind = case
    right = RIGHT[kind] if isinstance(kind, ValueKind) else f'"{example_of(kind)}"'
    wrong = WRONG[kind] if isinstance(kind, ValueKind) else ('"non..sense"',)
    for value, is_wrong in ((right, False), *((value, True) for value in wrong)):
        text = write_option(block, option, value)
        refusals = (we_refuse(text), server_refuses(directory, text))
        if refusals != (is_wrong, is_wrong):
            return f"{text.strip()}: we and the server refuse it: {refusals}"
    return None


def test_the_server_refuses_the_values_that_we_refuse(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        wrong = [problem for problem in pool.map(lambda case: disagreement(tmp_path, case), CASES) if problem]
    assert wrong == []


@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_names_of_one_option_belong_to_the_same_block(names: list[str]) -> None:
    for name in names:
        assert any(name in block.options and len(block.options & {*names}) > 1 for block in BLOCKS.values()), name
