"""Every routing profile is complete: what is missing of a new one is named here."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

from scripts.docs import with_tables
from tests.support.command import require_success, vstream
from tests.support.lint_inputs import make_context
from tests.support.paths import ROOT
from tests.support.shared_lab import shared_lab
from vstream.cli.init import STARTER
from vstream.findings import Severity
from vstream.lint.check_topology import check_topology
from vstream.lint.engine import lint
from vstream.lint.parse_files import Source
from vstream.subjects import algebra
from vstream.topology import profiles
from vstream.topology.document import json_schema
from vstream.topology.model import Role, Routing, Security, Topology, VirtualStream
from vstream.topology.naming import ACCOUNT_API_PREFIX
from vstream.topology.profiles import PROFILES, name_in_metadata, profile_named
from vstream.topology.profiles.mapped import MappedProfile
from vstream.topology.profiles.profile import Profile
from vstream.topology.stream_config import SOURCE_API_PREFIX

DECLARED = sorted(name for name in Profile.__annotations__ if not hasattr(Profile, name))


def write_starter(profile: Profile) -> bytes:
    return STARTER.format(name="acme", routing=profile.starter, root=profile.starter_root, pad=" ", gap=" ").encode()


def make_starter(profile: Profile) -> Topology:
    loaded = check_topology(write_starter(profile), "topology.yaml")
    assert loaded.findings == ()
    return loaded.require()


def test_every_routing_has_a_profile() -> None:
    assert [routing for routing in Routing if routing not in PROFILES] == [], (
        "write a class with it in the module of its name"
    )
    assert {routing: PROFILES[routing].routing for routing in Routing} == {routing: routing for routing in Routing}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.routing.value)
class TestEveryProfile:
    def test_says_what_has_no_default(self, profile: Profile) -> None:
        """What a profile inherits from another one, such as the manual, is silently wrong."""
        partial = [base for base in type(profile).__mro__[1:] if "routing" not in vars(base)]
        attributes = {name for base in (type(profile), *partial) for name in vars(base)}
        assert [name for name in DECLARED if name not in attributes] == [], "say it in the class of the profile"

    def test_every_profile_is_in_the_module_of_its_name(self, profile: Profile) -> None:
        assert inspect.getmodule(type(profile)).__name__ == f"vstream.topology.profiles.{profile.routing.value}"  # type: ignore[union-attr]

    def test_is_found_by_what_the_metadata_of_streams_say(self, profile: Profile) -> None:
        assert profile_named(name_in_metadata(make_starter(profile))) is profile

    def test_has_a_starter_that_is_valid(self, profile: Profile) -> None:
        assert make_starter(profile).routing is profile.routing

    def test_knows_which_subjects_its_rules_rename(self, profile: Profile) -> None:
        """The subject `""` is what nobody asked for."""
        topology = make_starter(profile)
        (stream, *_), region = topology.streams, topology.regions[0].name
        subject = stream.subjects[0].replace(">", "a").replace("*", "a")
        mapped = [profile.maps(topology, region, asked) for asked in (subject, f"_vs.{subject}", "", "$JS.API.INFO")]
        advice = "look at `has_hidden_accounts` and `mapping_rules`"
        assert mapped == [True, False, False, profile.has_hidden_accounts], advice

    def test_has_accounts_or_is_that_of_mapping_rules_alone(self, profile: Profile) -> None:
        assert profile.has_physical_names or profile.accounts(make_starter(profile)), "write `accounts`"

    def test_regions_have_clients_of_their_own_only_where_it_says_so(self, profile: Profile) -> None:
        topology = make_starter(profile)
        west, east = topology.regions[0].name, topology.regions[-1].name
        accounts = {profile.client_account(topology, region.name) for region in topology.regions}
        is_told_apart = accounts != {profile.client_account(topology, None)}
        assert is_told_apart is profile.has_region_accounts, "`has_region_accounts` and `client_account` disagree"
        assert (profile.user_name("app", west) != profile.user_name("app", east)) is is_told_apart, (
            "servers refuse one user in two accounts: say with `user_name` how each is called"
        )
        assert set(profile.inner_passwords(topology)) == (accounts if is_told_apart else set()), (
            "say with `inner_passwords` which file has the passwords of each account"
        )

    def test_nobody_else_may_ask_for_what_accounts_import_for_vstream_and_for_sources(self, profile: Profile) -> None:
        imported = [
            entry.to or entry.subject
            for account in profile.accounts(make_starter(profile))
            if account.users
            for entry in account.imports
        ]
        inner = [subject for subject in imported if subject.startswith((ACCOUNT_API_PREFIX, SOURCE_API_PREFIX))]
        open_to_all = [
            subject for subject in inner if not any(algebra.is_subset(subject, denied) for denied in profile.denied)
        ]
        assert open_to_all == [], "name them in `denied`"

    def test_the_language_has_its_word_and_editors_are_told(self, profile: Profile) -> None:
        properties = json_schema()["properties"]
        assert properties["routing"]["anyOf"][0]["enum"] == [routing.value for routing in Routing]
        assert f"{profile.routing.value}: {profile.summary}" in properties["routing"]["description"], (
            "say it with `summary`"
        )

    def test_accounts_are_written_unless_streams_are_in_the_account_of_clients(self, profile: Profile) -> None:
        topology = make_starter(profile)
        assert topology.has_accounts is not profile.has_physical_names, "look at `Topology.has_accounts`"

    def test_every_profile_is_described(self, profile: Profile) -> None:
        text = (ROOT / "docs" / "routing.md").read_text(encoding="utf-8")
        assert f" `{profile.routing.value}` |" in text, "run scripts/docs"
        chooser = text.partition("## Which one")[2].partition("\n## ")[0]
        assert f"`{profile.routing.value}`" in chooser.partition("<!--")[0], "say who should choose it"

    def test_has_a_golden_bundle(self, profile: Profile) -> None:
        topologies = (ROOT / "tests" / "golden").glob("*.yaml")
        loaded = [check_topology(path.read_bytes(), path.name).require() for path in topologies]
        assert profile.routing in {topology.routing for topology in loaded}, "add a topology to tests/golden"

    @pytest.mark.lab
    def test_carries_messages_between_regions_of_real_servers(self, profile: Profile, tmp_path: Path) -> None:
        """The starter's stream alone. Models, forms and what is forbidden are in tests/render/accounts/test_*_live.py."""
        small = re.sub(r"(?m)^( +(servers|replicas)): 3", r"\1: 1", write_starter(profile).decode())
        with shared_lab(tmp_path, small) as file:
            require_success(vstream("apply", file, "--yes"))
            require_success(vstream("probe", file))


