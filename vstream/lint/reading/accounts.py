"""What accounts of a configuration export and import (server/opts.go, parseAccountExports, parseAccountImports)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from vstream.findings import Span
from vstream.lint.reading.nodes import entry, list_values, maps_in, option, table
from vstream.lint.workspace import (
    AccountConf,
    ClaimedImport,
    ClaimsAccount,
    ConfValue,
    MappingForm,
    MappingsBlock,
    ServerConf,
    Workspace,
)
from vstream.subjects.account_flow import (
    GLOBAL_ACCOUNT,
    AccountFlow,
    AccountLink,
    ExportedSubject,
    ImportKind,
    link_accounts,
)
from vstream.subjects.algebra import SubjectTrie, is_subset
from vstream.subjects.resolve import MappingTable, compile_mappings
from vstream.syntax.natsconf.nodes import ConfMap

_EXPORT_KINDS: Final = ("stream", "service")


class AccountExport(NamedTuple):
    """A stream or service that an account lets others import; *accounts* is None where everybody may."""

    kind: str
    subject: ConfValue
    accounts: frozenset[str] | None
    conf: ConfMap


class AccountImport(NamedTuple):
    """A stream or service that an account takes from another one. *to* is where it is here, by default the same subject."""

    kind: str
    account: ConfValue
    subject: ConfValue
    to: ConfValue | None
    prefix: ConfValue | None
    conf: ConfMap


def exports_of(account: AccountConf) -> tuple[AccountExport, ...]:
    """What *account* exports."""
    exports = []
    for conf in maps_in(account.conf, "exports"):
        for kind in _EXPORT_KINDS:
            subject = option(conf, kind)
            if subject is not None and subject.text is not None:
                named = entry(conf, "accounts")
                accounts = frozenset(str(value.value) for value in list_values(named.value)) if named else None
                exports.append(AccountExport(kind, subject, accounts, conf))
    return tuple(exports)


def imports_of(account: AccountConf) -> tuple[AccountImport, ...]:
    """What *account* imports."""
    imports = []
    for conf in maps_in(account.conf, "imports"):
        for kind in _EXPORT_KINDS:
            source = table(conf, kind)
            name, subject = option(source, "account"), option(source, "subject")
            if name is not None and subject is not None and subject.text is not None:
                imports.append(AccountImport(kind, name, subject, option(conf, "to"), option(conf, "prefix"), conf))
    return tuple(imports)


def read_server_flow(server: ServerConf) -> AccountFlow:
    """The mappings and imports of all accounts of *server*. Imports that it refuses are left out."""
    exports = {account.name: exports_of(account) for account in server.accounts}
    indexes = {name: ExportIndex(of_account) for name, of_account in exports.items()}
    links = []
    for account in server.accounts:
        for account_import in imports_of(account):
            link = _read_link(account.name, account_import)
            if link is not None and _is_exported(link, indexes.get(link.exporter, ExportIndex(()))):
                links.append(link)
    tables = {account.name: _read_mapping_table(account.mappings) for account in server.accounts}
    of_global = tuple(block for block in server.mappings if block.account is None)
    if of_global:
        tables[GLOBAL_ACCOUNT] = _read_mapping_table(of_global)
    return AccountFlow(tables, links, _read_exported_subjects(exports))


def _read_exported_subjects(exports: Mapping[str, tuple[AccountExport, ...]]) -> Iterator[ExportedSubject]:
    for account, of_account in exports.items():
        for export in of_account:
            subject = str(export.subject.value)
            kind = ImportKind(export.kind)
            yield ExportedSubject(kind=kind, account=account, subject=subject, span=export.subject.span)


def _read_mapping_table(blocks: tuple[MappingsBlock, ...]) -> MappingTable:
    if len(blocks) == 1:
        return blocks[0].table
    return compile_mappings(mapping.model for block in blocks for mapping in block.entries)


def _read_link(importer: str, account_import: AccountImport) -> AccountLink | None:
    return link_accounts(
        ImportKind(account_import.kind),
        importer=importer,
        exporter=str(account_import.account.value),
        exported=str(account_import.subject.value),
        to=account_import.to.text if account_import.to else None,
        prefix=account_import.prefix.text if account_import.prefix else None,
        span=account_import.subject.span,
    )


def _is_exported(link: AccountLink, exports: ExportIndex) -> bool:
    covering = exports.covering(link.kind.value, link.exported)
    return any(export.accounts is None or link.importer in export.accounts for export in covering)


class ExportIndex:
    """The exports of an account, of which there may be thousands, by what they cover."""

    def __init__(self, exports: tuple[AccountExport, ...]) -> None:
        self._exports = exports
        self._subjects = SubjectTrie(str(export.subject.value) for export in exports)

    def covering(self, kind: str, subject: str) -> list[AccountExport]:
        """The exports that let others import all of *subject*, in the order written."""
        near = (self._exports[number] for number in self._subjects.overlapping(subject))
        return [export for export in near if export.kind == kind and is_subset(subject, str(export.subject.value))]


def index_accounts_without_rules(workspace: Workspace) -> dict[str, MappingsBlock]:
    """The accounts that import or export, or are signed, and have no mappings, each with a block without rules."""
    blocks: dict[str, MappingsBlock] = {}
    for server in workspace.servers:
        for account in server.accounts:
            if not account.mappings and (imports_of(account) or exports_of(account)):
                blocks.setdefault(account.name, make_empty_block(server.file, account.name, account.key_span))
    for claimed in workspace.claims:
        if claimed.block is None:
            blocks.setdefault(claimed.name, make_empty_block(claimed.file, claimed.name, claimed.span))
    return blocks


def make_empty_block(file: str, account: str | None, span: Span) -> MappingsBlock:
    """The mappings of an account that has none; *span* is where it is written."""
    return MappingsBlock(
        file=file,
        form=MappingForm.CONF,
        account=account,
        span=span,
        key_span=span,
        entries=(),
        table=compile_mappings(()),
    )


def find_account_flow(workspace: Workspace, account: str | None, cluster: str | None) -> AccountFlow | None:
    """How messages go between accounts on the server of *cluster* that has *account*, else on the first with it."""
    servers = [server for server in workspace.servers if any(account == conf.name for conf in server.accounts)]
    servers.sort(key=lambda server: server.cluster_name is None or server.cluster_name.text != cluster)
    if servers:
        return read_server_flow(servers[0])
    return read_claims_flow(workspace.claims) if any(account == claimed.name for claimed in workspace.claims) else None


def read_claims_flow(accounts: tuple[ClaimsAccount, ...]) -> AccountFlow:
    """The mappings and imports of an operator's accounts, as far as their claims are among the files."""
    names = {account.key: account.name for account in accounts}
    exports = []
    for account in accounts:
        for export in account.exports:
            if export.kind in _EXPORT_KINDS:
                kind = ImportKind(export.kind)
                exports.append(
                    ExportedSubject(kind=kind, account=account.name, subject=export.subject, span=export.span)
                )
    subjects = SubjectTrie(export.subject for export in exports)
    links = []
    for account in accounts:
        for account_import in account.imports:
            exporter = names.get(account_import.exporter_key)
            link = (
                _read_claimed_link(account.name, exporter, account_import)
                if exporter and account_import.kind in _EXPORT_KINDS
                else None
            )
            near = [exports[number] for number in subjects.overlapping(link.exported)] if link is not None else []
            if link is not None and any(_covers(export, link) for export in near):
                links.append(link)
    tables = {account.name: account.block.table for account in accounts if account.block is not None}
    return AccountFlow(tables, links, exports)


def _covers(export: ExportedSubject, link: AccountLink) -> bool:
    return (export.account, export.kind) == (link.exporter, link.kind) and is_subset(link.exported, export.subject)


def _read_claimed_link(importer: str, exporter: str, account_import: ClaimedImport) -> AccountLink | None:
    return link_accounts(
        ImportKind(account_import.kind),
        importer=importer,
        exporter=exporter,
        exported=account_import.exported,
        to=account_import.to,
        prefix=account_import.prefix,
        span=account_import.span,
    )
