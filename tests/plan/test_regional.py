"""`routing: regional` without servers: who imports what, who may do what, and in which order things are made."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.plan.test_accounts import entries, plan_change
from tests.support.plans import FakeServers, make_plan, render_streams, topology
from vstream.lab import passwords
from vstream.plan.context import Observed
from vstream.plan.live import loaded_rules as told
from vstream.plan.model import Create, CreateConsumer
from vstream.plan.stages import Stage, loading_stage_of, stage_of
from vstream.servers.find_servers import Servers, endpoints_as_user
from vstream.subjects.algebra import overlaps
from vstream.topology.accounts import Account, ShareKind
from vstream.topology.bundle import Bundle
from vstream.topology.model import Endpoint

THREE = {"west": {"servers": 1}, "east": {"servers": 1}, "south": {"servers": 1}}
MODELS: dict[str, Any] = {
    "foo": {"subjects": ["v.foo.>"], "consumers": {"reader": {}}},
    "log": {"subjects": ["log.>"], "consistency": "ordered"},
    "prices": {"subjects": ["prices.>"], "consistency": "homed", "home": "east", "consumers": {"reader": {}}},
    "stock": {"subjects": ["stock.>"], "consistency": "stretch"},
}
OVER: dict[str, Any] = {"regions": THREE, "routing": "regional", "roots": ["v.>"], "server_version": "2.12"}


def models() -> Bundle:
    return render_streams(MODELS, stretch={}, **OVER)


def regional(streams: dict[str, Any], **over: Any) -> Bundle:
    return render_streams(streams, **{**OVER, **over})


def find_exporters(account: Account, shared: ShareKind, subject: str) -> set[str]:
    return {share.account for share in account.imports if share.kind is shared and share.subject == subject}


def test_of_each_two_accounts_one_imports_flow_control_both_ways() -> None:
    """Servers refuse two that import one subject from each other, of either kind."""
    accounts = {account.name: account for account in models().accounts}
    assert set(accounts) == {"APP_west", "APP_east", "APP_south", "S_stretch"}
    for shared in ShareKind:
        pairs = {
            (name, exporter)
            for name, account in accounts.items()
            for exporter in find_exporters(account, shared, "$JS.FC.>")
        }
        assert len(pairs) == 6
        assert len({frozenset(pair) for pair in pairs}) == 6
    for account in accounts.values():
        for share in account.imports:
            exported = [export for export in accounts[share.account].exports if export.kind is share.kind]
            assert any(
                account.name in export.accounts and overlaps(export.subject, share.subject) for export in exported
            ), (account.name, share)


def test_what_is_imported_as_a_service_does_not_overlap_but_for_flow_control() -> None:
    """Of two imports that match one request, both answer."""
    for account in models().accounts:
        called = [share.to or share.subject for share in account.imports if share.kind is ShareKind.SERVICE]
        called = [subject for subject in called if subject != "$JS.FC.>"]
        clashes = [(a, b) for at, a in enumerate(called) for b in called[at + 1 :] if overlaps(a, b)]
        assert clashes == []


def test_each_region_has_users_of_its_own_and_none_that_is_twice() -> None:
    text = models().text("accounts.cfg")
    users = re.findall(r'\{user: "([^"]+)", password: \$(\w+)', text)
    assert len(users) == len({name for name, _ in users}) == 1 + 4 * 3
    assert {name for name, _ in users} >= {"app-west", "vstream-east", "probe-south", "audit-west"}
    assert text.count('include "passwords-') == 3


async def test_what_lists_the_subjects_of_clients_waits_for_the_rules_and_a_mirror_does_not() -> None:
    bundle = models()
    plan = make_plan("acme", bundle, Observed(streams={}))
    stages = {change.config.name: stage_of(change) for change in plan.changes if isinstance(change, Create)}
    consumers = {
        change.config.stream: stage_of(change) for change in plan.changes if isinstance(change, CreateConsumer)
    }
    assert stages["APP_west/foo"] is Stage.ADD_CLIENT_SUBJECTS
    assert stages["APP_west/foo-write"] is Stage.CHANGE_WRITE_STREAMS
    assert stages["APP_west/log"] is stages["APP_west/prices"] is Stage.CHANGE_READ_STREAMS
    assert consumers["APP_west/foo"] is Stage.CHANGE_CONSUMERS_AFTER_MAPPINGS


async def test_a_region_joins_by_what_only_adds() -> None:
    two = regional({"foo": MODELS["foo"]}, regions={name: THREE[name] for name in ("west", "east")})
    plan = await plan_change(two, regional({"foo": MODELS["foo"]}))
    assert plan.blocked == ()
    assert loading_stage_of(plan) is Stage.LOAD_ACCOUNTS
    assert {"account APP_south", "import APP_west _vs.api.APP_south.>"} <= {rule.source for rule in plan.rule_changes}


async def test_a_region_does_not_go_before_its_streams() -> None:
    two = regional({"foo": MODELS["foo"]}, regions={name: THREE[name] for name in ("west", "east")})
    blocked = (await plan_change(regional({"foo": MODELS["foo"]}), two)).blocked
    assert {blocker.name for blocker in blocked} == {"APP_south/foo", "APP_south/foo-write"}


async def test_a_rule_that_one_account_lacks_is_not_loaded() -> None:
    bundle = regional({"foo": MODELS["foo"]})
    rule = {"mappings": {"v.>": [{"subject": "_vs.w.v.>", "weight": 100}]}}
    whole = told._list_rules({"APP_west": rule, "APP_east": rule, "APP_south": rule})
    assert whole == {"v.>": entries(bundle)["v.>"]}
    partial = told._list_rules({"APP_west": rule, "APP_east": {}, "APP_south": rule})
    assert partial == {"v.>": ("APP_south * 100% _vs.w.v.>", "APP_west * 100% _vs.w.v.>")}
    servers = FakeServers()
    for stream in bundle.streams:
        await servers.create(stream.config)
    observed = Observed(streams=servers.streams_by_name, rules={"west-1": {**entries(bundle), **partial}})
    plan = make_plan("acme", bundle, observed)
    assert [rule.source for rule in plan.rule_changes] == ["v.>"]


def test_what_the_owner_of_an_account_exports_besides_is_left_alone() -> None:
    ours = frozenset({"APP_west", "APP_east"})
    detail = {
        "jetstream_enabled": True,
        "exports": [
            {"subject": "prices.feed", "type": "stream"},
            {"subject": "$JS.FC.>", "type": "stream", "approved_accounts": ["APP_west"]},
        ],
        "imports": [],
    }
    account = told.read_account("APP_east", detail, ours)
    assert [export.subject for export in account.exports] == ["$JS.FC.>"]


def test_a_lab_has_a_password_for_each_user_of_each_region_and_keeps_it(tmp_path: Path) -> None:
    bundle = regional({"foo": MODELS["foo"]})
    files = {with_password.path: with_password.text for with_password in passwords.with_passwords(tmp_path, bundle)}
    assert {"passwords-west.cfg", "passwords-east.cfg", "passwords-south.cfg", "system-password.cfg"} <= files.keys()
    for path, text in files.items():
        if "password" in path:
            (tmp_path / path).write_text(text)
    called, password = passwords.find_login(tmp_path, "app", "east") or ("", "")
    assert (called, password in files["passwords-east.cfg"]) == ("app-east", True)
    assert {
        with_password.path: with_password.text for with_password in passwords.with_passwords(tmp_path, bundle)
    } == files


def test_a_command_logs_in_to_each_region_as_its_own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_PASSWORD_PROBE_EAST", "secret")
    connect = {
        region: Endpoint(urls=("nats://x",), user=f"vstream-{region}", password_env="OTHER")
        for region in ("west", "east")
    }
    servers = Servers(endpoints=connect, lab=None, description="")
    endpoints = endpoints_as_user(topology({"foo": MODELS["foo"]}, **OVER), servers, "probe")
    assert endpoints["east"] == replace(
        connect["east"],
        user="probe-east",
        password=None,
        password_env="VSTREAM_PASSWORD_PROBE_EAST",
        inbox="_INBOX.vstream.probe",
    )
    assert endpoints["west"] == connect["west"]