ASK_FOR_ONE = {
    "cli/init.py": "what starters have by default",
    "lint/rules/topology/moves.py": "topologies move from `mapped` to `accounts`",
    "plan/live/discover.py": "what an import has met",
    "plan/transitions/change_routing.py": "topologies move from `mapped` to `accounts`",
    "topology/decode.py": "what topologies have by default",
    "topology/model.py": "what topologies have by default, and `Topology.has_accounts`",
    "topology/physical.py": "the layout that a topology moved away from is `mapped`",
}
"""Modules that ask whether a topology has a certain profile, and what for."""


def test_code_asks_a_profile_for_what_it_decides() -> None:
    """Else a new profile is forgotten where the others are asked for by name."""
    code = ROOT / "vstream"
    asking = set()
    for file in code.rglob("*.py"):
        if file.parent.name != "profiles" and re.search(r"\bRouting\.[A-Z]+\b", file.read_text(encoding="utf-8")):
            asking.add(file.relative_to(code).as_posix())
    assert asking == set(ASK_FOR_ONE), "add a field to `Profile`, and ask `profile_of(topology)` for it"


def test_rules_lead_to_streams_as_the_profile_that_writes_them_calls_them() -> None:
    class RenamedProfile(MappedProfile):
        def local_name(self, stream: VirtualStream, role: Role, place: str) -> str:
            return f"{role.value}-of-{stream.name}-in-{place}"

    topology = make_starter(PROFILES[Routing.MAPPED])
    rules = RenamedProfile().mapping_rules(topology)
    led_to = {destination.subject for rule in rules for destination in rule.destinations}
    stream, region = topology.streams[0].name, topology.regions[0].name
    assert f"$JS.API.STREAM.INFO.read-of-{stream}-in-{region}" in led_to
    assert not any("-read-" in subject for subject in led_to)


