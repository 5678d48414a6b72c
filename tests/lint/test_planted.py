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
        "its own subjects",
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
    # Types and words of options, by opts.go
    *(
        option("VS424", text, cure, hint)
        for text, cure, hint in (
            ('prof_port: ‹"6060"›\n', "6060", "write 6060, without quotes"),
            ('max_payload: ‹"1 mb"›\n', "1MB", "write 1MB, without quotes"),
            ("debug: ‹yess›\n", "true", "write true"),
            ('ping_interval: ‹"2 minutes"›\n', '"2m"', 'write "2m"'),
            ("write_deadline: ‹10sec›\n", '"10s"', 'write "10s"'),
            ('jetstream { store_dir: /d, max_mem: ‹"1 GB"›, max_file: 1G }\n', "1G", "write 1G"),
            (
                "jetstream { store_dir: /d, max_mem: 1G, max_file: 1G, sync_interval: ‹allways› }\n",
                "always",
                "did you mean `always`?",
            ),
            (
                "jetstream { store_dir: /d, max_mem: 1G, max_file: 1G, key: $KEY, cipher: ‹aess› }\n",
                "aes",
                "did you mean `aes`?",
            ),
            ('cluster { name: a, port: ‹"6222"› }\n', "6222", "write 6222, without quotes"),
            ("gateway { name: a, port: 7222, reject_unknown: ‹off_› }\n", "false", "write false"),
            ("leafnodes { reconnect: ‹quickly› }\n", '"2m"', 'write "2m"'),
            ('websocket { port: 8080, no_tls: ‹"true"› }\n', "true", "write true"),
            ("mqtt { port: 1883, ack_wait: ‹30secs› }\njetstream: enabled\n", '"30s"', 'write "30s"'),
            ("tls { cert_file: /c, key_file: /k, min_version: ‹1.2› }\n", '"1.2"', 'write "1.2", in quotes'),
            (
                "tls { cert_file: /c, key_file: /k, curve_preferences: [‹CurveP25›] }\n",
                "CurveP256",
                "did you mean `CurveP256`?",
            ),
            (
                "accounts { A { exports: [{ service: a, response_type: ‹strem› }] } }\n",
                "stream",
                "did you mean `stream`?",
            ),
            (
                "accounts { A { users: [{ nkey: U, allowed_connection_types: [‹WEBSOCKETS›] }] } }\n",
                "WEBSOCKET",
                "did you mean `WEBSOCKET`?",
            ),
        )
    ),
    # Accounts that do not fit together, by opts.go and accounts.go
    *(
        option("VS425", text, cure, hint)
        for text, cure, hint in (
            (
                "accounts { A { imports: [{ stream: { account: ‹CORES›, subject: a } }] }, CORE { exports: [{ stream: a }] } }\n",
                "CORE",
                "did you mean `CORE`?",
            ),
            (
                "accounts { A { imports: [{ service: { account: B, subject: ‹a.b› } }] }, B { exports: [{ service: b.* }, { service: c }] } }\n",
                "c",
                'add `{service: "a.b"}` to the `exports` of `B`',
            ),
            (
                "accounts { A { imports: [{ stream: { account: B, subject: ‹a.>› } }] }, B { exports: [{ stream: a.b }] } }\n",
                "a.b",
                "to the `exports` of `B`",
            ),
            (
                "accounts { A { imports: [{ stream: { account: B, subject: ‹a› } }] }, B { exports: [{ service: a }, { stream: b }] } }\n",
                "b",
                'add `{stream: "a"}`',
            ),
            (
                "accounts { A { imports: [{ service: { account: B, subject: ‹a› } }] }, B { exports: [{ service: a, accounts: [C] }, { service: b }] }, C {} }\n",
                "b",
                "add `A` to the `accounts` of the export",
            ),
            (
                "accounts { A { exports: [{ stream: a, ‹response_type: stream› }] } }\n",
                "",
                "remove it, or export a `service`",
            ),
            (
                "accounts { A { users: [{ user: u, password: $P }] }, B { users: [{ user: ‹u›, password: $P }] } }\n",
                "v",
                "must be unique",
            ),
            (
                "authorization { ‹user: u, password: $P, ›users: [{ user: v, password: $P }] }\n",
                "",
                "move the user into `users`",
            ),
            ("authorization { ‹user: u, password: $P, ›token: $T }\n", "", "remove `user`, or the token"),
        )
    ),
    # What the server starts with, by server.go, validateOptions
    *(
        option("VS426", text, cure, hint)
        for text, cure, hint in (
            ("accounts { SYS {} }\nsystem_account: ‹SYSS›\n", "SYS", "did you mean `SYS`?"),
            (
                "authorization { users: [{ user: guest, password: $P }] }\nno_auth_user: ‹gest›\n",
                "guest",
                "did you mean `guest`?",
            ),
            (
                "accounts { APP {} }\nleafnodes { remotes: [{ url: 'nats://h', account: ‹AP› }] }\n",
                "APP",
                "did you mean `APP`?",
            ),
            (
                "‹gateway { ›listen: 127.0.0.1:7222 }\n",
                "gateway { name: a, ",
                "add `name`: the name of this server's cluster",
            ),
            ("‹gateway { ›name: a }\n", "gateway { port: 7222, ", "add `port: 7222`"),
            (
                "gateway { name: a, port: 7222, gateways: [‹{ ›url: 'nats://h' }] }\n",
                "{ name: b, ",
                "add `name`: the name of that cluster",
            ),
            (
                "gateway { name: a, port: 7222, gateways: [‹{ ›name: b }] }\n",
                "{ url: 'nats://h:7222', ",
                'add `url: "nats://HOST:7222"`',
            ),
            (
                "http: ‹127.0.0.1:99999›\n",
                "127.0.0.1:8222",
                "at most 65535",
            ),
            ("max_payload: ‹100MB›\n", "8MB", "write at most 67108864 for `max_payload`"),
            ("max_pending: ‹512KB›\n", "64MB", "or more for `max_pending`"),
            ("lame_duck_duration: ‹10s›\n", "30s", 'write "30s" or more'),
            ("lame_duck_duration: 60s\nlame_duck_grace_period: ‹60s›\n", "10s", 'such as "10s"'),
            ("‹websocket { ›port: 8080 }\n", "websocket { no_tls: true, ", "`no_tls: true`"),
            ("‹websocket { ›no_tls: true }\n", "websocket { port: 8080, ", "add `port: 8080`"),
            ("‹mqtt {› port: 1883 }\n", "jetstream {}\nmqtt {", "add `jetstream {…}`"),
            ("jetstream { store_dir: /d, domain: ‹eu.west› }\n", "eu-west", "letters, digits"),
            ('cluster { name: ‹"eu west"›, port: 6222 }\n', "eu-west", "write `eu-west`"),
            ("‹tls { ›cert_file: /c }\n", "tls { key_file: /k, ", "add `key_file`"),
        )
    ),
    option("VS427", "accounts { A {} }\n‹accounts { B {} }›\n", "", "merge both, or remove one of them"),
    option("VS427", "cluster { name: a, port: 6222, ‹name: b› }\n", "", "remove one of them"),
    option("VS337", 'mappings { ‹"$KV.>"›: "keys.>" }\n', '"orders.>"', "map only the subjects of your own streams"),
    option("VS337", 'mappings { ‹"$JS.FC.>"›: "flow.>" }\n', '"orders.>"', "map only the subjects of your own streams"),
    # Rules, by mappings of accounts.go and subject_transform.go
    *(
        option(code, f"mappings {{ {text} }}\n", cure, hint)
        for code, text, cure, hint in (
            ("VS307", '"o.*": ‹"p.{{wildcard(2)}}"›', '"p.{{wildcard(1)}}"', "number 1"),
            ("VS307", '"o.*": ‹"p.{{wildcrd(1)}}"›', '"p.{{wildcard(1)}}"', "the functions are wildcard"),
            ("VS307", '"o.*": ‹"p.*.*"›', '"p.{{wildcard(1)}}"', "write `{{wildcard(1)}}`"),
            ("VS307", '"o.>": ‹"p"›', '"p.>"', "end both or neither in `>`"),
            ("VS304", '‹"o..x"›: "p"', '"o.x"', "separated by single dots"),
            ("VS304", '‹"o.>.x"›: "p"', '"o.*.x"', "`>` comes last"),
            ("VS311", '"o": [{ destination: p, weight: ‹120%› }]', "100%", "from 0% to 100%"),
            (
                "VS312",
                '"o": [{ destination: p, weight: 60% }, { destination: q, weight: ‹50%› }]',
                "40%",
                "make the total 100 %",
            ),
            ("VS305", '"o": [{ destination: p, weight: ‹half› }]', "50%", "from 0% to 100%"),
            (
                "VS310",
                '"o": [{ destination: p, weight: 50% }, { destination: ‹p›, weight: 50% }]',
                "q",
                "its own subject",
            ),
            ("VS303", '"o": p, ‹"o"›: q', '"r"', "into one rule"),
            ("VS302", '"o.*": "p.{{wildcard(1)}}", ‹"o.x"›: q', '"r.x"', "disjoint"),
            ("VS306", '"o": ‹""›', '"p"', "add `destination"),
        )
    ),
    # What -t or the API refuses, or takes and does nothing with: tried with 2.15.1
    Case("VS244", stream('"sealed": ‹true›'), "false", "remove `sealed`", "orders.json"),
    Case("VS244", stream('"allow_rollup_hdrs": ‹true›, "deny_purge": true'), "false", "remove one", "orders.json"),
    Case("VS244", stream('"mirror_direct": ‹true›'), "false", "`allow_direct`", "orders.json"),
    Case("VS244", stream('"allow_msg_counter": true, "allow_msg_ttl": ‹true›'), "false", "remove", "orders.json"),
    Case(
        "VS244",
        stream('"sources": [{"name": "x", "external": {"api": ‹"$JS.hub.API.>"›, "deliver": ""}}]'),
        '"$JS.hub.API"',
        "write `$JS.hub.API`",
        "orders.json",
    ),
    Case(
        "VS244",
        stream('"subject_transform": {"src": "o.*", "dest": ‹"p.{{wildcard(2)}}"›}'),
        '"p.{{wildcard(1)}}"',
        "by their numbers",
        "orders.json",
    ),
    Case("VS244", '{"name": "o", "subjects": [‹"o .>"›]}', '"o.>"', "between single dots", "o.json"),
    Case("VS243", consumer('"filter_subjects": ‹["o.>", "o.a"]›'), '["o.>"]', "keep the wider one", "c.json"),
    Case("VS243", consumer('"priority_policy": ‹"overflow"›'), '"none"', "priority_groups", "c.json"),
    Case(
        "VS425",
        'authorization { users: [{user: a, password: $P, permissions: {publish: [‹"a..b"›]}}] }',
        '"a.b"',
        "single dots",
    ),
    Case("VS426", SERVER + "cluster { name: c, port: 6222, compression: ‹gzip› }\n", "s2_fast", "modes: "),
    Case(
        "VS426",
        SERVER + "default_js_domain { ‹ORDER›: hub }\naccounts { ORDERS {} }\n",
        "ORDERS",
        "did you mean `ORDERS`?",
    ),
    Case("VS430", SERVER + "jetstream { store_dir: /d, cipher: ‹aes› }\n", "aes, key: abc", "add `key"),
    Case(
        "VS430", SERVER + "cluster { name: c, ‹routes›: ['nats://h:6222'] }\n", "port: 6222, routes", "add `port: 6222`"
    ),
    Case(
        "VS430",
        SERVER + "cluster { name: c, port: 6222, accounts: [‹ORDER›] }\naccounts { ORDERS {} }\n",
        "ORDERS",
        "`ORDERS`",
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
