"""VS403 to VS499: server configurations, alone and as one super-cluster. Included files are not checked alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.rules.servers.access import no_system_account, open_to_everyone, plain_password, port_clash
from vstream.lint.rules.servers.accounts import accounts_do_not_fit
from vstream.lint.rules.servers.alike import servers_disagree
from vstream.lint.rules.servers.identity import (
    duplicate_server_name,
    incomplete_gateways,
    names_differ,
    rejects_unknown,
    server_name_missing,
    shared_store,
    unnamed_cluster,
)
from vstream.lint.rules.servers.implausible import implausible_option
from vstream.lint.rules.servers.jetstream import jetstream_off, sync_interval, temporary_store, unlimited_storage
from vstream.lint.rules.servers.links import without_effect, wrong_port
from vstream.lint.rules.servers.meta_quorum import no_majority, region_holds_majority
from vstream.lint.rules.servers.option_values import written_twice, wrong_value
from vstream.lint.rules.servers.options import needs_newer_server, unknown_option
from vstream.lint.rules.servers.reload import reload_refused
from vstream.lint.rules.servers.sharing import flow_control_not_shared
from vstream.lint.rules.servers.startup import does_not_start

if TYPE_CHECKING:
    from vstream.lint.registry import Rule
    from vstream.lint.workspace import Workspace

RULES: tuple[Rule[Workspace], ...] = (
    names_differ,
    unnamed_cluster,
    duplicate_server_name,
    shared_store,
    incomplete_gateways,
    rejects_unknown,
    region_holds_majority,
    no_majority,
    port_clash,
    jetstream_off,
    unlimited_storage,
    temporary_store,
    sync_interval,
    no_system_account,
    open_to_everyone,
    plain_password,
    needs_newer_server,
    unknown_option,
    server_name_missing,
    flow_control_not_shared,
    wrong_value,
    accounts_do_not_fit,
    does_not_start,
    written_twice,
    reload_refused,
    wrong_port,
    without_effect,
    implausible_option,
    servers_disagree,
)
"""In the order of their codes."""
