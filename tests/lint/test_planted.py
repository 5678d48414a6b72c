"""
Mistakes that somebody makes, from the server's source and documentation: each is found at its place, and its hint helps.

Each file has the mistake between ‹ and ›. It is replaced by what follows `→` in the case, which is what the hint says.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.lint_inputs import surroundings
from vstream.diagnostics import Finding
from vstream.lint.engine import lint
from vstream.lint.read import Source

SERVER = "server_name: s1\nlisten: 127.0.0.1:4222\n"
RULES = '"a.>": [{destination: "_vs.a.west.>", weight: 100%, cluster: west}, {destination: "_vs.a.east.>", weight: 100%, cluster: east}]'


@dataclass(frozen=True)
class Case:
    code: str
    text: str
    cure: str
    hint: str
    file: str = "a.conf"

    @property
    def mistake(self) -> str:
        return self.text.replace("‹", "").replace("›", "")

    @property
    def corrected(self) -> str:
        before, rest = self.text.split("‹")
        return before + self.cure + rest.split("›")[1]

    @property
    def place(self) -> tuple[int, int]:
        before = self.text.partition("‹")[0]
        return before.count("\n") + 1, len(before) - before.rfind("\n")


def stream(fields: str) -> str:
    return f'{{"name": "orders", "subjects": ["o.>"], {fields}}}'


def consumer(fields: str) -> str:
    return f'{{"durable_name": "d", "ack_policy": "explicit", {fields}}}'


def option(code: str, text: str, cure: str, hint: str | None = None) -> Case:
    return Case(code, SERVER + text, cure, hint or f"did you mean `{cure}`?")


def value(text: str, cure: str, hint: str) -> Case:
    return Case("VS234", stream(text), cure, hint, "orders.json")


CASES = [
    # Options of servers, by the parser in opts.go
    option("VS421", '‹mapings› {"o.>": "a.>"}\n', "mappings"),
    option("VS421", "‹jetstrem› { store_dir: /data }\n", "jetstream"),
    option("VS421", "cluster { ‹nam›: A }\n", "name"),
    option("VS421", "cluster { name: A, ‹rutes›: [] }\n", "routes"),
    option("VS421", "gateway { name: A, ‹gatways›: [] }\n", "gateways"),
    option("VS421", "leafnodes { remotes: [{ ‹ulr›: 'nats://h' }] }\n", "url"),
    option("VS421", "accounts { A { ‹user›: [] } }\n", "users"),
    option("VS421", "accounts { A { users: [{ user: a, ‹pasword›: $PASSWORD }] } }\n", "password"),
    option("VS421", "accounts { A { exports: [{ ‹servce›: a }] } }\n", "service"),
    option(
        "VS421",
        "accounts { A { imports: [{ stream { acount: B, subject: a } }] } }\n".replace("acount", "‹acount›"),
        "account",
    ),
    option("VS421", "jetstream { ‹store_dirr›: /data, max_mem: 1G, max_file: 1G }\n", "store_dir"),
    option("VS421", "jetstream { store_dir: /d, limits { ‹max_ack_pendng›: 5 } }\n", "max_ack_pending"),
    option("VS421", "websocket { port: 8080, ‹no_tsl›: true }\n", "no_tls"),
    option("VS421", "tls { ‹cert_fil›: a, key_file: b }\n", "cert_file"),
    option("VS421", "‹max_payloads›: 1MB\n", "max_payload"),
    option("VS421", "authorization { users: [{ user: a, permissions { ‹publsh›: a } }] }\n", "publish"),
    Case("VS421", SERVER + "‹something_of_ours›: 1\n", "# ", "remove it"),
    Case("VS421", '‹acounts› { A { mappings { "o.>": "a.>" } } }\n', "accounts", "did you mean `accounts`?"),
    Case(
        "VS422",
        "listen: 127.0.0.1:4222\n‹›jetstream { store_dir: /d, max_mem: 1G, max_file: 1G }\ncluster { name: w, listen: 127.0.0.1:6222 }\n",
        "server_name: a\n",
        "add `server_name`",
    ),
    # Fields of streams, by stream.go and store.go
    value('"max_age": ‹"24h"›', "86400000000000", "write 86400000000000"),
    value('"storage": ‹"disk"›', '"file"', "did you mean `file`?"),
    value('"num_replicas": ‹"3"›', "3", "write 3, without quotes"),
    value('"retention": ‹"work_queue"›', '"workqueue"', "did you mean `workqueue`?"),
    value('"discard": ‹"oldest"›', '"old"', "did you mean `old`?"),
    value('"max_bytes": ‹"1GiB"›', "1073741824", "write 1073741824"),
    value('"compression": ‹"snappy"›', '"s2"', "did you mean `s2`?"),
    value('"deny_delete": ‹"true"›', "true", "write true, without quotes"),
    value('"placement": {"tags": ‹"ssd"›}', '["ssd"]', 'write ["ssd"]'),
    value('"metadata": {"team": ‹7›}', '"7"', 'write "7"'),
    Case("VS234", '{"name": "o", "subjects": ‹"o.>"›}', '["o.>"]', 'write ["o.>"]', "o.json"),
    Case("VS203", stream('‹"max_ages"›: 1'), '"max_age"', "did you mean `max_age`?", "orders.json"),
    Case(
        "VS235",
        '[{"name": "a", "subjects": ["o.>"]}, {"name": "b", "subjects": [‹"o.eu.*"›]}]',
        '"p.*"',
        "subjects of its own",
        "s.json",
    ),
    Case("VS235", '{"name": "a", "subjects": ["o.>", ‹"o.eu"›]}', '"p.eu"', "remove one of them", "s.json"),
    Case(
        "VS234",
        '{"subjects": ["o.>"], "num_replicas": 1, "storage": ‹"ram"›}',
        '"memory"',
        "did you mean `memory`?",
        "o.json",
    ),
    # Fields of consumers, by consumer.go
    Case("VS242", consumer('"ack_wait": ‹"30s"›'), "30000000000", "write 30000000000", "c.json"),
    Case(
        "VS242",
        consumer('"deliver_policy": ‹"last-per-subject"›, "filter_subject": "a"'),
        '"last_per_subject"',
        "did you mean `last_per_subject`?",
        "c.json",
    ),
    Case("VS241", consumer('‹"max_delivery"›: 5'), '"max_deliver"', "did you mean `max_deliver`?", "c.json"),
    Case(
        "VS243",
        consumer('"deliver_policy": ‹"by_start_sequence"›'),
        '"by_start_sequence", "opt_start_seq": 1',
        "add `opt_start_seq`",
        "c.json",
    ),
    Case(
        "VS243",
        consumer('"deliver_subject": "x", "flow_control": ‹true›'),
        'true, "idle_heartbeat": 5000000000',
        'add `"idle_heartbeat": 5000000000`',
        "c.json",
    ),
    Case("VS243", consumer('"max_deliver": ‹2›, "backoff": [1, 2, 3]'), "3", "write 3 or more", "c.json"),
    # Rules, by accounts.go and client.go
    Case(
        "VS337",
        'mappings {\n  ‹"_INBOX.>"›: "replies.>"\n}\n',
        '"orders.>"',
        "map only the subjects of your own streams",
    ),
    Case(
        "VS337",
        'mappings {\n  ‹"$JS.API.>"›: "requests.>"\n}\n',
        '"orders.>"',
        "map only the subjects of your own streams",
    ),
    Case(
        "VS315",
        f"mappings {{\n  {RULES}\n  " + RULES.replace("a.", "b.").replace("cluster: east", "cluster: ‹eats›") + "\n}\n",
        "east",
        "did you mean `east`?",
    ),
    Case(
        "VS316",
        f"mappings {{\n  {RULES}\n  ‹" + '"b.>": [{destination: "_vs.b.west.>", weight: 100%, cluster: west}]› }\n',
        RULES.replace("a.", "b."),
        "add one for each cluster",
    ),
    Case("VS010", "server_name: a ‹b›\nlisten: 127.0.0.1:4222\n", "", "put each entry on a line of its own"),
]


def check(case: Case, text: str) -> tuple[Finding, ...]:
    name = case.file
    return lint([Source(name=name, content=text.encode())], surroundings({name: text.encode()})).diagnostics


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.code}" for number, case in enumerate(CASES)])
def test_a_mistake_is_found_at_its_place_and_its_hint_makes_it_go_away(case: Case) -> None:
    found = {
        (finding.code, finding.span.line, finding.span.column): finding.hint or ""
        for finding in check(case, case.mistake)
        if finding.span
    }
    assert (case.code, *case.place) in found
    assert case.hint in found[case.code, *case.place]
    assert case.code not in {finding.code for finding in check(case, case.corrected)}


def linked(cluster: str, port: int, own: str) -> bytes:
    remotes = ", ".join(f'{{name: {name}, url: "nats://127.0.0.1:1"}}' for name in ("west", "east", "cent"))
    destinations = ", ".join(
        f'{{destination: "_vs.o.{name}.>", weight: 100%, cluster: {name}}}' for name in ("west", "east", own)
    )
    return (
        f"server_name: {cluster}\nlisten: 127.0.0.1:{port}\n"
        f"gateway {{name: {cluster}, listen: 127.0.0.1:{port + 3000}, gateways: [{remotes}]}}\n"
        f'mappings {{ "o.>": [{destinations}] }}\n'
    ).encode()


def test_a_server_that_leaves_out_its_own_cluster_is_found_beside_the_others() -> None:
    files = {
        f"{name}.conf": linked(name, 4222 + number, "cent") for number, name in enumerate(("west", "east", "cent"))
    }
    files["cent.conf"] = files["cent.conf"].replace(
        b', {destination: "_vs.o.cent.>", weight: 100%, cluster: cent}', b""
    )
    report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
    found = [(one.code, one.span.file, one.span.line, one.span.column) for one in report.diagnostics if one.span]
    assert found == [("VS316", "cent.conf", 4, 12)]
    assert "`cent`" in report.diagnostics[0].message