def test_the_page_says_of_the_profiles_what_they_say() -> None:
    text = (ROOT / "docs" / "routing.md").read_text(encoding="utf-8")
    assert with_tables(text) == text, "run scripts/docs"


def test_every_module_with_a_profile_is_entered() -> None:
    entered = {type(profile) for profile in PROFILES.values()}
    declared = set()
    for module in pkgutil.iter_modules(profiles.__path__, f"{profiles.__name__}."):
        members = vars(importlib.import_module(module.name)).values()
        declared |= {member for member in members if isinstance(member, type) and issubclass(member, Profile)}
    complete = {profile for profile in declared if "routing" in vars(profile)}
    assert complete == entered, "add it to `Routing`, and call the module as it"
    unnamed = {profile for profile in declared - complete if not profile.__subclasses__()}
    assert unnamed == set(), "give it a `routing` of its own"


def test_an_unknown_profile_is_none() -> None:
    assert profile_named("of-the-future") is None
    assert profile_named(None) is PROFILES[Routing.MAPPED]


_WITHOUT_USERS = (Security.NKEYS, Security.CERTIFICATES)
"""Ways to log in that say nothing of a topology whose users are somebody else's."""


@pytest.mark.parametrize("security", Security, ids=lambda security: security.value)
@pytest.mark.parametrize("routing", Routing, ids=lambda routing: routing.value)
def test_what_a_valid_topology_renders_to_has_no_mistakes(routing: Routing, security: Security) -> None:
    """`validate` checks rendered files with the rules for everybody's: none may misread what vstream itself writes."""
    text = (
        f"version: 1\nname: acme\nserver_version: '2.12'\nrouting: {routing.value}\nsecurity: {{mode: {security.value}}}\n"
        "regions: {west: {servers: 3}, central: {servers: 3}, east: {servers: 3}}\n"
        "streams: {foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 24h}}}\n"
    )
    report = lint([Source(name="acme.yaml", content=text.encode())], make_context({}))
    serious = {finding.code for finding in report.findings if finding.severity is not Severity.NOTE}
    assert serious == ({"VS160"} if routing is Routing.MAPPED and security in _WITHOUT_USERS else set())


@pytest.mark.parametrize("routing", Routing, ids=lambda routing: routing.value)
def test_starters_have_no_mistakes(routing: Routing) -> None:
    profile = PROFILES[routing]
    report = lint([Source(name="acme.yaml", content=write_starter(profile))], make_context({}))
    assert [finding for finding in report.findings if finding.severity is not Severity.NOTE] == []


def test_the_first_step_to_another_routing_has_no_mistakes() -> None:
    text = (
        "version: 1\nname: acme\nserver_version: '2.12'\naccount: ACME\nmoves_to: accounts\n"
        "regions: {west: {servers: 3}, central: {servers: 3}, east: {servers: 3}}\n"
        "streams: {foo: {subjects: [foo.>], write: {max_age: 24h}}}\n"
    )
    report = lint([Source(name="acme.yaml", content=text.encode())], make_context({}))
    assert [finding for finding in report.findings if finding.severity is not Severity.NOTE] == []
