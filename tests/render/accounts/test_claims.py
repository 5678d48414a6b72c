"""Operator mode: what is signed says what configuration files say, and is changed in an order that loses nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import nkeys
import pytest

from tests.support.golden import Golden
from tests.support.paths import TESTS
from tests.support.plans import make_plan
from tests.support.topologies import begin_topology
from vstream.apply.push_accounts import plan_push_stages
from vstream.errors import InvalidInputError, VstreamError
from vstream.jetstream.keyring import Keyring
from vstream.lint.check_topology import check_topology
from vstream.plan.context import Observed
from vstream.plan.model import USERS
from vstream.plan.rules import list_account_entries, spell_destinations
from vstream.render import jwt
from vstream.render.claims import make_digest_export, split_api_by_verb
from vstream.render.pipeline import render_bundle
from vstream.subjects import algebra
from vstream.topology.accounts import ShareKind
from vstream.topology.bundle import Bundle
from vstream.topology.model import Routing, Security, Topology
from vstream.topology.profiles import PROFILES
from vstream.topology.profiles.hidden_accounts import accounts
from vstream.topology.profiles.profile import Profile
from vstream.topology.signing import SIGNER

GOLDEN = TESTS / "golden"
TOPOLOGY = (
    begin_topology("signed", west=1, central=1, east=1)
    + """\
routing: accounts
security: {mode: operator}
roots: [v.>]
stretch: {members: all}
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [foo.>], core_subscribers: true}
  wide: {subjects: [wide.*], consistency: stretch}
  prices: {subjects: [prices.>], consistency: homed, home: east}
kv:
  stock: {consistency: homed, home: east}
