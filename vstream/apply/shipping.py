"""
Mapping rules in files: the user's command ships them, and a reload loads them, over the system account or by the operator.

The system account can tell a server to read its files again; the server answers with what is wrong with them. The first
server is a canary: no other is told before it has the planned rules.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

from vstream.apply.interfaces import LEFT_TO_OTHERS, LeftToOthers, MappingAdmin
from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, VstreamError
from vstream.jetstream.answers import convert_malformed_errors, decode_object, require_text
from vstream.jetstream.connection import Connection, Reply, connect_to_system
from vstream.plan.model import ACCOUNT, Plan
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.render.write_bundle import write_bundle
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Endpoint
from vstream.topology.profiles import profile_of
from vstream.topology.server_address import ServerAddress
from vstream.value_class import value_class

_COMMAND_TIMEOUT = 300.0
"""Seconds that the command gets for one server."""
_PING_SUBJECT = "$SYS.REQ.SERVER.PING"
_ANSWER_TIMEOUT = 5.0
"""Seconds that all servers get to answer."""
_RELOAD_TIMEOUT = 20.0
"""Seconds for a server to load its files."""
_LOADED_TIMEOUT = 15.0
"""Seconds until a reloaded server must report the new rules. It takes milliseconds."""
_POLL_SECONDS = 0.25


@value_class
class ShippingOptions:
    """What `apply` was told about files."""

    command: str | None = None
    """Run for each server, with `{server}`, `{host}`, `{region}` and `{directory}` filled in."""
    loaded_timeout: float | None = None
    """Seconds until rules must be loaded, where somebody else brings files or has servers load them; else None."""


def make_shipped_mappings(request: PlanRequest, plan: Plan, shipping: ShippingOptions) -> MappingAdmin | LeftToOthers:
    """How servers come to load what is planned; left to others where vstream cannot make them. Raises VstreamError."""
    servers = [server for server in request.bundle.servers if server.region not in request.lost]
    living = {region: endpoint for region, endpoint in request.endpoints.items() if region not in request.lost}
    system = {region: endpoint.system for region, endpoint in living.items() if endpoint.system is not None}
    if shipping.command is not None:
        # What is wrong with it is said before anything is done.
        fill_in(shipping.command, servers[0], Path("directory"))
    names = {server.server.name for server in servers if not server.is_hub}
    if shipping.command is not None and plan.are_rules_unknown and names <= {*plan.unread_servers}:
        raise VstreamError(
            "nobody could read what servers have loaded, so nothing would be shipped",
            hint="list the `monitor` of every server under `connect`, or apply without `--ship-with`",
        )
    if not system and shipping.loaded_timeout is None:
        if shipping.command is not None:
            raise VstreamError(
                "files would be shipped, but no server would load them",
                hint="name a user of the system account (`system` under `connect`), or pass `--wait-loaded SECONDS`",
            )
        return LEFT_TO_OTHERS
    times = 2 if any(rule.kind == ACCOUNT and rule.before is None for rule in plan.rule_changes) else 1
    return ShippedMappings(
        request=request,
        servers=servers,
        shipping=shipping,
        reloads=_plan_reloads(request, servers, system, times) if system else (),
    )


def _plan_reloads(
    request: PlanRequest, servers: Sequence[ServerAddress], system: Mapping[str, Endpoint], times: int
) -> tuple[RemoteReload, ...]:
    """One for all servers, or one for each region where regions are systems of their own. Hubs are not reloaded."""
    names: dict[str, list[str]] = defaultdict(list)
    is_apart = profile_of(request.topology).has_domains
    for server in servers:
        if not server.is_hub:
            names[server.region if is_apart else ""].append(server.server.name)
    if missing := [region for region in names if region and region not in system]:
        raise VstreamError(
            f"`connect.{missing[0]}` has no `system`: with this `routing` each region has a system account of its own",
            hint="name a user of the system account in every region, or in none",
        )
    reloads = []
    for region, members in names.items():
        reloads.append(RemoteReload({region: system[region]} if region else system, members, times=times))
    return tuple(reloads)


async def _read_missing(request: PlanRequest) -> Mapping[str, Sequence[str]]:
    """The sources of rules and account entries that each server has not loaded as planned, by its name; none if unread."""
    missing: dict[str, list[str]] = defaultdict(list)
    plan = await make_plan(request)
    for rule in plan.rule_changes:
        for server in rule.servers:
            missing[server].append(rule.source)
    for server in plan.unread_servers:
        missing[server] = []
    return missing


def _ship(request: PlanRequest, servers: Sequence[ServerAddress], command: str) -> None:
    """Run *command* for each of *servers*, with the file that they load."""
    with tempfile.TemporaryDirectory(prefix="vstream-ship-") as name:
        directory = Path(name) / "bundle"
        # Nothing else: servers refuse to reload other gateways, and a new region is in the configuration of all.
        loaded = loaded_path(request.topology)
        write_bundle([artifact for artifact in request.bundle.artifacts if artifact.path == loaded], directory)
        for server in servers:
            _run(fill_in(command, server, directory), server.server.name)


def fill_in(command: str, server: ServerAddress, directory: Path) -> list[str]:
    """The words of *command* for one server. Raises VstreamError for what it does not know."""
    values = {"server": server.server.name, "host": server.host, "region": server.region, "directory": str(directory)}
    try:
        words = [word.format_map(values) for word in shlex.split(command)]
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        raise VstreamError(
            f"`--ship-with` cannot be read: {error}", hint="it knows {server}, {host}, {region} and {directory}"
        ) from None
    if not words:
        raise VstreamError("`--ship-with` has no command", hint="such as 'rsync -r {directory}/ {host}:/etc/nats/'")
    return words


def _run(words: Sequence[str], server: str) -> None:
    try:
        ran = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise VstreamError(f"`{words[0]}` for server `{server}` did not end within {_COMMAND_TIMEOUT:g} s") from None
    except OSError as error:
        raise VstreamError(f"`{words[0]}` cannot be run: {error.strerror}", hint="check `--ship-with`") from None
    if ran.returncode:
        lines = (ran.stderr or ran.stdout).strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        raise VstreamError(
            f"shipping to server `{server}` failed with {ran.returncode}{reason}",
            hint="nothing was reloaded; fix it and apply again",
        )


@value_class
class ShippedMappings:
    """
    MappingAdmin for servers whose files somebody ships.

    What *request* plans goes to *servers* as *shipping* says. *reloads* have servers load it, one after the other; none
    where something beside them does, such as a sidecar.
    """

    request: PlanRequest
    servers: Sequence[ServerAddress]
    shipping: ShippingOptions
    reloads: Sequence[RemoteReload]

    async def ensure_loaded(self) -> None:
        """See MappingAdmin."""
        command, loaded_timeout = self.shipping.command, self.shipping.loaded_timeout
        if command is not None:
            for reload in self.reloads:
                await reload.check_login()  # before anything is shipped
            await asyncio.to_thread(_ship, self.request, self.servers, command)
        # What somebody else brings may not be there yet.
        if command is not None or loaded_timeout is None:
            for reload in self.reloads:
                await reload.run(self._check_canary)
        within = _LOADED_TIMEOUT if loaded_timeout is None else loaded_timeout
        behind = await self._wait_with_reloads(within)
        if behind:
            hint = "compare the file on that server with `vstream render`, and its log; then apply again"
            raise _make_error(behind, f"after {within:g} s", hint)

    async def _wait_with_reloads(self, within: float) -> dict[str, Sequence[str]]:
        """
        What servers still have not loaded after *within* seconds.

        Whoever brings the files has servers load them once. Where an account is new, they serve what that imports only
        after one more reload: so what is behind for long is told to reload.
        """
        until = time.monotonic() + within
        behind = await wait_loaded(self.request, None, min(_LOADED_TIMEOUT, within))
        while behind and time.monotonic() < until:
            for reload in self.reloads:
                await reload.run(None, only=behind.keys())
            behind = await wait_loaded(self.request, None, min(_LOADED_TIMEOUT, until - time.monotonic()))
        return behind

    async def _check_canary(self, server: str) -> None:
        behind = await wait_loaded(self.request, server, _LOADED_TIMEOUT)
        if behind:
            hint = "ship the files that `vstream render` writes to every server, then apply again"
            raise _make_error(behind, "after a reload, so no other server was told to reload", hint)


async def wait_loaded(request: PlanRequest, server: str | None, within: float) -> dict[str, Sequence[str]]:
    """
    What *server*, or any if that is None, still has not loaded of what *request* plans after *within* seconds.

    Empty as soon as nothing is missing.
    """
    until = time.monotonic() + within
    while True:
        by_server = await _read_missing(request)
        behind = {name: sources for name, sources in by_server.items() if server is None or server == name}
        if not behind or time.monotonic() > until:
            return behind
        await asyncio.sleep(_POLL_SECONDS)


def _make_error(behind: Mapping[str, Sequence[str]], when: str, hint: str) -> VstreamError:
    unread = [name for name, sources in behind.items() if not sources]
    if unread:
        message = f"nobody could read what {', '.join(sorted(unread))} has loaded {when}"
        return VstreamError(
            message, hint="add its `monitor` under `connect`, and see whether it runs; then apply again"
        )
    example = next(iter(behind.values()))[0]
    verb = "has" if len(behind) == 1 else "have"
    message = f"{', '.join(sorted(behind))} {verb} not loaded what is planned, such as `{example}`, {when}"
    return VstreamError(message, hint=hint)


class RemoteReload:
    """
    Tells *servers* to reload, one after the other, over the system account, which *system* are ways to.

    *times* is 2 where an account is new: the first reload makes it, the second what imports from it.
    """

    def __init__(self, system: Mapping[str, Endpoint], servers: Sequence[str], *, times: int = 1) -> None:
        self._system = system
        self._servers = servers
        self._times = times

    async def check_login(self) -> None:
        """Raises VstreamError unless servers answer on the system account. Tells none of them anything."""
        await self.run(None, only=())

    async def run(
        self, check_canary: Callable[[str], Awaitable[None]] | None, *, only: Collection[str] | None = None
    ) -> None:
        """Reload all, or *only* these. The first is given to *check_canary* before the others. Raises VstreamError."""
        servers = [server for server in self._servers if only is None or server in only]
        connection = await connect_to_system(self._system)
        try:
            ids = await read_server_ids(connection, servers)
            for number, server in enumerate(servers):
                for _ in range(self._times):
                    await reload_server(connection, server, ids[server])
                if number == 0 and check_canary is not None:
                    await check_canary(server)
        finally:
            await connection.close()


async def read_server_ids(connection: Connection, servers: Sequence[str]) -> dict[str, str]:
    """The ids of *servers* by name. Raises NotReachableError if one of them does not answer."""
    ids: dict[str, str] = {}

    def is_last(answer: Reply) -> bool:
        with convert_malformed_errors(_PING_SUBJECT):
            server = decode_object(answer.data, _PING_SUBJECT)["server"]
            ids[require_text(server["name"])] = require_text(server["id"])
        return ids.keys() >= set(servers)

    try:
        await connection.request_many(_PING_SUBJECT, is_last=is_last, timeout=_ANSWER_TIMEOUT)
    except (NoRespondersError, NotPermittedError):
        raise VstreamError(
            "the user under `connect.….system` is not in the system account: no server answers it",
            hint="name a user of the account $SYS",
        ) from None
    except NotReachableError:
        silent = [server for server in servers if server not in ids]
        if not silent:
            raise
        raise NotReachableError(
            f"{', '.join(silent)} did not answer on the system account, so no server was told to reload"
        ) from None
    return ids


async def reload_server(connection: Connection, server: str, server_id: str) -> None:
    """Make *server* read its files again. Raises VstreamError with its reason if it refuses them."""
    subject = f"$SYS.REQ.SERVER.{server_id}.RELOAD"
    answer = await connection.request_json(subject, timeout=_RELOAD_TIMEOUT)
    with convert_malformed_errors(subject):
        error = answer.get("error")
        if error:
            reason = require_text(error.get("description", "no reason given")).strip()
            raise VstreamError(
                f"server `{server}` refuses its files: {reason}",
                hint="`nats-server -t -c FILE` on that server says more; it keeps its former rules",
            )
