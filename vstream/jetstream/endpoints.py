"""Read and check what opens a connection: the files, variables and nats CLI contexts that an endpoint names."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vstream.credentials import check_plaintext, make_tls_context, read_credentials, read_secret_variable, read_seed
from vstream.errors import VstreamError
from vstream.topology.accounts import inbox_of
from vstream.topology.model import Endpoint, Topology, is_context_name


def require_endpoints(topology: Topology, endpoints: Mapping[str, Endpoint]) -> None:
    """Raises VstreamError with everything that is wrong with *endpoints* before any server is dialled."""
    regions = [region.name for region in topology.regions if region.name in endpoints]
    problems = [problem for region in regions for problem in list_endpoint_problems(endpoints[region], region)]
    if problems:
        hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
        raise VstreamError("; ".join(problem.message for problem in problems), hint="; ".join(hints) or None)


def list_endpoint_problems(endpoint: Endpoint, region: str) -> list[VstreamError]:
    """Everything wrong with *endpoint* that can be seen without a network: contexts, files, variables."""
    problems: list[VstreamError] = []
    if endpoint.context:
        try:
            endpoint = resolve_context(endpoint)
        except VstreamError as error:
            return [VstreamError(f"region `{region}`: {error.message}", hint=error.hint)]
    files = (
        (endpoint.creds, "credentials"),
        (endpoint.nkey, "nkey"),
        (endpoint.tls_ca, "CA"),
        (endpoint.tls_cert, "certificate"),
        (endpoint.tls_key, "key"),
    )
    checks: list[Callable[[], object]] = [partial(_require_file, path, region, kind) for path, kind in files if path]
    variables = (endpoint.password_env if endpoint.user else None, endpoint.token_env)
    checks += [partial(read_secret_variable, name, f"region `{region}`") for name in variables if name]
    checks.append(partial(check_plaintext, endpoint.plaintext_hosts, f"region `{region}`"))
    for check in checks:
        try:
            check()
        except VstreamError as error:
            problems.append(error)
    return problems


def make_connection_options(endpoint: Endpoint, region: str) -> dict[str, Any]:
    """The client library's options for *endpoint*. Raises VstreamError if a file or variable is missing or refused."""
    reader = f"region `{region}`"
    check_plaintext(endpoint.plaintext_hosts, reader)
    # The library takes a scheme in capitals for a host.
    addresses = [url.rpartition("://") for url in endpoint.urls]
    servers = [f"{scheme.lower()}{separator}{rest}" for scheme, separator, rest in addresses]
    options: dict[str, Any] = {"servers": servers, "inbox_prefix": endpoint.inbox}
    if endpoint.creds:
        options["user_credentials"] = _require_file(endpoint.creds, region, "credentials")
        read_credentials(Path(options["user_credentials"]))
    if endpoint.nkey:
        options["nkeys_seed"] = _require_file(endpoint.nkey, region, "nkey")
        read_seed(Path(options["nkeys_seed"]))
    if endpoint.user:
        options["user"] = endpoint.user
        # A nats CLI context may have a user without a password.
        options["password"] = (
            read_secret_variable(endpoint.password_env, reader) if endpoint.password_env else endpoint.password or ""
        )
    if endpoint.token_env:
        options["token"] = read_secret_variable(endpoint.token_env, reader)
    elif endpoint.token:
        options["token"] = endpoint.token
    if endpoint.tls_ca or endpoint.tls_cert:
        files = ((endpoint.tls_ca, "CA"), (endpoint.tls_cert, "certificate"), (endpoint.tls_key, "key"))
        options["tls"] = make_tls_context(
            *(_require_file(path, region, kind) if path else None for path, kind in files)
        )
        logging.getLogger("asyncio").addFilter(_is_worth_logging)
    return options


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """
    Whether what asyncio warns of is worth saying.

    The library makes the stream of a TLS connection by itself (nats/aio/transport.py, `connect_tls`), which then does not
    know that it is one. So asyncio warns at the end of each that it cannot be half closed, which nobody wants it to be.
    """
    return not str(record.msg).startswith("returning true from eof_received()")


def _require_file(path: str, region: str, kind: str) -> str:
    file = Path(path).expanduser()
    if not file.is_file():
        raise VstreamError(
            f"region `{region}`: the {kind} file {path} does not exist", hint="see `connect` in the topology"
        )
    return str(file)


def resolve_context(endpoint: Endpoint) -> Endpoint:
    """Fill an endpoint from its nats CLI context. Raises VstreamError if there is no such context."""
    name = endpoint.context or ""
    if not is_context_name(name):
        raise VstreamError(
            f"`{name}` is not the name of a nats CLI context",
            hint="names contain no `/` and do not begin with a dot: `nats context ls`",
        )
    directory = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats" / "context"
    path = directory / f"{endpoint.context}.json"
    try:
        context = json.loads(path.read_text(encoding="utf-8"))
        urls = tuple(url.strip() for url in context["url"].split(",") if url.strip())
    except FileNotFoundError:
        names = sorted(file.stem for file in directory.glob("*.json")) if directory.is_dir() else []
        raise VstreamError(
            f"there is no nats CLI context `{endpoint.context}`",
            hint=f"known contexts: {', '.join(names)}" if names else f"none are saved in {directory}",
        ) from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise VstreamError(
            f"the nats CLI context {path} cannot be read", hint="`nats context validate` says why"
        ) from None
    return replace(
        endpoint,
        context=None,
        urls=urls,
        creds=context.get("creds") or None,
        nkey=context.get("nkey") or None,
        user=context.get("user") or None,
        password=context.get("password") or None,
        token=context.get("token") or None,
        tls_ca=context.get("ca") or None,
        tls_cert=context.get("cert") or None,
        tls_key=context.get("key") or None,
        inbox=context.get("inbox_prefix") or inbox_of(context.get("user")),
    )