"""
)


def topology(text: str = TOPOLOGY) -> Topology:
    return check_topology(text.encode(), "signed.yaml").require()


def render_text(text: str = TOPOLOGY, ring: Keyring | None = None) -> Bundle:
    return render_bundle(topology(text), signer=ring)


def decode_claims(text: str) -> dict[str, Any]:
    return {claim["name"]: claim for claim in render_text(text).claims}


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    keyring = Keyring(tmp_path / "keys")
    assert len(keyring.ensure_keys(topology())) == 2 + 2 + 7 + 5
    return keyring


def test_the_claims_of_a_topology_are_the_expected_ones(golden: Golden) -> None:
    claims = decode_claims(TOPOLOGY)
    names = {claim["sub"]: name for name, claim in claims.items()}
    for claim in claims.values():
        claim["sub"] = names[claim["sub"]]
        for share in claim["nats"].get("imports") or ():
            share |= {"account": names[share["account"]], "token": "…"}
    files = {f"{name}.json": json.dumps(claim, indent=1, ensure_ascii=False) + "\n" for name, claim in claims.items()}
    golden.check_directory(GOLDEN / "claims", files)


def test_every_account_says_what_it_says_in_configuration_files() -> None:
    desired = topology()
    files = render_bundle(replace(desired, security=Security.PASSWORDS))
    configured, signed = (
        list_account_entries(split_api_by_verb(accounts(desired))),
        list_account_entries(render_text().accounts),
    )
    assert {*configured} == {*signed} - {USERS}
    assert [key for key in configured if key.startswith("import") and configured[key] != signed[key]] == []
    # But for the API, which is shared verb by verb, the keys are those of the files.
    apart = {
        key
        for key in {*list_account_entries(files.accounts)} ^ {*signed}
        if "API." not in key and "_vs.api." not in key
    }
    assert apart == {USERS} - {*list_account_entries(files.accounts)}
    assert [spell_destinations(mapping) for mapping in render_text().mappings] == [
        spell_destinations(mapping) for mapping in files.mappings
    ]


def test_what_servers_check_of_claims_holds() -> None:
    """Exports of one kind do not contain each other, and everything that is imported is exported (jwt/v2)."""
    exported: dict[tuple[str, ShareKind], list[str]] = {}
    for account in render_text().accounts:
        for shared in ShareKind:
            subjects = [export.subject for export in account.exports if export.kind is shared]
            assert not [(a, b) for a in subjects for b in subjects if a != b and algebra.is_subset(a, b)]
            exported[account.name, shared] = subjects
    for account in render_text().accounts:
        for share in account.imports:
            assert any(algebra.is_subset(share.subject, subject) for subject in exported[share.account, share.kind]), (
                share
            )


def test_each_import_carries_a_token_of_the_exporting_account_for_this_one() -> None:
    for claims in render_text().claims:
        for share in claims["nats"].get("imports") or ():
            activation = jwt.decode(share["token"])
            assert (activation["iss"], activation["sub"]) == (share["account"], claims["sub"])
            assert (activation["nats"]["subject"], activation["nats"]["kind"]) == (share["subject"], share["type"])
        assert all(share["token_req"] for share in claims["nats"].get("exports") or ())


def of_profile(profile: Profile) -> str:
    """The topology in another profile, without what that cannot have."""
    routing_line = f"routing: {profile.routing.value}"
    text = TOPOLOGY.replace("routing: accounts", routing_line).replace(", core_subscribers: true", "")
    if not profile.has_roots:
        text = text.replace("roots: [v.>]\n", "")
    if profile.has_domains:
        text = text[: text.index("  wide:")].replace("stretch: {members: all}\n", "")
    return text


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.routing.value)
def test_a_bundle_holds_tokens_of_accounts_and_nothing_that_logs_in_or_signs(profile: Profile, tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "keys")
    ring.ensure_keys(topology(of_profile(profile)))
    files = [path for path in ring.directory.iterdir() if path.suffix]
    words = {word for path in files for word in path.read_text().split()}
    secrets = {word for word in words if word.startswith(("SO", "SA", "SU", "eyJ"))}
    assert len(secrets) == sum({".nk": 1, ".creds": 2}[path.suffix] for path in files)
    artifacts = render_text(of_profile(profile), ring).artifacts
    assert [artifact.path for artifact in artifacts if "eyJ" in artifact.text] == ["operator.cfg"]
    assert not [(artifact.path, secret) for artifact in artifacts for secret in secrets if secret in artifact.text]


@pytest.mark.parametrize(
    "profile",
    [profile for profile in PROFILES.values() if profile.routing is not Routing.ACCOUNTS],
    ids=lambda profile: profile.routing.value,
)
def test_other_profiles_say_what_they_say_in_configuration_files(profile: Profile) -> None:
    desired = topology(of_profile(profile))
    configured, signed = render_bundle(replace(desired, security=Security.PASSWORDS)), render_bundle(desired)
    assert [*map(spell_destinations, signed.mappings)] == [*map(spell_destinations, configured.mappings)] != []
    held = {
        key
        for key in {*list_account_entries(configured.accounts)} ^ {*list_account_entries(signed.accounts)}
        if "API." not in key
    }
    assert held <= {USERS, *(key for key in held if "_vs.api." in key)}
    by_name = {claim["name"]: claim for claim in signed.claims}
    clients = {"APP_west", "APP_central", "APP_east"} if profile.has_region_accounts else {"APP"}
    assert by_name.keys() - {"SYS", "S_stretch"} == clients
    for name in clients:
        roles = {signing_key["role"].partition("-")[0] for signing_key in by_name[name]["nats"]["signing_keys"]}
        assert roles == {"app", "vstream", "probe", "audit"}
    for account in signed.accounts:
        for shared in ShareKind:
            exported = [export.subject for export in account.exports if export.kind is shared]
            assert not [(a, b) for a in exported for b in exported if a != b and algebra.is_subset(a, b)]


def test_a_token_that_cannot_be_pushed_is_refused() -> None:
    streams = "".join(f"  s{number}: {{subjects: [s{number}.>]}}\n" for number in range(300))
    head = TOPOLOGY[: TOPOLOGY.index("streams:")]
    with pytest.raises(InvalidInputError) as raised:
        render_text(f"{head}streams:\n{streams}")
    assert [(finding.code, "`mode: passwords`" in (finding.hint or "")) for finding in raised.value.findings] == [
        ("VS160", True)
    ]
    render_text(f"{head}streams:\n{streams.replace('subjects: [s', 'subjects: [v.s')}")


def test_the_same_keys_give_the_same_bytes_and_other_keys_others(ring: Keyring, tmp_path: Path) -> None:
    other_ring = Keyring(tmp_path / "other")
    other_ring.ensure_keys(topology())
    text = render_text(ring=ring).text("operator.cfg")
    assert text == render_text(ring=Keyring(ring.directory)).text("operator.cfg")
    assert text != render_text(ring=other_ring).text("operator.cfg")


def test_tokens_are_signed_with_the_key_that_they_name(ring: Keyring) -> None:
    token = ring.sign({"sub": "x", "nats": {}}, SIGNER)
    signed, _, signature = token.rpartition(".")
    pair = nkeys.from_seed(bytearray((ring.directory / "signer.nk").read_bytes().strip()))
    assert pair.verify(signed.encode(), base64.urlsafe_b64decode(signature + "=="))
    assert jwt.decode(token)["iss"] == ring.public_key(SIGNER) == pair.public_key.decode()


def test_users_are_signed_by_their_role_and_say_nothing_of_what_they_may_do(ring: Keyring) -> None:
    token = ring.credentials_path("app").read_text().splitlines()[1]
    claims = jwt.decode(token)
    assert claims["iss"] == ring.public_key("role-app")
    assert claims["nats"] == {"issuer_account": ring.public_key("account-APP"), "type": "user", "version": 2}


def test_keys_are_made_once_and_nobody_else_can_read_them(ring: Keyring) -> None:
    before = {path.name: path.read_bytes() for path in ring.directory.iterdir()}
    assert ring.ensure_keys(topology()) == ()
    assert {path.name: path.read_bytes() for path in ring.directory.iterdir()} == before
    assert ring.directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in ring.directory.iterdir()} == {0o600}
    (ring.directory / "signer.nk").chmod(0o644)
    with pytest.raises(VstreamError, match="others can read"):
        Keyring(ring.directory).public_key(SIGNER)


def test_a_key_of_a_user_that_others_can_read_is_no_error_of_a_template(tmp_path: Path) -> None:
    by_key = TOPOLOGY.replace("mode: operator", "mode: nkeys")
    ring = Keyring(tmp_path / "keys")
    ring.ensure_keys(topology(by_key))
    render_text(by_key, ring)
    (ring.directory / "user-app.nk").chmod(0o644)
    with pytest.raises(VstreamError, match=r"^others can read the key") as raised:
        render_text(by_key, Keyring(ring.directory))
    assert (raised.value.hint or "").startswith("`chmod 600")


@pytest.mark.parametrize("text", ["", "nothing", "SOAA", "S" * 58])
def test_a_key_that_is_none_is_said_to_be(ring: Keyring, text: str) -> None:
    (ring.directory / "signer.nk").write_text(text)
    with pytest.raises(VstreamError, match=r"signer\.nk cannot be read"):
        Keyring(ring.directory).public_key(SIGNER)


def test_a_rotated_role_has_another_key_and_the_others_stay(ring: Keyring) -> None:
    before = {user: ring.credentials_path(user).read_text() for user in ("app", "audit")}
    signing = [ring.public_key("role-app"), ring.public_key("role-audit")]
    ring.rotate(topology(), "app")
    assert ring.credentials_path("app").read_text() != before["app"]
    assert ring.credentials_path("audit").read_text() == before["audit"]
    assert (ring.public_key("role-app") != signing[0], ring.public_key("role-audit")) == (True, signing[1])


def test_a_rotation_that_was_cut_off_is_finished(ring: Keyring) -> None:
    before = ring.credentials_path("app").read_text()
    ring.rotate(topology(), "app")
    ring.credentials_path("app").write_text(before)
    ring.ensure_keys(topology())
    token = ring.credentials_path("app").read_text().splitlines()[1]
    assert jwt.decode(token)["iss"] == ring.public_key("role-app")


def test_what_is_loaded_of_somebody_else_is_a_difference(ring: Keyring) -> None:
    bundle = render_text(ring=ring)
    rules = {mapping.source: spell_destinations(mapping) for mapping in bundle.mappings}
    loaded = {**rules, **list_account_entries(bundle.accounts)}

    def find_changes(over: dict[str, tuple[str, ...]]) -> list[str]:
        observed = Observed(streams={}, rules={"west-1": {**loaded, **over}})
        plan = make_plan("signed", bundle, observed)
        return [rule.source for rule in plan.rule_changes]

    assert find_changes({}) == []
    clients = next(claim for claim in bundle.claims if claim["name"] == "APP")
    clients["nats"]["signing_keys"][0]["template"]["pub"]["allow"].append(">")
    marks = tuple(
        make_digest_export(claim).subject.removeprefix("_vs.text.") for claim in bundle.claims if claim["name"] != "SYS"
    )
    assert find_changes({USERS: tuple(sorted(marks))}) == [USERS]


def test_what_is_new_is_exported_before_it_is_imported_and_what_goes_stays_until_then() -> None:
    before = [*decode_claims(TOPOLOGY).values()]
    after = [
        *decode_claims(
            TOPOLOGY.replace("foo: {subjects: [foo.>], core_subscribers: true}", "bar: {subjects: [bar.>]}")
        ).values()
    ]
    held = {claim["sub"]: [claim, claim] for claim in before}
    first, second, third = plan_push_stages(after, held, 2)

    def exports(stage: list[dict[str, Any]], name: str) -> set[str]:
        claims = next(claim for claim in stage if claim["name"] == name)
        return {export["subject"] for export in claims["nats"]["exports"]}

    assert {"foo.>", "bar.>"} <= exports(first, "W_west")
    assert {"foo.>", "bar.>"} <= exports(second, "W_west")
    assert "foo.>" not in exports(third, "W_west")
    assert [claim["name"] for claim in second][-1] == "APP"
    assert "APP" not in {claim["name"] for claim in (*first, *third)}
    assert third == [claim for claim in after if claim["name"].startswith("W_")]


def test_nothing_is_pushed_where_every_server_holds_it_and_all_of_it_where_one_does_not() -> None:
    claims = [*decode_claims(TOPOLOGY).values()]
    held = {claim["sub"]: [claim, {**claim, "iat": 7, "jti": "x"}] for claim in claims}
    assert plan_push_stages(claims, held, 2) == []
    assert len(plan_push_stages(claims, held, 3)) == 1
    new = plan_push_stages(claims, {}, 2)
    assert [len(stage) for stage in new] == [len(claims), len(claims)]
    assert not any(claim["nats"].get("imports") for claim in new[0])


def test_exports_of_somebody_else_are_not_kept_while_others_change() -> None:
    claims = [*decode_claims(TOPOLOGY).values()]
    foreign = [
        {**claim, "iss": "OTHER", "nats": {**claim["nats"], "exports": [{"type": "service", "subject": ">"}]}}
        for claim in claims
    ]
    for stage in plan_push_stages(claims, {claim["sub"]: [claim, claim] for claim in foreign}, 2):
        assert all(share["subject"] != ">" for claim in stage for share in claim["nats"].get("exports") or ())
