"""
Accounts in operator mode: pushed as signed tokens, and read back from each server.

A push has stages, and every server confirms each by name before the next: first the new exports, then everything, and
finally without the removed exports. So nothing is imported before it exists.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vstream.apply.interfaces import MappingAdmin
from vstream.errors import NotReachableError, ServerError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.answers import convert_malformed_errors, decode_object, require_text
from vstream.jetstream.connection import Connection, connect_to_system
from vstream.jetstream.endpoints import resolve_context
from vstream.render import jwt
from vstream.render.claims import make_digest_export, with_loaded_exports
from vstream.topology.model import Endpoint
from vstream.topology.signing import SIGNER, SYSTEM_ACCOUNT, Signer
from vstream.value_class import value_class

Claims = dict[str, Any]

_UPDATE_SUBJECT = "$SYS.REQ.CLAIMS.UPDATE"
_ANSWER_TIMEOUT = 5.0
"""Seconds for all servers to answer."""
_LOADED_TIMEOUT = 15.0
"""Seconds until a server must have loaded what it confirmed. It takes milliseconds."""
_POLL_SECONDS = 0.1
_STATUS_OK = 200


@value_class
class _Confirmation:
    """What *server* answers to a token: *refusal* is None if it has taken it."""

    server: str
    refusal: str | None

    @classmethod
    def parse(cls, answer: bytes) -> _Confirmation:
        """Raises MalformedAnswerError."""
        document = decode_object(answer, _UPDATE_SUBJECT)
        with convert_malformed_errors(_UPDATE_SUBJECT):
            is_taken = (document.get("data") or {}).get("code") == _STATUS_OK
            reason = (document.get("error") or {}).get("description", "no reason given")
            return cls(server=require_text(document["server"]["name"]), refusal=None if is_taken else str(reason))


class SignedAccounts:
    """
    MappingAdmin for servers in operator mode: pushes *claims*, signed by *signer*, to all of *servers*.

    *system* are ways to reach the system account, *monitors* where servers say what they have loaded.
    """

    def __init__(
        self,
        claims: Sequence[Claims],
        signer: Signer,
        *,
        system: Mapping[str, Endpoint],
        servers: Collection[str],
        monitors: Sequence[str],
    ) -> None:
        self._claims = [claim for claim in claims if claim["name"] != SYSTEM_ACCOUNT]
        self._signer = signer
        self._system = system
        self._servers = frozenset(servers)
        self._monitors = monitors
        self._issued = 0

    async def ensure_loaded(self) -> None:
        """See MappingAdmin."""
        connection = await connect_to_system(self._system)
        try:
            accounts = [account["sub"] for account in self._claims]
            stored_claims = await asyncio.gather(*(self._read_stored(connection, account) for account in accounts))
            stored = dict(zip(accounts, stored_claims, strict=True))
            for stage in plan_push_stages(self._claims, stored, len(self._servers)):
                for claims in stage:
                    await self._push(connection, claims)
                await asyncio.gather(*(self._wait(url, claims) for url in self._monitors for claims in stage))
        finally:
            await connection.close()

    async def _read_stored(self, connection: Connection, account: str) -> list[Claims]:
        """What each server holds for *account*; less than there are servers where one holds nothing, or is silent."""
        subject = f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"
        answers = await _collect_answers(connection, subject, b"", lambda replies: len(replies) >= len(self._servers))
        with convert_malformed_errors(subject):
            claims = [jwt.decode(token.decode()) for token in answers if token]
            self._issued = max([self._issued, *(int(stored.get("iat", 0)) for stored in claims)])
        return claims

    async def _push(self, connection: Connection, claims: Claims) -> None:
        """Raises VstreamError unless every server has confirmed. Servers keep the token that was issued last."""
        self._issued = max(self._issued + 1, int(time.time()))
        fresh = {key: value for key, value in claims.items() if key not in {"iss", "jti"}} | {"iat": self._issued}
        token = self._signer.sign(fresh, SIGNER)

        def is_enough(received: list[bytes]) -> bool:
            return self._servers <= {_Confirmation.parse(answer).server for answer in received}

        received = await _collect_answers(connection, _UPDATE_SUBJECT, token.encode(), is_enough)
        confirmations = [_Confirmation.parse(answer) for answer in received]
        account = claims["name"]
        for confirmation in confirmations:
            if confirmation.refusal is not None:
                raise VstreamError(
                    f"server `{confirmation.server}` refuses account `{account}`: {confirmation.refusal}",
                    hint="it must trust the operator whose keys these are: compare operator.cfg (`vstream render`)",
                )
        if silent := sorted(self._servers - {confirmation.server for confirmation in confirmations}):
            raise VstreamError(
                f"account `{account}` was not confirmed by {', '.join(silent)}",
                hint="start them, or give up their region (`--lost`), and apply again: nothing is half done",
            )

    async def _wait(self, url: str, claims: Claims) -> None:
        """Until the server that monitors at *url* has loaded *claims*. Raises VstreamError if it does not."""
        deadline = time.monotonic() + _LOADED_TIMEOUT
        while True:
            try:
                loaded = await read_loaded_claims(url, claims["sub"], monitoring.TIMEOUT)
            except NotReachableError:
                return  # it has confirmed, so it runs; what cannot be looked at is said by the plan
            if loaded is not None and make_digest_export(loaded) == make_digest_export(claims):
                return
            if time.monotonic() > deadline:
                raise VstreamError(
                    f"the server at {url} has confirmed account `{claims['name']}`, but has not loaded it",
                    hint="it must trust the operator whose keys these are: compare operator.cfg (`vstream render`); its log says more",
                )
            await asyncio.sleep(_POLL_SECONDS)


class SequentialPush:
    """MappingAdmin for servers that are pushed to one after another."""

    def __init__(self, admins: Sequence[SignedAccounts]) -> None:
        self._admins = admins

    async def ensure_loaded(self) -> None:
        """See MappingAdmin."""
        for admin in self._admins:
            await admin.ensure_loaded()


def make_account_admin(
    claims: Sequence[Claims],
    signer: Signer,
    *,
    system: Mapping[str, Endpoint],
    servers: Sequence[tuple[str, str]],
    monitors: Mapping[str, Sequence[str]],
    in_domains: bool,
) -> MappingAdmin:
    """
    How *servers*, each with its region, come to load *claims*; *system* and *monitors* are ways to them by region.

    All at once where they are one system. *in_domains*, each region is one of its own, with the same accounts: their
    region's alone, which share nothing with others, so that no order between regions matters.
    """
    groups = [[region] for region in dict.fromkeys(region for region, _ in servers)] if in_domains else [[*system]]
    admins = []
    for regions in groups:
        admin = SignedAccounts(
            claims,
            signer,
            system={region: endpoint for region, endpoint in system.items() if region in regions},
            servers={name for region, name in servers if region in regions or not in_domains},
            monitors=[url for region, urls in monitors.items() if region in regions for url in urls],
        )
        admins.append(admin)
    return SequentialPush(admins)


def plan_push_stages(
    desired: Sequence[Claims], stored: Mapping[str, Sequence[Claims]], server_count: int
) -> list[list[Claims]]:
    """What is pushed one after the other to get from what servers have *stored*, by account, to *desired*."""
    first: list[Claims] = []
    second: list[Claims] = []
    third: list[Claims] = []
    clients_last = sorted(desired, key=lambda account: bool(account["nats"].get("mappings")))
    for claims in clients_last:
        held = stored.get(claims["sub"], ())
        if len(held) >= server_count and all(
            make_digest_export(held_claims) == make_digest_export(claims) for held_claims in held
        ):
            continue
        ours = [held_claims for held_claims in held if held_claims.get("iss") == claims.get("iss")]
        newest = max(ours, key=lambda held_claims: int(held_claims.get("iat", 0)), default=None)
        if newest is None:
            first.append({**claims, "nats": {**claims["nats"], "imports": [], "mappings": {}}})
            second.append(claims)
            continue
        wide = with_loaded_exports(claims, newest)
        if with_loaded_exports(newest, claims) is not newest:
            first.append(with_loaded_exports(newest, claims))
        second.append(wide)
        if wide is not claims:
            third.append(claims)
    return [stage for stage in (first, second, third) if stage]


async def read_loaded_claims(url: str, account: str, timeout: float) -> Claims | None:
    """The claims of *account* that the server at *url* has loaded; None if none. Raises NotReachableError."""
    await monitoring.look_up_account(url, account, timeout)
    try:
        token = (await monitoring.read_account_detail(url, account, timeout)).get("jwt")
    except ServerError:
        return None  # what it holds is signed by whom it does not trust
    with convert_malformed_errors(url):
        return jwt.decode(token) if token else None


def with_system_login(endpoint: Endpoint, credentials: str) -> Endpoint:
    """*endpoint* with a login to the system account by the file *credentials*."""
    resolved = resolve_context(endpoint) if endpoint.context else endpoint
    return replace(
        resolved, creds=credentials, nkey=None, user=None, password=None, password_env=None, token=None, token_env=None
    )


async def _collect_answers(
    connection: Connection, subject: str, payload: bytes, is_enough: Callable[[list[bytes]], bool]
) -> list[bytes]:
    """What all servers answer, up to that with which there is enough, or until time is up."""
    client, answers = connection.client, list[bytes]()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        await client.publish(subject, payload, reply=inbox)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                while not answers or not is_enough(answers):
                    answers.append((await subscription.next_msg(timeout=_ANSWER_TIMEOUT)).data)
        except TimeoutError:
            pass
    finally:
        if client.is_connected:
            await subscription.unsubscribe()
    return answers
