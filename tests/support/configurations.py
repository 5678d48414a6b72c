"""Random whole configurations of servers, right and wrong, with mappings at every place where they may stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.mappings import Generator
from tests.support.paths import ROOT

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

BLOG = (ROOT / "tests/fixtures/blog-mappings.cfg").read_text()
GOLDEN = tuple(
    {
        "oracle.conf": server.read_text().replace("../mappings.cfg", "mappings.cfg"),
        "mappings.cfg": (server.parent.parent / "mappings.cfg").read_text(),
    }
    for server in sorted((ROOT / "tests/golden").glob("*/servers/*.conf"))
    if (server.parent.parent / "mappings.cfg").is_file()
)
OPTIONS = (
    "server_name: n1",
    'listen: "127.0.0.1:4222"',
    "port = 4222",
    "jetstream { store_dir: '/tmp/x', max_file: 1G }",
    "jetstream: enabled",
    "cluster { name: west, listen: 127.0.0.1:6222 }",
    "gateway { name: west, port: 7222, gateways [{name: east, url: nats://h:1}] }",
    "leafnodes { remotes [{ url: nats://h:7422, account: A }] }",
    "authorization { users: [{user: a, password: b, permissions: {publish: [foo, bar.>]}}] }",
    "debug: false, trace: off",
    "max_payload: 1MB",
    "ping_interval: 2m",
    "dests = { destination: x, weight: 100% }",
    'some = "a.b"',
    "half = 50%",
    "many { foo: bar, baz.>: qux.> }",
    "half: 60",
    "no_such_option: 1",
    "system_account: SYS",
)
KEYS = ("mappings", "mappings", "mappings", "mappings", "maps", "MAPPINGS", "Maps", '"mappings"', "'maps'")
WEIGHTS = (
    *("100%", "100", "50%", "50", "0", "'100%'", '"50"', '"+5%"', "1%", "$half", "$PASSWORD", "0%"),
    *("101%", "-1", "1k", "1.5", "true", "[100]", "{}", "'5 %'", "x", '""', "0x10", "2024-01-01T00:00:00Z", "%", "5%%"),
    *("00050", "'000000000000000000000050'", "9999999999999999999", "-0", "'-0%'", "\u0665", "'\u0665'", "1e2", "50_0"),
)
VALUES = (
    *("$dests", "$some", "$many", "$nope", "[$dests]", "[]", "{}", "5", "true", "1.5", "[a]", "[[]]", "[{}]", '""'),
    *("2024-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "(\n  x\n)\n", "$PASSWORD", "{weight: 100%}", "{destination: a}"),
)
SPACE = ("", " ", "\n", "  ", " # c\n", " // c }\n", "\t", "\r\n")
ATOMS = (
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        "\\",
        "=",
        ":",
        ";",
        ",",
        "/",
        "#",
        "$",
        "%",
        " ",
        "\n",
        "\r",
        "*",
        ">",
        ".",
    ),
    *("1", "k", "..", "//", "\u00a0", "é", "include ", "mappings", "weight", "$half", "}\n}", "foo", "[{", "}]", "-"),
)


class Configurations:
    """Makes files by their names, the first one of which includes the others, or not."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._mappings = Generator(chance.randrange(1 << 30), flaws=0.03)

    def files(self, main: str) -> dict[str, str]:
        """One configuration with what it includes."""
        pick = self._random.random()
        if pick < 0.15:
            files = dict(self._random.choice(GOLDEN))
            files[main] = files.pop("oracle.conf")
        elif pick < 0.2:
            files = {main: BLOG, "mappings.cfg": ""}
        else:
            files = {main: self._server(), "mappings.cfg": self._block(), "rules.cfg": self._rules()}
            files["part.cfg"] = self._account() if self._one_in(2) else f"{self._word(KEYS)} $many\nmany {{ a: b }}\n"
        if self._one_in(2):
            for _ in range(self._random.randint(1, 3)):
                name = self._random.choice(list(files))
                files[name] = self._mutate(files[name])
        return files

    def _one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def _word(self, words: Sequence[str]) -> str:
        return self._random.choice(words)

    def _server(self) -> str:
        lines = self._random.sample(OPTIONS, self._random.randint(0, 5))
        lines += [self._block(is_main=True) for _ in range(self._random.choice((0, 1, 1, 2)))]
        lines += ["include mappings.cfg"] * self._one_in(4) + ["include 'part.cfg'"] * self._one_in(10)
        if self._one_in(2):
            lines.append(self._accounts())
        if self._one_in(2):
            self._random.shuffle(lines)
        end = self._word(("\n", "\n", "\n\n", "\r\n", "\n# c\n"))
        return end.join(lines) + end

    def _accounts(self) -> str:
        if self._one_in(20):
            return self._word(
                ("accounts [A, B]", "accounts: $many", "accounts {}", "accounts { A: 1 }", "accounts = [A, A]")
            )
        accounts = [
            f"{name} {{\n{self._account()}\n}}"
            for name in self._random.sample(("A", "B", '"C d"', "$G", "SYS", "A"), self._random.randint(1, 3))
        ]
        return f"{self._word(('accounts', 'accounts', 'accounts:', 'ACCOUNTS'))} {{\n" + "\n".join(accounts) + "\n}"

    def _account(self) -> str:
        lines = [f"users: [{{user: u{self._random.randrange(1000)}, password: pw}}]"] * self._one_in(2)
        lines += ["exports: [{stream: foo.>}, {service: bar}]"] * self._one_in(6) + [
            "jetstream: enabled"
        ] * self._one_in(6)
        lines += ["default_permissions {publish: foo}"] * self._one_in(10) + ["extra: 1"] * self._one_in(30)
        lines += ["dests = {destination: y, weight: 50}"] * self._one_in(8)
        lines += [self._block() for _ in range(self._random.choice((0, 1, 1, 2)))]
        lines += ["include mappings.cfg"] * self._one_in(8)
        return "\n".join(lines)

    def _block(self, *, is_main: bool = False) -> str:
        key = self._word(KEYS) + self._word((" ", ": ", " = ", ""))
        if self._one_in(25):
            return key.rstrip() + " " + self._word(VALUES)
        return f"{key}{{{self._rules(is_main=is_main)}}}"

    def _rules(self, *, is_main: bool = False) -> str:
        rules = [self._rule() for _ in range(self._random.choice((0, 1, 1, 2, 3, 5)))]
        rules += ["include rules.cfg"] * (is_main and self._one_in(12))
        return "\n" + "".join(rule + self._word((",\n", "\n", "\n", ";\n", " # c\n", "\r\n")) for rule in rules)

    def _rule(self) -> str:
        mapping = self._mappings.mapping(1)
        source = f'"{mapping.source}"'
        if self._one_in(12):
            return f"{source}: {self._word(VALUES)}"
        maps = [
            self._destination(
                f'"{destination.subject}"',
                str(destination.weight),
                f'"{destination.cluster}"' if destination.cluster else None,
            )
            for destination in mapping.destinations
        ]
        if len(maps) == 1 and self._one_in(3):
            return f"{source}: {self._word(SPACE[:2])}{maps[0]}"
        if len(maps) == 1 and self._one_in(3):
            return f'{source} "{mapping.destinations[0].subject}"'
        joint = self._word((", ", ",\n", "\n", " ,\n"))
        return f"{source}: [{joint.join(maps)}{self._word(SPACE)}]"

    def _destination(self, subject: str, weight: str, cluster: str | None) -> str:
        if self._one_in(25):
            weight = self._word(WEIGHTS)
        fields = [f"{self._word(('destination', 'destination', 'dest', 'Destination'))}: {subject}"] * (
            not self._one_in(60)
        )
        fields += [
            f"{self._word(('weight', 'weight', 'WEIGHT'))}: {weight}{self._word(('', '%')) if weight.isdecimal() else ''}"
        ] * (not self._one_in(60))
        fields += [f"cluster: {cluster}"] * (cluster is not None)
        if self._one_in(50):
            fields.append(
                self._word(("clustr: x", "cluster: 5", "cluster: true", "note: ''", "cluster: x, cluster: west"))
            )
        self._random.shuffle(fields)
        return "{" + self._word((", ", ",", "\n", "; ")).join(fields) + self._word(SPACE[:3]) + "}"

    def _mutate(self, text: str) -> str:
        at = self._random.randint(0, len(text))
        cut = self._random.choice((0, 0, 1, 2, 30))
        return text[:at] + self._random.choice(("", *ATOMS)) + text[at + cut :]
