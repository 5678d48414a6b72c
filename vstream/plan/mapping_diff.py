"""Mapping rules and entries of accounts: what servers have loaded otherwise than the topology says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.plan.account_entries import RULE, Entries, kind_of
from vstream.plan.plan import RuleChange
from vstream.subjects.algebra import overlaps
from vstream.topology.model import Role
from vstream.topology.naming import REGION_PREFIX
from vstream.topology.stream_config import ROLE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.stream_config import ObservedStream


def own_rules(
    desired: Sequence[RenderedStream], owned: Mapping[str, ObservedStream], forms: Mapping[str, Mapping[str, Json]]
) -> OwnRules:
    """What tells the rules of *desired* and of the streams *owned*, whose canonical *forms* these are, from others'."""
    # Nothing of ours maps to an origin or an order: if they list subjects, whoever maps to these is a client.
    unmapped = {Role.ORIGIN.value, Role.ORDER.value}
    mapped = {name for name, one in owned.items() if one.config.metadata.get(ROLE_KEY) not in unmapped}
    names = {stream.config.name for stream in desired if stream.role.value not in unmapped}
    return OwnRules(names | mapped, [forms[name] for name in mapped])


class OwnRules:
    """Tells a rule that leads to this topology's streams, of now or of before, from somebody else's."""

    def __init__(self, names: set[str], owned: Iterable[Mapping[str, Json]]) -> None:
        self._names = names
        listed = [form["subjects"] for form in owned]
        self._subjects = [str(subject) for subjects in listed if isinstance(subjects, list) for subject in subjects]

    def leads(self, destinations: tuple[str, ...]) -> bool:
        """Whether a rule with these spelled *destinations* does."""
        return any(self._is_ours(destination.rpartition(" ")[2]) for destination in destinations)

    def _is_ours(self, subject: str) -> bool:
        if subject.startswith(f"{REGION_PREFIX}."):
            return True
        tokens = ["*" if "{{" in token or token.startswith("$") else token for token in subject.split(".")]
        if not self._names.isdisjoint(tokens):
            return True
        pattern = ".".join(tokens)
        return any(overlaps(pattern, one) for one in self._subjects)


def diff_rules(
    desired: Entries, loaded: Mapping[str, Mapping[str, tuple[str, ...]]], ours: OwnRules
) -> Iterator[RuleChange]:
    """Where what servers have *loaded* is not *desired*; rules of others are left out, which are not *ours*."""
    different: dict[tuple[str, tuple[str, ...] | None], list[str]] = {}
    for server, rules in sorted(loaded.items()):
        for source in sorted(desired.keys() | rules.keys()):
            before = rules.get(source)
            # Rules of others live in the same account: they are none of our business. Of accounts, nothing else is read.
            if before != desired.get(source) and (
                source in desired or kind_of(source) != RULE or ours.leads(before or ())
            ):
                different.setdefault((source, before), []).append(server)
    for (source, before), servers in different.items():
        yield RuleChange(source=source, servers=tuple(servers), before=before, after=desired.get(source))
