"""
What servers load, mapping rules and account entries, and where that differs from the topology.

Both are keyed values. The key of a rule is its source, which has no space. The key of an account entry is `import
ACCOUNT SUBJECT`, `export ACCOUNT SUBJECT`, `account NAME` or `users`. Servers do not report their users, nor how long
answers may take: accounts.cfg carries a digest of these, as an export that nobody uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vstream.plan.model import ACCOUNT, RULE, USERS, RuleChange, kind_of
from vstream.subjects.algebra import overlaps
from vstream.subjects.mapping_rule import MappingRule
from vstream.topology.accounts import Account
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Role
from vstream.topology.naming import DIGEST_PREFIX, REGION_PREFIX
from vstream.topology.stream_config import HIDDEN_PREFIXES, ROLE_KEY, ObservedStream

Entries = dict[str, tuple[str, ...]]
LoadedEntries = Mapping[str, tuple[str, ...]]


def spell_destinations(mapping: MappingRule) -> tuple[str, ...]:
    """The destinations of a rule as sorted text: `west 100% _vs.foo.west.foo.>`."""
    return tuple(
        sorted(
            spell(destination.cluster, destination.weight, destination.subject) for destination in mapping.destinations
        )
    )


def spell(cluster: str | None, weight: int, subject: str) -> str:
    """One destination of a rule as text."""
    return f"{cluster or '*'} {weight}% {subject}"


def list_rule_entries(mappings: Iterable[MappingRule]) -> Entries:
    """The destinations of each rule as text, by its source."""
    return {mapping.source: spell_destinations(mapping) for mapping in mappings}


def list_account_entries(accounts: Iterable[Account]) -> Entries:
    """What *accounts* import, export and are, as text, by the keys of account entries."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for account in accounts:
        if account.name.startswith(HIDDEN_PREFIXES):
            values[f"{ACCOUNT} {account.name}"].append("jetstream" if account.has_jetstream else "no jetstream")
        for export in account.exports:
            if export.subject.startswith(f"{DIGEST_PREFIX}."):
                values[USERS].append(export.subject.removeprefix(f"{DIGEST_PREFIX}."))
                continue
            key = f"export {account.name} {export.subject}"
            values[key] += [f"{export.kind.value} to {importer}" for importer in export.accounts or ("everybody",)]
            if export.threshold is not None:
                values[key].append("answers more than once")
        for imported in account.imports:
            key = f"import {account.name} {imported.to or imported.subject}"
            values[key].append(f"{imported.kind.value} {imported.subject} of {imported.account}")
    return {key: tuple(sorted(entries)) for key, entries in values.items()}


class OwnRules:
    """Tells rules that lead to this topology's streams, current or former, from other rules."""

    def __init__(self, desired: Sequence[RenderedStream], owned: Mapping[str, ObservedStream]) -> None:
        # Nothing of ours maps to an origin or an order: if they list subjects, whoever maps to these is a client.
        unmapped = {Role.ORIGIN.value, Role.ORDER.value}
        self._mapped = [
            stream.config for stream in owned.values() if stream.config.metadata_value(ROLE_KEY) not in unmapped
        ]
        self._names = {config.name for config in self._mapped}
        self._names |= {stream.config.name for stream in desired if stream.role.value not in unmapped}

    def leads(self, destinations: tuple[str, ...]) -> bool:
        """Whether a rule with these spelled *destinations* leads to a stream of the topology."""
        return any(self._is_own(destination.rpartition(" ")[2]) for destination in destinations)

    def _is_own(self, subject: str) -> bool:
        if subject.startswith(f"{REGION_PREFIX}."):
            return True
        tokens = ["*" if "{{" in token or token.startswith("$") else token for token in subject.split(".")]
        if not self._names.isdisjoint(tokens):
            return True
        pattern = ".".join(tokens)
        return any(overlaps(pattern, listed) for config in self._mapped for listed in config.subjects)


def diff_rules(desired: Entries, loaded: Mapping[str, LoadedEntries], own_rules: OwnRules) -> Iterator[RuleChange]:
    """Where *loaded*, by server, differs from *desired*. Rules of others are left out."""
    different: dict[tuple[str, tuple[str, ...] | None], list[str]] = {}
    for server, rules in sorted(loaded.items()):
        for source in sorted(desired.keys() | rules.keys()):
            before = rules.get(source)
            if before == desired.get(source):
                continue
            # Others may have rules in the same account. Of accounts, nothing but the topology's own is read.
            if source in desired or kind_of(source) != RULE or own_rules.leads(before or ()):
                different.setdefault((source, before), []).append(server)
    for (source, before), servers in different.items():
        yield RuleChange(source=source, servers=tuple(servers), before=before, after=desired.get(source))
