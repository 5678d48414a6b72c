"""
Mistakes that somebody makes, from the server's source and documentation: each is found at its place, and its hint helps.

Each file has the mistake between ‹ and ›. It is replaced by what follows `→` in the case, which is what the hint says.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import pytest

from tests.support.lint_inputs import surroundings
from vstream.diagnostics import Finding, Severity
from vstream.lint.engine import lint
from vstream.lint.read import Source

STORE = "jetstream { store_dir: /d, max_mem: 1G, max_file: 1G }\n"
SERVER = "server_name: s1\nlisten: 127.0.0.1:4222\n"
NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
NKEY_2 = "UBRH6F6YSPSWS6SLUIQIXSALAKJOP5MNQEQOWNJ4DNKUFHNZY2YZNZHA"
OPERATOR = "OAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QZVT"
ACCOUNT = "AAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QPZV"
SEED = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y"
SYSTEM = "ABR32PKMKZAQC3V72FHUJ4VDVUMZFB3GAUQD4DKCPQXJPHFPRAR7MB4X"
CLAIMS = f'{{"nats": {{"type": "operator", "system_account": "{SYSTEM}"}}}}'.encode()
TOKEN = f"eyJhbGciOiJlZDI1NTE5LW5rZXkifQ.{base64.urlsafe_b64encode(CLAIMS).decode().rstrip('=')}.AA"
UNNAMED = base64.urlsafe_b64encode(b'{"nats": {"type": "operator"}}').decode().rstrip("=")
SIGNED = f"operator: {TOKEN}\nresolver: URL(https://h/jwt)\n"
GUESTS = "users: [{user: a, password: $P}]"
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
    def corrected_text(self) -> str:
        before, rest = self.text.split("‹")
        return before + self.cure + rest.split("›")[1]

    @property
    def place(self) -> tuple[int, int]:
        before = self.text.partition("‹")[0]
        return before.count("\n") + 1, len(before) - before.rfind("\n")


def stream(fields: str) -> str:
    return f'{{"name": "orders", "subjects": ["o.>"], {fields}}}'


def render_limited(limit: str) -> str:
    return f"accounts {{ A {{ jetstream {{ {limit} }} }} }}\n"


def consumer(fields: str) -> str:
    return f'{{"durable_name": "d", "ack_policy": "explicit", {fields}}}'


def render_routed(name: str, port: int, peer: int) -> str:
    return (
        f"server_name: {name}\nlisten: 127.0.0.1:{port}\n"
        f"cluster {{ name: A, listen: 127.0.0.1:{port + 2000}, routes: ['nats://127.0.0.1:{peer + 2000}'] }}\n"
    )


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
    option(
        "VS430",
        "gateway { name: A, listen: 127.0.0.1:7222, gateways: [{name: ‹B›, url: 'nats://h:7222'}, "
        "{name: B, url: 'nats://i:7222'}] }\n",
        "C",
        "into one entry",
    ),
    option(
        "VS430",
        "leafnodes { remotes: [‹{ account: $G }›] }\n".replace("account: $G ", ""),
        "{ url: nats-leaf://h:7422 }",
        "add `url",
    ),
    option("VS337", 'mappings { ‹"$SYS.>"›: "x.>" }\n', '"orders.>"', "your own streams"),
    Case(
        "VS211",
        '{"name": "o", "subjects": ["o.>"], "republish": {"src": ‹"p.>"›, "dest": "q.>"}}',
        '"o.>"',
        "`o.>`",
        "o.json",
    ),
    Case(
        "VS211",
        '{"name": "o", "subjects": ["o.>"], "subject_transform": {"src": ‹"p.>"›, "dest": "q.>"}}',
        '"o.>"',
        "`o.>`",
        "o.json",
    ),
    Case("VS421", '‹acounts› { A { mappings { "o.>": "a.>" } } }\n', "accounts", "did you mean `accounts`?"),
    Case(
        "VS422",
        "listen: 127.0.0.1:4222\n‹›jetstream { store_dir: /d, max_mem: 1G, max_file: 1G }\ncluster { name: w, listen: 127.0.0.1:6222 }\n",
        "server_name: a\n",
        "add `server_name`",
    ),
    option(
        "VS431",
        "accounts { ‹SYS› { users: [{user: s, password: $P}] }, A { users: [{user: a, password: $P}] } }\n",
        "SYS { users: [{user: s, password: $P}] } }\nsystem_account: SYS\n# ",
        "add `system_account: SYS`",
    ),
    option(
        "VS430",
        "accounts { A { exports: [{service: 'o.*'}] }, B { users: [{user: b, password: $P}], mappings { 'o.>': 'p.>' }, "
        "imports: [{service: {account: A, subject: ‹'o.*'›}}] } }\n",
        "'o.*'}, to: 'p.*'}] } }\n# ",
        "import what it is renamed to",
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
    Case(
        "VS210",
        '[{"name": "o", "subjects": ["o.>"], "republish": {"src": "o.>", "dest": "p.>"}}, '
        '{"name": "q", "subjects": ["q.>"], "republish": {"src": "q.>", "dest": "o.>"}}, '
        '{"name": "p", "subjects": ["p.>"], "republish": {"src": "p.>", "dest": ‹"q.>"›}}]',
        '"r.>"',
        "no stream stores",
        "s.json",
    ),
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
    Case("VS243", consumer('"ack_wait": ‹30000000000›, "backoff": [1000000000]'), "1000000000", "write 1000", "c.json"),
    Case(
        "VS243",
        consumer('"deliver_group": ‹"q"›'),
        '"q", "deliver_subject": "d"',
        "add `deliver_subject`",
        "c.json",
    ),
    Case("VS242", consumer('"replay_policy": ‹"orignal"›'), '"original"', "did you mean `original`?", "c.json"),
    # Rules, by accounts.go and client.go
    Case(
        "VS316",
        SERVER + "gateway { name: west, listen: 127.0.0.1:7222, gateways: [{name: east, url: 'nats://e:7222'}, "
        "{name: cent, url: 'nats://c:7222'}] }\n" + RULES.join(("mappings { ‹", "› }\n")),
        RULES.replace("}]", '}, {destination: "_vs.a.cent.>", weight: 100%, cluster: cent}]'),
        "add one for each cluster",
    ),
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
        "VS317",
        f"mappings {{\n  {RULES}\n  "
        + RULES.replace("a.", "b.").replace('"_vs.b.east.>"', '‹"_vs.b.eats.>"›')
        + "\n}\n",
        '"_vs.b.east.>"',
        "write `_vs.b.east.>`",
    ),
    Case(
        "VS317",
        "mappings {\n  "
        + "\n  ".join(
            (RULES, RULES.replace("a.", "c."), RULES.replace("a.", "b.").replace("_vs.b.west", "_vs.b.at"))
        ).replace('"_vs.b.east.>"', '‹"_vs.b.west.>"›')
        + "\n}\n",
        '"_vs.b.east.>"',
        "write `_vs.b.east.>`",
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
    # What an operator forbids and needs, by jwt.go (validateTrustedOperators) and leafnode.go (validateLeafNode)
    *(
        option(code, SIGNED + text, cure, hint)
        for code, text, cure, hint in (
            (
                "VS426",
                f"authorization {{ timeout: 2, ‹auth_callout› {{ issuer: {ACCOUNT}, auth_users: [a] }} }}\n",
                "} # ",
                "token of the account",
            ),
            (
                "VS426",
                "leafnodes { listen: 127.0.0.1:7422, authorization { ‹users›: [{ user: a, password: $P }] } }\n",
                "timeout: 2 } }\n# ",
                "credentials of a user",
            ),
            (
                "VS426",
                "leafnodes { listen: 127.0.0.1:7422, authorization { account: ‹APP› } }\n",
                ACCOUNT,
                "begins with `A`",
            ),
            ("VS426", "resolver_pinned_accounts: [‹APP›]\n", ACCOUNT, "begins with `A`"),
            ("VS424", f"resolver_preload ‹{{ {ACCOUNT}: {TOKEN} }}›\n", "{}", "remove `resolver_preload`"),
            ("VS430", "authorization { ‹token›: $P }\n", "timeout: 2 } #", "nsc add user"),
            ("VS430", "authorization { ‹user›: a, password: $P }\n", "timeout: 2 } #", "nsc add user"),
            ("VS430", "authorization { ‹default_permissions› { publish: a } }\n", "timeout: 2 } #", "nsc add user"),
        )
    ),
    option("VS426", f"‹operator›: {TOKEN}\n", "resolver: MEMORY\noperator", "add `resolver`"),
    option(
        "VS426",
        f"operator: eyJhbGciOiJlZDI1NTE5LW5rZXkifQ.{UNNAMED}.AA\n‹resolver› {{ type: full, dir: /r }}\n",
        f"system_account: {SYSTEM}\nresolver",
        "add `system_account`",
    ),
    option(
        "VS426",
        "accounts { S {} }\nsystem_account: S\ndefault_js_domain { ‹S: hub› }\n",
        "",
        "remove it",
    ),
    option(
        "VS426",
        "jetstream { store_dir: /d, ‹key›: $KEY, tpm { keys_file: /k, encryption_password: $P } }\n",
        "cipher: aes } #",
        "remove one of them",
    ),
    *(
        option(
            "VS426",
            f"jetstream {{ store_dir: /d, {text} }}\n" + render_routed("s", 4222, 4223).partition("\n")[2],
            cure,
            hint,
        )
        for text, cure, hint in (
            ("extension_hint: ‹extend›", "no_extend", "did you mean `no_extend`?"),
            ("max_outstanding_catchup: ‹-5›", "64MB", "the default is 64MB"),
        )
    ),
    option(
        "VS430",
        "jetstream { store_dir: /d }\nmqtt { port: 1883, ‹consumer_replicas: 3› }\n",
        "",
        "remove it",
    ),
    *(
        option("VS431", text, cure, hint)
        for text, cure, hint in (
            ("log_file: ‹/var/log/nats/›\n", "/var/log/nats/nats.log", "write `/var/log/nats/nats.log`"),
            (
                f"accounts {{ S {{ {GUESTS.replace(': a', ': s')} }}, A {{ {GUESTS} }} }}\nsystem_account: S\nno_auth_user: ‹s›\n",
                "a",
                "another account",
            ),
            ("accounts { ‹'my app'› {} }\n", "my-app", "write `my-app`"),
            ("accounts { ‹'a.b'› {} }\n", "a-b", "write `a-b`"),
            ("jetstream { store_dir: /d, max_mem: 1G, max_file: ‹-5› }\n", "5G", "write a size"),
        )
    ),
    Case(
        "VS245",
        '{"name": "o", "sources": [{"name": "b", "external": {"api": ‹"$JS.hub.APIS"›, "deliver": ""}}]}',
        '"$JS.hub.API"',
        "write `$JS.hub.API`",
        "o.json",
    ),
    option(
        "VS430", "accounts { A { exports: [{ service: a, latency: { ‹samplng›: 5, subject: x } }] } }\n", "sampling"
    ),
    option("VS430", "operator: /o.jwt\nresolver { type: full, dir: /r, ‹intervall›: '2m' }\n", "interval"),
    option("VS424", "accounts [ ‹{ name: A }› ]\n", "A", "write `accounts { NAME"),
    Case("VS424", "server_name: s\nlisten: ‹nats://127.0.0.1:4222›\n", "127.0.0.1:4222", "`host:port`"),
    option(
        "VS425",
        'accounts { A { imports: [{ stream: ‹"a.>"› }] }, B { exports: [{ stream: "a.>" }] } }\n',
        '{account: B, subject: "a.>"}',
        'write `stream: {account: NAME, subject: "a.>"}`',
    ),
    option("VS426", "system_account: ‹SYS›\n", "SYS\naccounts { SYS {} }", "add it to `accounts`"),
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
    # Values without the unit that was meant, and what nobody means: tried with 2.15.1
    *(
        Case("VS245", stream(text), cure, hint, "orders.json")
        for text, cure, hint in (
            ('"max_age": ‹3600›', "3600000000000", "write 3600000000000 for 3600 seconds"),
            ('"max_age": ‹604800000›', "604800000000000", "604800000000000 for 604800000 milliseconds"),
            ('"max_bytes": ‹10›', "10485760", "write 10485760 for 10 MiB"),
            ('"max_msg_size": ‹8›', "8388608", "write 8388608 for 8 MiB"),
            ('"allow_msg_ttl": true, "subject_delete_marker_ttl": ‹30›', "30000000000", "30000000000 for 30 seconds"),
            ('"consumer_limits": {"inactive_threshold": ‹300›}', "300000000000", "300000000000 for 300 seconds"),
        )
    ),
    *(
        Case("VS245", consumer(text), cure, hint, "c.json")
        for text, cure, hint in (
            ('"ack_wait": ‹30›', "30000000000", "30000000000 for 30 seconds"),
            ('"ack_wait": ‹30000›', "30000000000", "30000000000 for 30000 milliseconds"),
            ('"max_deliver": 5, "backoff": [‹1›, 5, 30]', "1000000000", "1000000000 for 1 seconds"),
            ('"inactive_threshold": ‹300›', "300000000000", "300000000000 for 300 seconds"),
            ('"deliver_subject": "x", "idle_heartbeat": ‹5›', "5000000000", "5000000000 for 5 seconds"),
        )
    ),
    *(
        option("VS431", text, cure, hint)
        for text, cure, hint in (
            ("max_payload: ‹8›\n", "8MB", "write 8MB"),
            ("max_control_line: ‹4›\n", "4KB", "write 4MB"),
            ("jetstream { store_dir: /d, max_mem: 1G, max_file: ‹10› }\n", "10GB", "10GB"),
            ("jetstream { store_dir: ‹~/nats›, max_mem: 1G, max_file: 1G }\n", "/nats", "write the whole path"),
            ('ping_interval: ‹"2ms"›\n', '"2m"', "a longer time"),
            ("tls { cert_file: /c, key_file: /k, timeout: ‹2000› }\n", '"2000ms"', 'write "2000ms"'),
            ('server_tags: ‹"az:1,cloud:aws"›\n', '["az:1", "cloud:aws"]', 'write ["az:1", "cloud:aws"]'),
            ('client_advertise: ‹"0.0.0.0:4222"›\n', '"n1.example.com:4222"', "name or address"),
            ("authorization { users: [{user: ‹a›}] }\n", "a, password: $P", "add `password`"),
            ("authorization { users: [{user: a, password: ‹'$PASSWORD'›}] }\n", "$PASSWORD", "remove the quotes"),
            ("authorization { token: ‹'$TOKEN'› }\n", "$TOKEN", "remove the quotes"),
            (
                "authorization { users: [{user: a, password: $P, permissions {publish {allow: [‹a.b›], deny: ['a.>']}}}] }\n",
                "b.a",
                "remove one of them",
            ),
            (
                "authorization { users: [{user: a, password: $P}], auth_callout { issuer: $I, auth_users: [‹b›] } }\n",
                "a",
                "the name of one that exists",
            ),
            ("tls { cert_file: /c, key_file: /k, ‹verify›: true }\n", "ca_file: /ca, verify", "add `ca_file`"),
        )
    ),
    *(
        option("VS424", text, cure, hint)
        for text, cure, hint in (
            ("ping_interval: ‹2›\n", '"2s"', 'write "2s"'),
            ("ping_interval: ‹2m›\n", '"2m"', 'write "2m"'),
            ("lame_duck_duration: ‹60›\n", '"60s"', 'write "60s"'),
            ("cluster { name: a, port: 6222, routes: ‹'nats://h:6222'› }\n", "['nats://h:6222']", "put `[` and `]`"),
            ("authorization { token: ‹12345› }\n", '"12345"', 'write "12345", in quotes'),
            (
                "tls { cert_file: /c, key_file: /k, cipher_suites: [‹TLS_AES_128_GCM_SHA25›] }\n",
                "TLS_AES_128_GCM_SHA256",
                "did you mean",
            ),
            ("jetstream: ‹yess›\n", "enabled", "write `enabled`"),
            ("mqtt { port: 1883, max_ack_pending: ‹70000› }\njetstream: enabled\n", "65535", "write 65535 or less"),
            ("leafnodes { remotes: ‹{ url: 'nats://h' }› }\n", "[{ url: 'nats://h' }]", "put `[` and `]`"),
        )
    ),
    *(
        option("VS425", text, cure, hint)
        for text, cure, hint in (
            (
                "authorization { users: [{ nkey: ‹ADXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4› }] }\n",
                NKEY,
                "begin with `U`",
            ),
            (f"authorization {{ users: [{{ nkey: {NKEY}, ‹password: $P› }}] }}\n", "", "remove `password`"),
            (
                f"accounts {{ A {{ users: [{{nkey: {NKEY}}}] }}, B {{ users: [{{nkey: ‹{NKEY}›}}] }} }}\n",
                NKEY_2,
                "must be unique",
            ),
            ("authorization { ‹token: $T, ›users: [{ user: a, password: $P }] }\n", "", "remove the token"),
            ("accounts { A { exports: [{service: x, accounts: [‹BB›]}] }, B {} }\n", "B", "did you mean `B`?"),
            ("accounts { A { exports: [{service: 'x.*', account_token_position: ‹3›}] } }\n", "2", "write 2"),
            (
                "accounts { A { exports: [{service: x, latency { sampling: 10%, subject: ‹'l.*'› }}] } }\n",
                "l",
                "without wildcards",
            ),
            (
                "accounts { A { imports: [{stream {account: B, subject: y}, prefix: ‹'p.>'›}] }, B { exports: [{stream: y}] } }\n",
                "p",
                "without `*` and `>`",
            ),
            (
                "accounts { A { imports: [{service {account: B, subject: y}, to: z}, {service {account: B, subject: w}, to: ‹z›}] }, B { exports: [{service: y}, {service: w}] } }\n",
                "q",
                "to another subject",
            ),
            (
                "accounts { A { exports: [{service: x}], imports: [{service {account: B, subject: ‹y›}, to: x}] }, B { exports: [{service: y}, {service: v}], imports: [{service {account: A, subject: x}, to: y}] } }\n",
                "v",
                "subjects that exclude each other",
            ),
            ("accounts { ‹$G› { users: [{user: a, password: $P}] } }\n", "APP", "another name"),
        )
    ),
    *(
        option("VS426", text, cure, hint)
        for text, cure, hint in (
            (
                "accounts { SYS { ‹jetstream: enabled› } }\nsystem_account: SYS\njetstream { store_dir: /d }\n",
                "",
                "remove it here",
            ),
            ("no_auth_user: ‹guest›\n", "g\nauthorization { users: [{user: g, password: $P}] }", "add the user"),
            ("‹https›: 127.0.0.1:8222\n", "http", "or write `http`"),
            (
                "leafnodes { remotes: [{ urls: ['ws://h:443', ‹'nats://h:7422'›] }] }\n",
                "'ws://g:443'",
                "`ws://` or `wss://`",
            ),
            (
                "websocket { port: 8080, no_tls: true, allowed_origins: [‹'*'›] }\n",
                "'https://app.example.com'",
                "https://HOST",
            ),
            ("client_advertise: ‹'nats://h:4222'›\n", "'h:4222'", "write `h:4222`"),
            ("leafnodes { remotes: [{ url: 'nats://h:1' }, ‹{ url: 'nats://h:1' }›] }\n", "", "remove it"),
            ("gateway { name: ‹'us west'›, port: 7222 }\n", "us-west", "write `us-west`"),
            (
                "cluster { name: c, port: 6222, pool_size: ‹-1›, accounts: [A] }\naccounts { A {} }\n",
                "3",
                "remove `pool_size`",
            ),
            (
                "jetstream { store_dir: /d }\ncluster { name: c, port: 6222, ‹routes›: [] }\n",
                "routes: ['nats://h:6222'], no_advertise: true #",
                "add `routes",
            ),
        )
    ),
    *(
        option("VS429", text, cure, hint)
        for text, cure, hint in (
            (
                "leafnodes { listen: 127.0.0.1:7422, remotes: [{ url: ‹'nats://127.0.0.1:7422'› }] }\n",
                "'nats://h:7422'",
                "another server",
            ),
            ("leafnodes { remotes: [{ url: ‹'nats://hub:4222'› }] }\n", "'nats://hub:7422'", "such as 7422"),
            (
                "gateway { name: w, port: 7222, gateways: [{ name: e, url: ‹'nats://e:4222'› }] }\n",
                "'nats://e:7222'",
                "such as 7222",
            ),
            ("cluster { name: w, port: 6222, routes: [‹'nats://n2'›] }\n", "'nats://n2:6222'", "add the port"),
            ("cluster { name: w, port: 6222, routes: [‹'n2:6222'›] }\n", "'nats://n2:6222'", "write `nats://n2:6222`"),
        )
    ),
    option(
        "VS430",
        "cluster { name: w, port: 6222, authorization { user: r, password: $P }, routes: [‹'nats://n2:6222'›] }\n",
        "'nats://r:x@n2:6222'",
        "USER:PASSWORD",
    ),
    option(
        "VS430",
        "accounts { APP { users: [{user: a, password: $P}] }, OTHER { ‹mappings› { 'o.>': 'p.>' } } }\n",
        "users: [{user: b, password: $P}], mappings",
        "to the account whose users publish",
    ),
    *(
        Case("VS243", consumer(text), cure, hint, "c.json")
        for text, cure, hint in (
            ('"num_replicas": ‹7›', "3", "1, 3 or 5"),
            ('"sample_freq": ‹"all"›', '"100%"', "a percentage"),
            ('"deliver_subject": ‹"x.*"›', '"x"', "one subject"),
            ('"filter_subject": ‹"a..b"›', '"a.b"', "single dots"),
            (
                '"deliver_subject": "x", "priority_groups": ‹["a"], "priority_policy": "overflow"›',
                '[], "priority_policy": "none"',
                "remove them",
            ),
        )
    ),
    Case(
        "VS242",
        consumer('"deliver_policy": "by_start_time", "opt_start_time": ‹"2024-13-01T00:00:00Z"›'),
        '"2024-12-01T00:00:00Z"',
        "",
        "c.json",
    ),
    Case("VS244", stream('"num_replicas": ‹-1›'), "1", "1, 3 or 5", "orders.json"),
    Case(
        "VS244", stream('"republish": {"src": "o.*", "dest": ‹"copy.>"›}'), '"copy.{{wildcard(1)}}"', "", "orders.json"
    ),
    Case(
        "VS235",
        '[{"name": "o", "subjects": ["a"]}, {"name": ‹"o"›, "subjects": ["b"]}]',
        '"p"',
        "a name of its own",
        "o.json",
    ),
    Case(
        "VS246",
        '[{"name": "o", "subjects": ["o.>"]}, {"stream_name": "o", "config": {"durable_name": "d", "filter_subject": ‹"order.>"›}}]',
        '"o.x"',
        "what the stream holds",
        "o.json",
    ),
    Case(
        "VS246",
        '[{"stream_name": "o", "config": {"durable_name": "d", "ack_policy": "explicit"}}, '
        '{"stream_name": "o", "config": {"durable_name": ‹"d"›, "ack_policy": "all"}}]',
        '"e"',
        "a name of its own",
        "c.json",
    ),
    Case(
        "VS247",
        '[{"name": "orders", "subjects": ["o.>"]}, {"stream_name": ‹"oders"›, "config": {"durable_name": "d"}}]',
        '"orders"',
        "did you mean `orders`?",
        "o.json",
    ),
    Case(
        "VS248",
        '{"name": "KV_config", "subjects": ‹["$KV.conf.>"]›, "allow_rollup_hdrs": true}',
        '["$KV.config.>"]',
        "`$KV.config.>`",
        "kv.json",
    ),
    # What checkStreamCfg and checkConsumerCfg refuse besides: tried with 2.10, 2.12 and 2.15
    *(
        Case("VS244", stream(text), cure, hint, "orders.json")
        for text, cure, hint in (
            (f'"description": ‹"{"x" * 4097}"›', '"x"', "shorten it"),
            (f'"metadata": ‹{{"a": "{"x" * 131072}"}}›', "{}", "keep less"),
            ('"max_age": ‹-1›', "0", "write 0"),
            ('"subject_delete_marker_ttl": ‹-1›', "0", "write 0"),
            ('"allow_msg_schedules": true, "discard": ‹"new"›', '"old"', '"discard": "old"'),
            ('"allow_msg_counter": true, "allow_msg_schedules": ‹true›', "false", "remove"),
            ('"persist_mode": ‹"async"›, "storage": "memory"', '"default"', "remove `persist_mode`"),
            ('"placement": {"cluster": "c", "preferred": ‹"n1"›}', '""', "remove `preferred`"),
            ('"sources": [{"name": ‹"a.b"›}]', '"a-b"', "letters, digits"),
            ('"sources": [{"name": "a", "filter_subject": ‹"o..x"›}]', '"o.x"', "single dots"),
            ('"sources": [{"name": "a", "external": {"api": ‹"$JS.API"›}}]', '"$JS.hub.API"', "$JS.hub.API"),
            ('"sources": [{"name": "a", "external": {"api": "x", "deliver": ‹"d.>"›}}]', '"d"', "without wildcards"),
            (
                '"sources": [{"name": "a", "consumer": ‹{"name": "d"}›}]',
                '{"name": "d", "deliver_subject": "x"}',
                "add it",
            ),
            (
                '"sources": [{"name": "a", "opt_start_seq": ‹1›, "consumer": {"name": "d", "deliver_subject": "x"}}]',
                "0",
                "remove it",
            ),
            (
                '"sources": [{"name": "a", "subject_transforms": ‹[{"src": "o.>", "dest": "p.>"}, {"src": "o.b", "dest": "q"}]›}]',
                '[{"src": "o.>", "dest": "p.>"}]',
                "no other one takes",
            ),
        )
    ),
    Case("VS203", stream('‹"template_owner"›: "t"'), '"description"', "remove it", "orders.json"),
    *(
        Case("VS243", consumer(text), cure, hint, "c.json")
        for text, cure, hint in (
            ('"ack_wait": ‹-1›', "0", "nanoseconds"),
            ('"backoff": ‹[1000000000, -1]›', "[1000000000]", "from 0 on"),
            ('"deliver_subject": ‹"d..x"›', '"d.x"', "single dots"),
            ('"direct": ‹true›', "false", "remove `direct`"),
            ('"priority_policy": "overflow", "priority_groups": ‹["a b"]›', '["a"]', "16 letters"),
            ('"sample_freq": ‹"-5"›', '"5"', "a percentage"),
            (f'"description": ‹"{"x" * 4097}"›', '"x"', "shorten it"),
        )
    ),
    *(
        Case("VS243", f'{{"durable_name": "d", "deliver_subject": "x", {text}}}', cure, hint, "c.json")
        for text, cure, hint in (
            ('"ack_policy": "none", "max_ack_pending": ‹5›', "0", "explicit"),
            ('"ack_policy": "flow_control", "ack_wait": ‹1000000000›', "0", "remove it"),
            ('"ack_policy": "flow_control", "max_ack_pending": ‹-1›', "1000", "write 1000"),
        )
    ),
    *(
        Case(
            "VS246",
            f'[{{"name": "o", "subjects": ["o.>"], {fields}}}, {{"stream_name": "o", "config": {{"durable_name": "d", "ack_policy": "explicit", {text}}}}}]',
            cure,
            hint,
            "o.json",
        )
        for fields, text, cure, hint in (
            ('"retention": "workqueue"', '"deliver_policy": ‹"new"›', '"all"', '"deliver_policy": "all"'),
            ('"retention": "interest", "num_replicas": 3', '"num_replicas": ‹1›', "3", "remove `num_replicas`"),
            ('"consumer_limits": {"max_ack_pending": 10}', '"max_ack_pending": ‹50›', "10", "10 or less"),
            (
                '"consumer_limits": {"inactive_threshold": 60000000000}',
                '"inactive_threshold": ‹120000000000›',
                "60000000000",
                "or less",
            ),
        )
    ),
    # Listeners, links, logs and certificates, by websocket.go, mqtt.go, leafnode.go, log.go and opts.go: tried with 2.15.1
    *(
        option(code, text, cure, hint)
        for code, text, cure, hint in (
            ("VS424", "websocket { port: 8080, no_tls: true, headers { ‹Upgrade›: x } }\n", "X-Site", "remove it"),
            ("VS424", "websocket { port: 8080, no_tls: true, headers { ‹Host›: x } }\n", "X-Site", "remove it"),
            ("VS424", "websocket { port: 8080, no_tls: true, headers { ‹Nats-No-Masking›: x } }\n", "X-Site", "remove"),
            (
                "VS426",
                "jetstream { store_dir: /d }\nmqtt { port: 1883, no_auth_user: ‹b› }\n",
                "b }\nauthorization { users: [{user: b, password: $P}]",
                "add the user",
            ),
            (
                "VS425",
                "cluster { name: c, port: 6222, permissions { import { allow: [‹'a..b'›] } } }\n",
                "'a.b'",
                "single dots",
            ),
            (
                "VS425",
                "leafnodes { port: 7422, authorization { ‹user›: a, users: [{user: b, password: $P}] } }\n",
                "timeout: 2 #",
                "into `users`",
            ),
            (
                "VS425",
                "leafnodes { port: 7422, authorization { users: [{user: b, password: $P}, {user: ‹b›, password: $Q}] } }\n",
                "c",
                "a name of its own",
            ),
            (
                "VS425",
                "accounts { A { imports: [{ stream: { account: B, subject: b }, prefix: ‹p›, to: q }] }, B { exports: [{stream: b}] } }\n",
                "p }] }, B { exports: [{stream: b}] } } #",
                "remove one",
            ),
            (
                "VS425",
                "authorization { users: [{user: a, password: $P, permissions { subscribe: ‹'a.> q w'› }}] }\n",
                "'a.> q'",
                "single dots",
            ),
            (
                "VS426",
                "leafnodes { remotes: [{ url: 'ws://h', proxy { url: ‹'socks5://h:1'› } }] }\n",
                "'http://h:1'",
                "http://HOST",
            ),
            (
                "VS426",
                "leafnodes { remotes: [{ url: 'ws://h', proxy { url: ‹'http://'› } }] }\n",
                "'http://h:1'",
                "http://HOST",
            ),
            (
                "VS426",
                "leafnodes { remotes: [{ url: 'ws://h', proxy { url: 'http://h:1', ‹username›: u } }] }\n",
                "password: p, username",
                "add `password`",
            ),
            (
                "VS426",
                "leafnodes { port: 7422 }\n‹gateway› { name: c, port: 7222 }\n",
                "accounts { SYS {} }\nsystem_account: SYS\ngateway",
                "system_account",
            ),
            ("VS426", "system_account: ‹'$SYS'›\n", "SYS\naccounts { SYS {} }", "add it to `accounts`"),
            ("VS426", "remote_syslog: ‹'loghost:514'›\n", "'udp://loghost:514'", "udp://HOST"),
            ("VS426", "remote_syslog: ‹'http://loghost:514'›\n", "'tcp://loghost:514'", "tcp://HOST"),
            ("VS426", "‹store_dir›: /a\njetstream { store_dir: /d }\n", "log_file", "remove one"),
            (
                "VS426",
                "default_js_domain { ‹A›: hub }\naccounts { A { jetstream: enabled }, B {} }\n",
                "B",
                "or the `jetstream`",
            ),
            ("VS426", "tls { cert_file: /c, key_file: /k, ‹cipher_suites›: [] }\n", "verify: false #", "remove it"),
            (
                "VS426",
                "tls { cert_file: /c, key_file: /k, cipher_suites: [‹TLS_RSA_WITH_RC4_128_SHA›] }\n",
                "TLS_AES_128_GCM_SHA256",
                "allow_insecure",
            ),
            (
                "VS426",
                "tls { cert_file: /c, key_file: /k, ‹certs›: [{cert_file: /a, key_file: /b}] }\n",
                "verify: false #",
                "move the file",
            ),
            (
                "VS426",
                "tls { cert_file: /c, key_file: /k, ‹verify_cert_and_check_known_urls›: true }\n",
                "verify: true #",
                "verify: true",
            ),
            (
                "VS430",
                "cluster { name: c, port: 6222, routes: [‹'ws://h:6222'›] }\n",
                "'nats://h:6222'",
                "nats://h:6222",
            ),
            (
                "VS430",
                "gateway { name: c, port: 7222, gateways: [{name: d, url: ‹'wss://h:7222'›}] }\n",
                "'nats://h:7222'",
                "nats://h:7222",
            ),
            ("VS430", "leafnodes { remotes: [{ url: ‹'https://h:443'› }] }\n", "'wss://h:443'", "wss://h:443"),
            ("VS430", "‹remote_syslog›: 'udp://h:514'\nlog_file: /l\n", "pid_file", "remove `log_file`"),
            ("VS430", "‹syslog›: true\nlog_file: /l\n", "debug", "remove `log_file`"),
            ("VS430", "‹allow_non_tls›: true\n", "debug", "add `tls"),
            ("VS430", "‹ocsp› { mode: always }\n", "tls { cert_file: /c, key_file: /k }\nocsp", "add `tls"),
        )
    ),
    # Types that only the server's own parser has, and forms of texts
    *(
        option("VS424", text, cure, hint)
        for text, cure, hint in (
            ('tls { cert_file: /c, key_file: /k, pinned_certs: [‹"AB:CD"›] }\n', f'"{"a" * 64}"', "sha256sum"),
            ("ocsp { mode: ‹sometimes› }\n", "always", "`auto`"),
            ("ocsp: ‹always›\n", "{ mode: always }", "{ … }"),
            ('trusted_keys: [‹"OABC"›]\n', f'"{OPERATOR}"', "begin with `O`"),
            ("websocket { port: 8080, no_tls: true, headers { X-Site: ‹7› } }\n", '"7"', "in quotes"),
            ("websocket { port: 8080, no_tls: true, headers { ‹Sec-WebSocket-Accept›: a } }\n", "X-Site", "remove it"),
            (f"operator: {OPERATOR}\nresolver {{ type: ‹ful›, dir: /r }}\n", "full", "did you mean `full`?"),
            (f"operator: {OPERATOR}\nresolver: ‹FULL›\n", "MEMORY", "MEMORY"),
            (f"operator: {OPERATOR}\nresolver: ‹URL(jwt.example.com)›\n", "URL(https://jwt.example.com)", "https://"),
            (f"operator: {OPERATOR}\nresolver ‹{{ type: full }}›\n", "{ type: full, dir: /r }", "add `dir`"),
            (f"operator: {OPERATOR}\nresolver {{ type: full, dir: /r, ‹ttl›: '2h' }}\n", "interval", "remove it"),
            (f"operator: {OPERATOR}\nresolver {{ type: full, dir: /r, interval: ‹'2x'› }}\n", '"2m"', '"2m"'),
            ("accounts { A { msg_trace: ‹'t.*'› } }\n", "t", "without wildcards"),
            ("accounts { A { msg_trace { dest: t, sampling: ‹200› } } }\n", "100", "100 or less"),
            ("cluster { name: a, port: 6222, routes: [‹'nats://[::1:6222'›] }\n", "'nats://[::1]:6222'", "nats://HOST"),
            ("tls { cert_file: /c, key_file: /k, handshake_first: ‹maybe› }\n", "auto", "write"),
            ("http: ‹localhost›\n", "8222", "a port"),
            ("write_timeout: ‹closed›\n", "close", "did you mean `close`?"),
            ("proxies { trusted: [{key: ‹ABC›}] }\n", NKEY, "56 letters"),
            ("leafnodes { port: 7422, min_version: ‹'latest'› }\n", "'2.10.0'", "2.10.0"),
            ("server_metadata: ‹['a']›\n", "{ a: b }", "{ … }"),
            ("no_fast_producer_stall: ‹'x'›\n", "true", "write false"),
            ("accounts { A { jetstream { max_streams: ‹'10'› } } }\n", "10", "without quotes"),
            ("jetstream { store_dir: /d, max_mem: 1G, max_file: 1G, max_concurrent_io: ‹1› }\n", "4", "at least 4"),
        )
    ),
    *(
        option("VS425", text, cure, hint)
        for text, cure, hint in (
            (
                "authorization { users: [{user: a, password: $P}], ‹auth_callout› { auth_users: [a] } }\n",
                "# ",
                "issuer",
            ),
            (
                f"authorization {{ users: [{{user: a, password: $P}}], ‹auth_callout› {{ issuer: {ACCOUNT} }} }}\n",
                "# ",
                "auth_users",
            ),
            (
                f"accounts {{ X {{}} }}\nauthorization {{ users: [{{user: a, password: $P}}], auth_callout {{ issuer: {ACCOUNT}, auth_users: [a], account: ‹AUTH› }} }}\n",
                "X",
                "accounts",
            ),
            ("authorization { users: [{‹password›: $P}] }\n", "user: a, password", "add `user`"),
            (
                "accounts { A { users: [{user: a, password: $P}] } }\nauthorization { ‹user›: b }\n",
                "timeout: 1 # ",
                "into an account",
            ),
            ("accounts { A { exports: [{stream: a, ‹latency›: x}] } }\n", "# ", "a `service`"),
            ("accounts { A { exports: [{service: a, latency: ‹'x.*'›}] } }\n", "x", "without wildcards"),
            (
                "accounts { A { exports: [{stream: 'a.>'}] }, B { imports: [{stream: {account: A, subject: 'a.>'}}, {stream: {account: A, subject: ‹'a.>'›}}] } }\n",
                "'a.b.>'",
                "or remove it",
            ),
            (f"leafnodes {{ remotes: [{{url: 'nats://h', credentials: /c, ‹nkey›: {SEED}}}] }}\n", "# ", "remove one"),
        )
    ),
    *(
        option("VS426", text, cure, hint)
        for text, cure, hint in (
            ("leafnodes { port: 7422, authorization { user: a, password: $P, account: ‹Z› } }\n", "$G", "$G"),
            (
                "jetstream { store_dir: /d, max_mem: 1G, max_file: 1G }\nmqtt { port: 1883, ack_wait: ‹'-1s'› }\n",
                "'1s'",
                'write "1s"',
            ),
            ("‹resolver› { type: full, dir: /r }\n", f"operator: {OPERATOR}, resolver", "add `operator`"),
            ("‹default_sentinel›: abc\n", "# ", "remove it"),
            ("accounts { A {} }\ncluster { name: a, port: 6222, accounts: [A, ‹A›] }\n", "", "remove one"),
            (
                "authorization { user: a, password: $P }\nno_auth_user: ‹a›\n",
                "a\nauthorization { users: [{user: a, password: $P}] }",
                "into `users",
            ),
        )
    ),
    *(
        option(code, text, cure, hint)
        for text, cure, hint, code in (
            (
                "mappings { 'o.*': ‹'p.{{partition(0,1)}}'› }\n",
                "'p.{{partition(3,1)}}'",
                "number of partitions",
                "VS307",
            ),
            ("accounts { A { exports: [{stream: q, ‹service›: q}] } }\n", "accounts: [A] #", "two items", "VS425"),
            (
                "accounts { A { exports: [{service: q}] }, B { imports: [{‹service›: {account: A}}] } }\n",
                "service: {account: A, subject: q}}] } } #",
                "add `subject`",
                "VS425",
            ),
            (
                "websocket { port: 80, no_tls: true, authorization { ‹token›: t } }\nauthorization { users: [{user: a, password: $P}] }\n",
                "timeout: 2 #",
                "remove it",
                "VS426",
            ),
            (
                "cluster { name: c, port: 6222, compression { mode: s2_auto, ‹rtt_thresholds›: [1ms, 2ms, 3ms, 4ms, 5ms] } }\n",
                "rtt_thresholds: [1ms, 2ms, 3ms, 4ms] } } #",
                "4 or less",
                "VS426",
            ),
            ("leafnodes { port: 7422, min_version: ‹2.7.0› }\n", "2.8.0", "2.10.0", "VS424"),
            ("http: ‹'127.0.0.1:82222222'›\n", "'127.0.0.1:8222'", "at most 65535", "VS426"),
            ("operator: o.jwt\n‹accounts› { A: {} }\n", "#", "token of the account", "VS426"),
            ("operator: o.jwt\n‹mappings› { 'a.*': 'b.$1' }\n", "#", "token of the account", "VS426"),
            (
                "operator: o.jwt\nauthorization { ‹users›: [{user: u, password: p}] }\n",
                "timeout: 2 } #",
                "token of the account",
                "VS426",
            ),
            (f"operator: o.jwt\n‹trusted_keys›: [{OPERATOR}]\n", "#", "the operator says who is trusted", "VS426"),
            (
                f"operator: {TOKEN}\nresolver: MEMORY\nresolver_preload {{ A: {TOKEN} }}\nsystem_account: ‹{ACCOUNT}›\n",
                SYSTEM,
                f"write `{SYSTEM}`",
                "VS426",
            ),
            (
                f"trusted_keys: [{OPERATOR}]\nresolver: MEMORY\nresolver_preload {{ {ACCOUNT}: ‹eyJhbGciOi› }}\n",
                "$JWT",
                "all of the JWT",
                "VS424",
            ),
        )
    ),
    # Imports to other subjects, accounts without JetStream, addresses and operators: most of them tried with 2.14
    *(
        option(code, text, cure, hint)
        for code, text, cure, hint in (
            (
                "VS425",
                "accounts { A { imports: [{stream: {account: B, subject: 'a.*'}, to: ‹'b.{{wildcard(2)}}'›}] }, B { exports: [{stream: 'a.*'}] } }\n",
                "'b.{{wildcard(1)}}'",
                "as many `*`",
            ),
            (
                "VS425",
                "accounts { A { imports: [{service: {account: B, subject: 'a.*.*'}, to: ‹'b.$1'›}] }, B { exports: [{service: 'a.*.*'}] } }\n",
                "'b.$2.$1'",
                "as many `*`",
            ),
            (
                "VS425",
                "accounts { A { imports: [{stream: {account: B, subject: 'a.*'}, to: ‹'b.*.*'›}] }, B { exports: [{stream: 'a.*'}] } }\n",
                "'b.*.c'",
                "as many `*`",
            ),
            ("VS424", "authorization { users: [{user: ‹007›, password: $P}] }\n", '"007"', 'write "007"'),
            ("VS424", "authorization { users: [{user: a, password: ‹true›}] }\n", '"true"', 'write "true"'),
            (
                "VS424",
                "leafnodes { remotes: [{url: ‹'nats://h:7422,nats://i:7422'›}] }\n",
                "'nats://h:7422'",
                "each in",
            ),
            (
                "VS424",
                "gateway { name: c, port: 7222, gateways: [{name: d, url: ‹'nats://h:7222,nats://i:7222'›}] }\n",
                "'nats://h:7222'",
                "each in",
            ),
            (
                "VS430",
                "‹jetstream›: enabled, accounts { A { users: [{user: a, password: $P}] }, B {} }\n",
                "accounts { A { jetstream: enabled, users: [{user: a, password: $P}] } }, jetstream: enabled #",
                "to `A`",
            ),
            (
                "VS426",
                "jetstream { store_dir: /d }\nsystem_account: ‹'$G'›\n",
                "SYS\naccounts { SYS {} }",
                "write `SYS`",
            ),
            ("VS426", "operator: o.jwt\n‹no_auth_user›: u\n", "#", "remove it"),
            ("VS426", "operator: o.jwt\nsystem_account: ‹SYS›\n", ACCOUNT, "begins with `A`"),
            ("VS426", "operator: o.jwt\nleafnodes { remotes: [{url: 'nats://h', account: ‹APP›}] }\n", ACCOUNT, "`A`"),
            (
                "VS426",
                "operator: o.jwt\nleafnodes { remotes: [‹{url: 'nats://h'}›] }\n",
                f"{{url: 'nats://h', account: {ACCOUNT}}}",
                "write `account`",
            ),
            *(
                ("VS431", text, "'n1.example.com:1'", "the name or address")
                for text in (
                    "cluster { name: c, port: 6222, cluster_advertise: ‹'0.0.0.0:6222'› }\n",
                    "gateway { name: c, port: 7222, advertise: ‹'0.0.0.0:7222'› }\n",
                    "leafnodes { port: 7422, advertise: ‹'0.0.0.0:7422'› }\n",
                    "websocket { port: 8080, no_tls: true, advertise: ‹'0.0.0.0:8080'› }\n",
                )
            ),
        )
    ),
    *(
        option(code, text, cure, hint)
        for code, text, cure, hint in (
            (
                "VS430",
                "authorization { ‹default_permissions› { publish: x } }, accounts { A { users: [{user: a, password: $P}] } }\n",
                "timeout: 2 } #",
                "into the account",
            ),
            (
                "VS430",
                "authorization { user: a, password: $P, ‹default_permissions› { publish: x } }\n",
                "users: [{user: b, password: $P}], default_permissions",
                "users: [{",
            ),
            (
                "VS430",
                f"‹trusted_keys: [{OPERATOR}]›\naccounts {{ A {{ users: [{{user: a, password: $P}}] }} }}\n",
                "#",
                "remove it, or the users",
            ),
            ("VS426", f"trusted_keys: [{OPERATOR}]\nsystem_account: ‹SYS›\n", ACCOUNT, "begins with `A`"),
            ("VS431", "system_account: ‹'$G'›\n", "SYS\naccounts { SYS {} }", "write `SYS`"),
        )
    ),
    Case("VS249", '{"name": "o", "subjects": ["o.>", ‹"_INBOX.>"›]}', '"p.>"', "clients publish to", "o.json"),
    Case(
        "VS249",
        '{"name": ‹"o"›, "retention": "limits", "storage": "file"}',
        '"o", "subjects": ["o.>"]',
        "add `subjects`",
        "o.json",
    ),
    # Servers read fields in any case.
    Case(
        "VS244",
        '{"Name": "o", "Subjects": [‹"o..x"›], "Num_Replicas": 1, "Max_Age": 0}',
        '"o.x"',
        "single dots",
        "o.json",
    ),
    Case(
        "VS210",
        '{"name": "o", "subjects": ["o.>"], "republish": {"src": "o.>", "dest": ‹"$JS.API.>"›}}',
        '"copy.>"',
        "subjects of your own",
        "o.json",
    ),
    Case(
        "VS248",
        '{"name": "KV_c", "subjects": ["$KV.c.>"], "allow_rollup_hdrs": true, "max_bytes": 1048576, "discard": ‹"old"›}',
        '"new"',
        '"discard": "new"',
        "kv.json",
    ),
    Case(
        "VS248",
        '{"name": "KV_c", "subjects": ["$KV.c.>"], "allow_rollup_hdrs": true, "retention": ‹"workqueue"›}',
        '"limits"',
        '"retention": "limits"',
        "kv.json",
    ),
]


def check(case: Case, text: str) -> tuple[Finding, ...]:
    name = case.file
    return lint([Source(name=name, content=text.encode())], surroundings({name: text.encode()})).diagnostics


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.code}" for number, case in enumerate(CASES)])
def test_a_mistake_is_found_at_its_place_and_its_hint_makes_it_go_away(case: Case) -> None:
    hints = {
        (finding.code, finding.span.line, finding.span.column): finding.hint or ""
        for finding in check(case, case.mistake)
        if finding.span
    }
    assert (case.code, *case.place) in hints
    assert case.hint in hints[case.code, *case.place]
    assert case.code not in {finding.code for finding in check(case, case.corrected_text)}


@pytest.mark.parametrize(
    "text",
    [
        "accounts { A { imports: [{service: {account: B, subject: a}, to: 'b.*'}] }, B { exports: [{service: a}] } }\n",
        "accounts { A { imports: [{stream: {account: B, subject: 'a.>'}, to: 'b.>'}] }, B { exports: [{stream: 'a.>'}] } }\n",
        "jetstream: enabled\naccounts { $SYS { users: [{user: admin, password: p}] } }\n",
        "jetstream: enabled\naccounts { A { users: [{user: a, password: p}] } }\nauthorization { users: [{user: b, password: p}] }\n",
    ],
)
def test_what_servers_take_and_do_is_not_reported(text: str) -> None:
    report = lint([Source(name="a.conf", content=(SERVER + text).encode())], surroundings({"a.conf": text.encode()}))
    assert [finding.code for finding in report.diagnostics if finding.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("conf", "streams"),
    [
        # Another account has no limits, and another server has room.
        (STORE + "accounts { A { jetstream { max_streams: 1, max_file: 1M } }, B { jetstream: enabled } }\n", ""),
        (STORE + "leafnodes { remotes: [{ url: 'nats://h' }] }\n" + render_limited("max_streams: 1, max_file: 1M"), ""),
        (STORE + render_limited("max_streams: 2, max_file: 12M, max_bytes_required: true"), ""),
        (STORE, "other/"),
    ],
)
def test_streams_that_fit_their_servers_are_not_reported(conf: str, streams: str) -> None:
    size = 600000000 if streams else 6000000
    files = {
        "a.conf": (SERVER + conf).encode(),
        "o.json": stream(f'"max_bytes": {size}').encode(),
        f"{streams}p.json": f'{{"name": "p", "subjects": ["p"], "max_bytes": {size}}}'.encode(),
        "c.json": b'{"stream_name": "o", "config": {"durable_name": "d", "ack_policy": "explicit"}}',
        "other/c.json": b'{"stream_name": "o", "config": {"durable_name": "d", "ack_policy": "all"}}',
    }
    report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
    assert {finding.code for finding in report.diagnostics} <= {"VS211"}


@pytest.mark.parametrize(
    "text",
    [
        "server_name: s\nlisten: 127.0.0.1:-1\nmax_payload: 1\n",
        SERVER
        + "accounts { A { users: [{user: a, password: p, permissions {publish: {allow: [a], deny: ['>']}}}] } }\n",
        "authorization { users: [{user: a, password: p, permissions {publish: '$SYS.>', publish: '>'}}] }\n",
    ],
)
def test_what_may_be_meant_is_a_note_and_fails_nobody(text: str) -> None:
    report = lint([Source(name="a.conf", content=text.encode())], surroundings({"a.conf": text.encode()}))
    assert {finding.severity for finding in report.diagnostics} == {Severity.NOTE}


HUB_TLS = "tls { cert_file: /c, key_file: /k, handshake_first: true }"
LEAF_OPEN = "server_name: l\nlisten: 127.0.0.1:4300\nleafnodes { remotes: [{ url: URL }] }\n"
LEAF_CLUSTER = (
    LEAF_OPEN.replace("URL", "'nats://127.0.0.1:7422'") + "cluster { name: CLUSTER, listen: 127.0.0.1:6300 }\n"
)
HUB_CLUSTER = "leafnodes { listen: 127.0.0.1:7422 }\ncluster { name: hub, listen: 127.0.0.1:6222 }\n"
LOGIN = "'nats://u:p@127.0.0.1:7422'"
LEAF = "server_name: l\nlisten: 127.0.0.1:4300\nleafnodes { remotes: [{ url: 'tls://127.0.0.1:7422', tls "


SAME_USER = "u, password: $P, permissions {publish: 'o.>'}}] } }\n# "


TWO_USERS = "accounts { A { users: [{user: u, password: $P}, {user: v, password: $P}] } }\n"


def gateway(name: str, port: int, peer: int) -> str:
    return (
        f"server_name: {name}\nlisten: 127.0.0.1:{port}\naccounts {{ SYS1 {{}}, SYS2 {{}} }}\n"
        f"gateway {{ name: {name}, listen: 127.0.0.1:{port + 3000}, "
        f"gateways: [{{name: {name}2, url: 'nats://127.0.0.1:{peer + 3000}'}}] }}\n"
    )


def gateway_to(name: str, port: int, peer: str) -> str:
    return f"gateway {{ name: {name}, listen: 127.0.0.1:{port}, gateways: [{{name: {peer}, url: 'nats://h:7222'}}] }}\n"


def users(name: str, rights: str) -> str:
    return f"accounts {{ A {{ users: [{{user: {name}, password: $P, permissions {{{rights}}}}}] }} }}\n"


def render_linked(cluster: str, port: int, own: str) -> bytes:
    remotes = ", ".join(f'{{name: {name}, url: "nats://127.0.0.1:1"}}' for name in ("west", "east", "cent"))
    destinations = ", ".join(
        f'{{destination: "_vs.o.{name}.>", weight: 100%, cluster: {name}}}' for name in ("west", "east", own)
    )
    return (
        f"server_name: {cluster}\nlisten: 127.0.0.1:{port}\n"
        f"gateway {{name: {cluster}, listen: 127.0.0.1:{port + 3000}, gateways: [{remotes}]}}\n"
        f'mappings {{ "o.>": [{destinations}] }}\n'
    ).encode()


@pytest.mark.parametrize(
    ("case", "beside"),
    [
        (Case("VS244", stream('"max_bytes": ‹20000000000›'), "1000000000", "or less", "o.json"), SERVER + STORE),
        (Case("VS244", stream('"num_replicas": ‹3›'), "1", "write 1", "o.json"), SERVER + STORE),
        *(
            (Case("VS244", stream(fields), cure, hint, "o.json"), SERVER + STORE + render_limited(limit))
            for fields, cure, hint, limit in (
                ('"max_bytes": ‹30000000›', "20000000", "write 20000000", "disk_max_stream_bytes: 20M"),
                ('"max_bytes": ‹30000000›', "20000000", "write 20000000", "max_file: 20M"),
                ('"storage": "memory", "max_bytes": ‹3000000›', "2000000", "write 2000000", "max_mem: 2M"),
                ('"max_bytes": ‹-1›', "2000000", 'add `"max_bytes"', "max_bytes_required: true"),
                ('"max_consumers": ‹9›', "3", "write 3", "max_consumers: 3"),
            )
        ),
        *(
            (Case("VS244", f"[{stream(first)}, {second}]", cure, hint, "o.json"), SERVER + STORE + conf)
            for first, second, cure, hint, conf in (
                (
                    '"max_age": 0',
                    '{"name": ‹"p"›, "subjects": ["p"]}',
                    '"orders"',
                    "raise its `max_streams` to 2",
                    "accounts { A { jetstream { max_streams: 1 } } }",
                ),
                (
                    '"max_bytes": 600000000',
                    '{"name": "p", "subjects": ["p"], "max_bytes": ‹600000000›}',
                    "400000000",
                    "write less",
                    "",
                ),
                (
                    '"max_bytes": 6000000',
                    '{"name": "p", "subjects": ["p"], "max_bytes": ‹6000000›}',
                    "4000000",
                    "write less",
                    "accounts { A { jetstream { max_file: 10M } } }",
                ),
            )
        ),
        (
            Case("VS244", stream('"duplicate_window": ‹120000000000›'), "60000000000", "write 60000000000", "o.json"),
            SERVER + STORE.replace("{", '{ limits { duplicate_window: "1m" },'),
        ),
        *(
            (Case("VS243", consumer(fields), cure, hint, "c.json"), SERVER + conf)
            for fields, cure, hint, conf in (
                ('"max_ack_pending": ‹50›', "10", "write 10", STORE.replace("{", "{ limits { max_ack_pending: 10 },")),
                ('"max_batch": ‹50›', "10", "write 10", STORE.replace("{", "{ limits { max_request_batch: 10 },")),
                ('"max_ack_pending": ‹50›', "10", "write 10", STORE + render_limited("max_ack_pending: 10")),
            )
        ),
        (
            Case(
                "VS432", LEAF + "‹{ ca_file: /ca }› }] }\n", "{ ca_file: /ca, handshake_first: true }", "true", "l.conf"
            ),
            SERVER + f"leafnodes {{ listen: 127.0.0.1:7422, {HUB_TLS} }}\n",
        ),
        (
            Case(
                "VS432",
                LEAF + "{ ca_file: /ca, ‹handshake_first›: true } }] }\n",
                "insecure: false, handshake_first: false\n# ",
                "false",
                "l.conf",
            ),
            SERVER + "leafnodes { listen: 127.0.0.1:7422, tls { cert_file: /c, key_file: /k } }\n",
        ),
        (
            Case("VS432", LEAF + "‹{ ca_file: /ca }› }] }\n", "#", "remove it", "l.conf"),
            SERVER + "leafnodes { listen: 127.0.0.1:7422 }\n",
        ),
        (
            Case(
                "VS432",
                "server_name: l\nlisten: 127.0.0.1:4300\njetstream { store_dir: /l, domain: ‹hub› }\n"
                "leafnodes { remotes: [{ url: 'nats://127.0.0.1:7422' }] }\n",
                "leaf",
                "its own domain",
                "l.conf",
            ),
            SERVER + "jetstream { store_dir: /d, domain: hub }\nleafnodes { listen: 127.0.0.1:7422 }\n",
        ),
        (
            Case("VS432", LEAF_CLUSTER.replace("CLUSTER", "‹hub›"), "edge", "another name", "l.conf"),
            SERVER + HUB_CLUSTER,
        ),
        (
            Case("VS432", LEAF_OPEN.replace("URL", "‹'nats://127.0.0.1:7422'›"), LOGIN, "USER:PASSWORD", "l.conf"),
            SERVER + "leafnodes { listen: 127.0.0.1:7422, authorization { user: u, password: $P } }\n",
        ),
        (
            Case("VS432", LEAF_OPEN.replace("URL", "‹'nats://127.0.0.1:7422'›"), LOGIN, "USER:PASSWORD", "l.conf"),
            SERVER + "leafnodes { listen: 127.0.0.1:7422 }\nauthorization { user: u, password: $P }\n",
        ),
        (
            Case(
                "VS432",
                "server_name: l\nlisten: 127.0.0.1:4300\n"
                "leafnodes { listen: 127.0.0.1:7423, remotes: [‹{ url: 'nats://127.0.0.1:7422' }›] }\n",
                "",
                "remove one",
                "l.conf",
            ),
            SERVER + "leafnodes { listen: 127.0.0.1:7422, remotes: [{ url: 'nats://127.0.0.1:7423' }] }\n",
        ),
        (
            Case(
                "VS246",
                consumer('"filter_subject": ‹"orders.x"›').replace('{"dur', '{"stream_name": "all", "config": {"dur')
                + "}",
                '"p.x"',
                "`p.>`",
                "l.json",
            ),
            '{"name": "all", "sources": [{"name": "b", "subject_transforms": [{"src": "orders.>", "dest": "p.>"}]}]}',
        ),
        (
            Case("VS432", gateway("b", 4223, 4222) + "system_account: ‹SYS2›\n", "SYS1", "the same", "b.conf"),
            gateway("a", 4222, 4223) + "system_account: SYS1\n",
        ),
        (
            Case(
                "VS211",
                '{"name": "all", "sources": [{"name": "orders", "filter_subject": ‹"p.>"›}]}',
                '"o.x"',
                "`o.>`",
                "l.json",
            ),
            '{"name": "orders", "subjects": ["o.>"]}',
        ),
        (
            Case(
                "VS211",
                '{"name": "m", "mirror": {"name": "orders", "filter_subject": ‹"p.>"›}}',
                '"o.x"',
                "`o.>`",
                "l.json",
            ),
            '{"name": "orders", "subjects": ["o.>"]}',
        ),
        (
            Case(
                "VS432",
                gateway("b", 4223, 4222).replace("gateway {", "‹gateway› {"),
                "gateway { authorization { user: g, password: $P },",
                "the same `authorization`",
                "b.conf",
            ),
            gateway("a", 4222, 4223).replace("gateway {", "gateway { authorization { user: g, password: $P },"),
        ),
        (
            Case(
                "VS432",
                LEAF_OPEN.replace("URL", "‹'nats://u:wrong@127.0.0.1:7422'›"),
                "'nats://u:p%40ss@127.0.0.1:7422'",
                "the password that the hub has",
                "l.conf",
            ),
            SERVER + "leafnodes { listen: 127.0.0.1:7422 }\naccounts { A { users: [{user: u, password: 'p@ss'}] } }\n",
        ),
        *(
            (
                Case(
                    "VS432",
                    render_routed("b", 4223, 4222) + logins.replace("one", "‹two›"),
                    "one",
                    "the same",
                    "b.conf",
                ),
                render_routed("a", 4222, 4223) + logins,
            )
            for logins in (
                "accounts { A { users: [{user: u, password: one}] } }\n",
                "authorization { token: one }\n",
            )
        ),
        (
            Case(
                "VS432",
                render_routed("‹b›", 4223, 4222),
                "b\nauthorization { user: u, password: $P }",
                "the same `accounts`",
                "b.conf",
            ),
            render_routed("a", 4222, 4223) + "authorization { user: u, password: $P }\n",
        ),
        (
            Case(
                "VS432",
                render_routed("b", 4223, 4222) + "max_payload: ‹2MB›\n",
                "8MB",
                "`max_payload: 8388608`",
                "b.conf",
            ),
            render_routed("a", 4222, 4223) + "max_payload: 8MB\n",
        ),
        *(
            (
                Case("VS432", render_routed("b", 4223, 4222) + users("‹u›", rights), SAME_USER, "the same", "b.conf"),
                render_routed("a", 4222, 4223) + users("u", "publish: 'o.>'"),
            )
            for rights in (
                "publish: '>'",
                "publish: ['o.>', 'p']",
                "subscribe: 'o.>'",
                "publish: 'o.>', subscribe: {deny: x}",
            )
        ),
        *(
            (
                Case("VS432", render_routed(name, 4223, 4222) + text, cure, hint, "b.conf"),
                render_routed("a", 4222, 4223) + text.replace("‹", "").replace("›", "").replace(*difference),
            )
            for name, text, cure, hint, difference in (
                ("b", users("u", "") + "no_auth_user: ‹v›\n", "u", "the same", ("user: v", "user: u")),
                ("‹b›", users("u", ""), "b\nno_auth_user: u", "the same", ("}\n", "}\nno_auth_user: u\n")),
                (
                    "‹b",
                    users("u", "") + "›",
                    render_routed("b", 4223, 4222).removeprefix("server_name: ") + TWO_USERS,
                    "add it to the `users`",
                    (users("u", ""), TWO_USERS),
                ),
                (
                    "b",
                    "accounts { ‹A› { jetstream { max_file: 1G, max_mem: 1G } } }\n",
                    "A { jetstream { max_mem: 1G, max_file: 9G } } }\n# ",
                    "the same",
                    ("max_file: 1G", "max_file: 9G"),
                ),
            )
        ),
        (
            Case("VS223", stream('"num_replicas": ‹3›'), "1", "lower `num_replicas`", "o.json"),
            SERVER + "cluster { name: A, listen: 127.0.0.1:6222, routes: ['nats://127.0.0.1:6222'] }\n" + STORE,
        ),
        (
            Case(
                "VS246",
                consumer('"filter_subject": ‹"in.eu"›').replace('{"dur', '{"stream_name": "o", "config": {"dur') + "}",
                '"out.eu"',
                "`out.>`",
                "l.json",
            ),
            '{"name": "o", "subjects": ["in.>"], "subject_transform": {"src": "in.>", "dest": "out.>"}}',
        ),
        (
            Case(
                "VS432",
                render_routed("b", 4223, 4223).replace("name: A", "name: ‹A›") + gateway_to("A", 7223, "hub"),
                "B }\n# ",
                "its own cluster name",
                "b.conf",
            ),
            render_routed("a", 4222, 4222) + gateway_to("A", 7222, "hub"),
        ),
        *(
            (
                Case("VS319", render_routed(name, 4223, 4222) + rules, cure, "the same mappings file", "b.conf"),
                render_routed("a", 4222, 4223) + 'mappings { "a.>": "b.>", "c": d }\n',
            )
            for name, rules, cure in (
                ("b", 'mappings { "c": d, ‹"a.>"›: "e.>" }\n', '"a.>": "b.>" }\n# '),
                ("b", '‹mappings› { "c": d }\n', 'mappings { "a.>": "b.>", "c": d }\n# '),
                ("‹b›", "", 'b\nmappings { "a.>": "b.>", "c": d }\n'),
            )
        ),
        (
            Case(
                "VS319",
                render_linked("east", 4223, "cent").decode().partition("mappings")[0].replace("east", "‹east", 1) + "›",
                render_linked("east", 4223, "cent").decode().removeprefix("server_name: "),
                "the same mappings file",
                "b.conf",
            ),
            render_linked("west", 4222, "cent").decode(),
        ),
        (
            Case(
                "VS432",
                render_routed("b", 4223, 4222) + "accounts { ‹A› { exports: [{service: a}, {stream: 'p.>'}] } }\n",
                "A { exports: [{service: a}] } }\n# ",
                "the same",
                "b.conf",
            ),
            render_routed("a", 4222, 4223) + "accounts { A { exports: [{service: a}] } }\n",
        ),
    ],
)
def test_a_mistake_beside_another_file_is_found_and_its_hint_makes_it_go_away(case: Case, beside: str) -> None:
    def find(text: str) -> dict[tuple[str, str, int, int], str]:
        files = {case.file: text.encode(), "a.conf": beside.encode()}
        report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
        placed = [finding for finding in report.diagnostics if finding.span]
        return {
            (diagnostic.code, diagnostic.span.file, diagnostic.span.line, diagnostic.span.column): diagnostic.hint or ""
            for diagnostic in placed
            if diagnostic.span
        }

    mistakes = find(case.mistake)
    assert case.hint in mistakes[case.code, case.file, *case.place]
    assert case.code not in {key[0] for key in find(case.corrected_text)}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("authorization { user: u, password: $P }\n", "authorization { user: u, password: secret }\n"),
        ("authorization { token: $P }\n", "authorization { token: $Q }\n"),
        (
            f"authorization {{ user: u, password: '$2a$11${'a' * 53}' }}\n",
            f"authorization {{ user: u, password: '$2a$11${'b' * 53}' }}\n",
        ),
        ("accounts { $SYS { users: [{user: admin, password: $P}] } }\n", ""),
        ("authorization { users: [{user: u, password: $P}] }\nno_auth_user: u\n", ""),
        ("authorization { user: u, password: $P }\n", "include users.conf\n"),
        (
            "authorization { user: u, password: $P }\n",
            "tls { cert_file: /c, key_file: /k, ca_file: /a, verify: true }\n",
        ),
    ],
)
def test_logins_that_may_be_the_same_are_not_reported(first: str, second: str) -> None:
    files = {
        "a.conf": (render_routed("a", 4222, 4223) + first).encode(),
        "b.conf": (render_routed("b", 4223, 4222) + second).encode(),
        "users.conf": b"max_payload: 1MB\n",
    }
    sources = [Source(name=name, content=files[name]) for name in ("a.conf", "b.conf")]
    assert "VS432" not in {finding.code for finding in lint(sources, surroundings(files)).diagnostics}


def write_stream(region: str) -> str:
    return (
        f'{{"name": "o-write-{region}", "subjects": ["_vs.o.{region}.>"], "num_replicas": 3, "max_age": 86400000000000, '
        f'"placement": {{"cluster": "{region}"}}}}'
    )


def read_stream(region: str, of_east: str = '"src": "_vs.o.east.>", "dest": "o.>"', more: str = "") -> str:
    return (
        f'{{"name": "o-read-{region}", "num_replicas": 3, "duplicate_window": 0, "allow_direct": true, {more}'
        f'"placement": {{"cluster": "{region}"}}, "sources": ['
        '{"name": "o-write-west", "subject_transforms": [{"src": "_vs.o.west.>", "dest": "o.>"}]}, '
        f'MARK{{"name": "o-write-east", "subject_transforms": [{{{of_east}}}]}}]}}'
    )


WRITES = f"{write_stream('west')}, {write_stream('east')}"
READ_EAST = read_stream("east").replace("MARK", "")
MAPPED = SERVER + 'mappings { "o.>": [{destination: "_vs.o.west.>", weight: 100%, cluster: west}, '


@pytest.mark.parametrize(
    ("code", "streams", "cure", "hint"),
    [
        ("VS211", read_stream("west", '"src": ‹"_vs.o.west.>"›, "dest": "o.>"'), '"_vs.o.east.>"', "`_vs.o.east.>`"),
        (
            "VS213",
            read_stream("west", '"src": "_vs.o.east.>", "dest": "oo.>"').replace("MARK", "‹›"),
            '{"name": "o-write-east", "subject_transforms": [{"src": "_vs.o.east.>", "dest": "o.>"}]}]}]',
            "the same filter and transforms",
        ),
        (
            "VS207",
            read_stream("west", more='‹"subjects"›: ["o.>"], '),
            '"metadata": {}, "republish": null, "x',
            "remove",
        ),
    ],
)
def test_a_read_stream_that_differs_from_the_others_is_found(code: str, streams: str, cure: str, hint: str) -> None:
    text = f"[{WRITES}, {streams.replace('MARK', '')}, {READ_EAST}]"
    before, rest = text.partition("‹")[0], text.partition("›")[2]
    mistake = text.replace("‹", "").replace("›", "")
    report = lint([Source(name="s.json", content=mistake.encode())], surroundings({}))
    hints = {
        (diagnostic.code, diagnostic.span.column): diagnostic.hint or ""
        for diagnostic in report.diagnostics
        if diagnostic.span
    }
    assert hint in hints[code, len(before) + 1]
    corrected = (
        before + cure + rest
        if code == "VS211"
        else f"[{WRITES}, {READ_EAST.replace('o-read-east', 'o-read-west')}, {READ_EAST}]"
    )
    report = lint([Source(name="s.json", content=corrected.encode())], surroundings({}))
    assert code not in {diagnostic.code for diagnostic in report.diagnostics}


@pytest.mark.parametrize("destination", ["_vs.o.eats.>", "_vs.o.west.x.>"])
def test_a_region_that_is_mapped_past_its_write_stream_is_found(destination: str) -> None:
    rules = MAPPED + f'{{destination: "{destination}", weight: 100%, cluster: east}}] }}\n'

    def find(text: str) -> list[tuple[int, int, str]]:
        files = {"a.conf": text.encode(), "s.json": f"[{WRITES}]".encode()}
        report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
        return [
            (diagnostic.span.line, diagnostic.span.column, diagnostic.hint or "")
            for diagnostic in report.diagnostics
            if diagnostic.code == "VS317" and diagnostic.span
        ]

    column = rules.splitlines()[2].index(f'"{destination}"') + 1
    assert find(rules) == [(3, column, "write the subject that it stores: `_vs.o.east.>`")]
    assert find(rules.replace(destination, "_vs.o.east.>")) == []


def test_servers_before_2_11_refuse_an_empty_source_of_a_transform() -> None:
    text = b'{"name": "a", "sources": [{"name": "b", "subject_transforms": [{"src": "", "dest": "c.>"}]}]}'
    for version, count in (((2, 10), 1), ((2, 11), 0)):
        report = lint([Source(name="a.json", content=text)], surroundings({}), server_version=version)
        findings = [diagnostic for diagnostic in report.diagnostics if "an empty `src`" in diagnostic.message]
        assert len(findings) == count


@pytest.mark.parametrize(
    ("all_have", "one_has", "word"),
    [
        ("accounts { A {}, B {} }\n", "accounts { A {} }\n", "account `B`"),
        (users("v", "") + "authorization { user: u, password: $P }\n", users("v", ""), "user `u`"),
    ],
)
def test_a_server_without_an_account_or_user_of_all_others_is_found(all_have: str, one_has: str, word: str) -> None:
    names = {"a": 4222, "b": 4223, "c": 4224}
    routes = ", ".join(f"'nats://127.0.0.1:{port + 2000}'" for port in names.values())
    files = {}
    for name, port in names.items():
        accounts = all_have if name != "c" else one_has
        cluster = f"cluster {{ name: C, listen: 127.0.0.1:{port + 2000}, routes: [{routes}] }}\n"
        files[f"{name}.conf"] = f"server_name: {name}\nlisten: 127.0.0.1:{port}\n{cluster}{accounts}".encode()
    report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
    findings = [diagnostic for diagnostic in report.diagnostics if diagnostic.code == "VS432" and diagnostic.span]
    assert [
        (diagnostic.span.file, diagnostic.span.line, diagnostic.span.column)
        for diagnostic in findings
        if diagnostic.span
    ] == [("c.conf", 1, 14)]
    assert word in findings[0].message


@pytest.mark.parametrize("of_b", ["nats://127.0.0.1:6222", "nats://elsewhere:6222"])
def test_servers_of_one_cluster_whose_routes_meet_or_lead_elsewhere_are_not_reported(of_b: str) -> None:
    texts = {
        "a.conf": render_routed("a", 4222, 4222) + gateway_to("A", 7222, "hub"),
        "b.conf": render_routed("b", 4223, 4223).replace("nats://127.0.0.1:6223", of_b) + gateway_to("A", 7223, "hub"),
    }
    files = {name: text.encode() for name, text in texts.items()}
    report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
    assert "VS432" not in {finding.code for finding in report.diagnostics}


@pytest.mark.parametrize("source", ["p.a", "p.b"])
def test_streams_that_republish_to_each_other_are_a_ring_only_if_what_comes_goes_on(source: str) -> None:
    first = '{"name": "o", "subjects": ["o.>"], "republish": {"src": "o.>", "dest": "p.a"}}'
    second = f'{{"name": "p", "subjects": ["p.*"], "republish": {{"src": "{source}", "dest": "o.a"}}}}'
    report = lint([Source(name="s.json", content=f"[{first}, {second}]".encode())], surroundings({}))
    assert ("VS210" in {finding.code for finding in report.diagnostics}) is (source == "p.a")


@pytest.mark.parametrize(
    "rules",
    [
        "'o.>': 'o.>'",
        "'o.a': 'p'",
        "'o.>': [{destination: 'p.>', weight: 90%}]",
        "'o.>': [{destination: 'p.>', weight: 100%, cluster: w}]",
        "'o.>': 'p.>', 'q': 'o.a'",
    ],
)
def test_an_import_that_rules_leave_something_is_not_reported(rules: str) -> None:
    text = f"{SERVER}accounts {{ A {{ exports: [{{service: 'o.*'}}] }}, B {{ users: [{{user: b, password: $P}}], "
    text += f"mappings {{ {rules} }}, imports: [{{service: {{account: A, subject: 'o.*'}}}}] }} }}\n"
    report = lint([Source(name="a.conf", content=text.encode())], surroundings({}))
    assert "VS430" not in {finding.code for finding in report.diagnostics}


@pytest.mark.parametrize("placement", ["", ', "placement": {"cluster": "A"}'])
def test_replicas_beside_one_file_of_servers_that_find_each_other_by_a_service_are_not_counted(placement: str) -> None:
    files = {
        "nats.conf": b"server_name: $NAME\nlisten: 0.0.0.0:4222\ncluster { name: A, listen: 0.0.0.0:6222, routes: ['nats://nats:6222'] }\n",
        "o.json": stream(f'"num_replicas": 3{placement}').encode(),
    }
    report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
    assert "VS223" not in {finding.code for finding in report.diagnostics}


def test_a_stream_is_not_meant_to_source_itself() -> None:
    text = b'{"name": "SOURCE_TARGET", "sources": [{"name": "SOURCE_ORIGIN"}, {"name": "TARGET_SOURCE"}]}'
    assert lint([Source(name="s.json", content=text)], surroundings({})).diagnostics == ()


def test_two_leaf_nodes_of_one_hub_with_one_domain_are_found() -> None:
    files = {"hub.conf": SERVER.encode() + b"leafnodes { listen: 127.0.0.1:7422 }\n" + STORE.encode()}
    for name, port in (("l1", 4300), ("l2", 4301)):
        store = "jetstream { store_dir: /d, domain: edge }\n"
        files[f"{name}.conf"] = (
            f"server_name: {name}\nlisten: 127.0.0.1:{port}\n{store.replace('/d', f'/{name}')}"
            "leafnodes { remotes: [{ url: 'nats://127.0.0.1:7422' }] }\n"
        ).encode()

    def find() -> list[tuple[str, int, int]]:
        report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
        places = [
            diagnostic.span for diagnostic in report.diagnostics if diagnostic.span and diagnostic.code == "VS432"
        ]
        return [(span.file, span.line, span.column) for span in places]

    assert find() == [("l2.conf", 3, 37)]
    files["l2.conf"] = files["l2.conf"].replace(b"edge", b"edge2")
    assert find() == []


def test_a_server_that_leaves_out_its_own_cluster_is_found_beside_the_others() -> None:
    files = {
        f"{name}.conf": render_linked(name, 4222 + number, "cent")
        for number, name in enumerate(("west", "east", "cent"))
    }
    files["cent.conf"] = files["cent.conf"].replace(
        b', {destination: "_vs.o.cent.>", weight: 100%, cluster: cent}', b""
    )
    report = lint([Source(name=name, content=content) for name, content in files.items()], surroundings(files))
    places = [
        (diagnostic.code, diagnostic.span.file, diagnostic.span.line, diagnostic.span.column)
        for diagnostic in report.diagnostics
        if diagnostic.span
    ]
    assert places == [("VS316", "cent.conf", 4, 12)]
    assert "`cent`" in report.diagnostics[0].message
