"""
Files → a `Workspace`: what each file is, what it includes, and what is wrong with it before any rule looks.

Nothing is read from a disk here. Whoever calls gives the contents, and a way to read what they include.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from vstream.findings import Finding, Severity, Span
from vstream.lint import detect
from vstream.lint.detect import FileKind, nearest_option
from vstream.lint.reading import claims, servers, streams
from vstream.lint.reading.mappings import BlockCache
from vstream.lint.reading.nodes import scalar, table
from vstream.lint.secrets import downgrade_undefined_variables, without_chart_variables
from vstream.lint.workspace import ClaimsAccount, ConsumerFile, ServerConf, StreamFile, Workspace
from vstream.syntax import json as jsontext
from vstream.syntax import natsconf
from vstream.syntax.document import Json
from vstream.syntax.natsconf.nodes import Comment, ConfMap, Reference
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.syntax.yaml import Document
    from vstream.topology.model import ServerVersion, Topology

Read: TypeAlias = Callable[[str], bytes]
"""The content of a file, by its name; raises OSError or ValueError."""

STDIN = "<stdin>"
"""The name of standard input."""
_CONFIGURATIONS = (".conf", ".cfg", ".json")
_OPTIONS_IN_JSON = frozenset({"mappings", "maps", "accounts", "cluster", "gateway", "jetstream", "listen", "port"})


@value_class
class Source:
    """
    One file that was given: its content, or why there is none.

    *is_named* is False for what was found in a directory: there, files of other programs are passed over.
    """

    name: str
    content: bytes = b""
    problem: Finding | None = None
    is_named: bool = True
    kind: FileKind | None = None
    """What it is, where whoever gives it knows."""


@value_class
class DisplayPlace:
    """Where to show findings about a text that is no file of its own, such as the claims inside of a token."""

    span: Span
    message: str


@dataclass(slots=True, kw_only=True)
class ParsedFiles:
    """What a set of files says."""

    servers: list[ServerConf] = field(default_factory=list)
    claims: list[ClaimsAccount] = field(default_factory=list)
    streams: list[StreamFile] = field(default_factory=list)
    consumers: list[ConsumerFile] = field(default_factory=list)
    topologies: list[Source] = field(default_factory=list)
    scenarios: list[Source] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """The text of every file, for what is shown of it."""
    comments: list[Comment] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    display_places: dict[str, DisplayPlace] = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)
    """The files that have something to check."""
    unquoted: set[str] = field(default_factory=set)
    """Included files that are not called like a configuration: a mistake, or an attack, includes files with secrets."""

    def workspace(self, topology: Topology | None = None, server_version: ServerVersion | None = None) -> Workspace:
        """Everything as rules see it. A version that is given wins over that of *topology*."""
        claimed = [account.block for account in self.claims if account.block is not None]
        blocks = (*servers.distinct_blocks(self.servers), *claimed)
        return Workspace(
            servers=tuple(self.servers),
            claims=tuple(self.claims),
            blocks=tuple(sorted(blocks, key=lambda block: block.key_span)),
            streams=streams.with_roles(self.streams, topology),
            consumers=tuple(self.consumers),
            topology=topology,
            stated_version=server_version or (topology.server_version if topology else None),
        )


def parse_sources(sources: Iterable[Source], *, read: Read, env: Mapping[str, str] | None = None) -> ParsedFiles:
    """
    Read *sources*. Never raises: what is wrong with them is in the findings (VS001 to VS012).

    *read* is called for the files they include, with names relative to where the sources' names are.
    """
    parser = _FileParser(read, env)
    for source in sources:
        parser.add(source)
    return parser.parsed


class _FileParser:
    def __init__(self, read: Read, env: Mapping[str, str] | None) -> None:
        self.parsed = ParsedFiles()
        self._read = read
        self._env = env
        self._included: dict[str, str] = {}
        self._blocks = BlockCache()

    def add(self, source: Source) -> None:
        text = source.problem or detect.decode(source.content, source.name)
        if isinstance(text, Finding):
            self.parsed.findings.append(text)
            return
        kind = source.kind or detect.detect(text, source.name, is_named=source.is_named)
        self.parsed.texts[source.name] = text
        match kind:
            case FileKind.TOPOLOGY:
                self.parsed.checked.append(source.name)
                self.parsed.topologies.append(source)
            case FileKind.SCENARIO:
                self.parsed.checked.append(source.name)
                self.parsed.scenarios.append(source)
            case FileKind.TOKEN:
                self._add_token(text, source)
            case FileKind.JSON:
                self._add_json(text, source)
            case FileKind.CONF:
                self._add_conf(text, source)
            case _ if detect.may_be_conf(text, source.name):
                self._add_unknown_conf(text, source)
            case _:
                self._note_unchecked(source)

    def _add_unknown_conf(self, text: str, source: Source) -> None:
        """A file called like a configuration, without one option that servers know: broken, misspelt, or not ours."""
        document = natsconf.parse(text, source.name)
        is_broken = any(problem.code == "VS010" and problem.is_error for problem in document.findings)
        is_misspelt = not is_broken and any(nearest_option(entry.key) for entry in document.root.entries)
        if is_misspelt or (is_broken and source.is_named):
            self._add_conf(text, source)
        else:
            self._note_unchecked(source)

    def _note_unchecked(self, source: Source, message: str = "nothing in this file is checked") -> None:
        if source.is_named:
            hint = "vstream lint reads NATS configurations, streams and account claims as JSON, JWTs, topologies and scenarios"
            finding = detect.unreadable_file(source.name, message, hint)
            self.parsed.findings.append(replace(finding, code="VS007", severity=Severity.NOTE))

    # JSON

    def _add_json(self, text: str, source: Source) -> None:
        document = jsontext.parse(text.removeprefix("\ufeff"), source.name)
        data = document.data
        if data is None and not source.name.lower().endswith(".json"):
            self._add_conf(text, source)
        elif data is None and (source.is_named or detect.looks_checkable(text)):
            self.parsed.checked.append(source.name)
            self.parsed.findings += document.findings
        elif claims.is_account_claims(data):
            self.parsed.checked.append(source.name)
            self._add_claims(document)
        elif configs := (
            *streams.parse_stream_files(data, document.source),
            *streams.read_consumer_files(data, document.source),
        ):
            self.parsed.checked.append(source.name)
            self.parsed.findings += document.findings
            self.parsed.streams += (config for config in configs if isinstance(config, StreamFile))
            self.parsed.consumers += (config for config in configs if isinstance(config, ConsumerFile))
        elif isinstance(data, dict) and _OPTIONS_IN_JSON & {key.lower() for key in data}:
            if detect.is_server_json(data, is_named=source.is_named):
                self._add_conf(text, source)
            else:
                self._note_unchecked(source)
        else:
            self._note_unchecked(source)

    def _add_claims(self, document: Document) -> None:
        self.parsed.findings += document.findings
        account = claims.read_claims_account(document.data, document.source)
        if account is not None:
            self.parsed.claims.append(account)

    def _add_token(self, text: str, source: Source) -> None:
        token_claims = detect.find_claims(text)
        if token_claims is None:
            message, hint = "this token cannot be decoded", "is the file complete?"
            self.parsed.findings.append(detect.unreadable_file(source.name, message, hint))
            return
        claims_text, start, end = token_claims
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        span = Span(source.name, line, column, line, column + end - start)
        if self._add_token_claims(claims_text, span, f"{source.name}:claims"):
            self.parsed.checked.append(source.name)
        else:
            self._note_unchecked(source, "only tokens of accounts are checked")

    def _add_token_claims(self, text: str, span: Span, name: str) -> bool:
        """Check the claims of a token, spread over lines so that a finding can show one."""
        try:
            data: Json = json.loads(text)
        except (ValueError, RecursionError):
            message = "the claims of this token are not JSON"
            self.parsed.findings.append(detect.unreadable_file(span.file, message, "is the token complete?", span))
            return True
        if not claims.is_account_claims(data):
            return False
        # Half a surrogate, which JSON can escape, is no text that could be shown.
        spread = json.dumps(data, indent=2, ensure_ascii=False).encode(errors="replace").decode()
        self.parsed.texts[name] = spread
        self.parsed.display_places[name] = DisplayPlace(span=span, message="in the claims of this token")
        self._add_claims(jsontext.parse(spread, name))
        return True

    # Configurations

    def _add_conf(self, text: str, source: Source) -> None:
        value_count = detect.count_values_at_most(text)
        if value_count > detect.MAX_VALUES:
            message = f"more than {detect.MAX_VALUES:,} values: too much for a configuration"
            finding = detect.unreadable_file(source.name, message, "is this the right file?")
            self.parsed.findings.append(replace(finding, code="VS003"))
            return
        including = _IncludeReader(self._read, self._included, len(text), value_count)
        document = natsconf.parse(text, source.name, include=including, env=self._env)
        for name, included_text in including.texts.items():
            self.parsed.texts.setdefault(name, included_text)
        is_broken = any(problem.code == "VS010" and problem.is_error for problem in document.findings)
        # The `http` of a web server is a block.
        keys = [top.key for top in document.root.entries if top.key != "http" or not isinstance(top.value, ConfMap)]
        if not source.is_named and detect.belongs_to_others(keys, is_broken=is_broken):
            return
        self.parsed.unquoted |= {name for name in including.texts if not name.lower().endswith(_CONFIGURATIONS)}
        self.parsed.checked.append(source.name)
        is_given = self._env is not None
        findings = without_chart_variables(document.findings, document.root)
        self.parsed.findings += findings if is_given else downgrade_undefined_variables(findings)
        self.parsed.references += document.references
        self.parsed.comments += document.comments
        conf = servers.read_server_conf(document, source.name, including.texts, self._blocks)
        self.parsed.servers.append(conf)
        self._read_preloaded(conf)

    def _read_preloaded(self, conf: ServerConf) -> None:
        """The tokens that a server in operator mode has in its configuration."""
        tokens = table(conf.root, "resolver_preload")
        for entry in tokens.effective_entries() if tokens else ():
            text, span = scalar(entry.value), entry.value.span
            token_claims = detect.find_claims(text) if isinstance(text, str) else None
            if token_claims is not None:
                self._add_token_claims(token_claims[0], span, f"{span.file}:{span.line}:claims")


class _IncludeReader:
    """Finds what include directives name, and keeps count: all of it together may not exceed what a file may hold."""

    def __init__(self, read: Read, contents: dict[str, str], size: int, values: int) -> None:
        self.texts: dict[str, str] = {}
        """What was included, by name."""
        self._read = read
        self._contents = contents
        self._size = size
        self._value_count = values

    def __call__(self, path: str, file: str) -> tuple[str, str]:
        # To the server a leading slash makes no difference: every path is relative.
        directory = "" if file.startswith("$") else posixpath.dirname(file)
        name = posixpath.normpath(posixpath.join(directory, path.lstrip("/")))
        if name not in self._contents:
            text = detect.decode(self._read(name), name)
            if isinstance(text, Finding):
                raise ValueError(text.message)
            self._contents[name] = text
        text = self._contents[name]
        self._size += len(text)
        self._value_count += detect.count_values_at_most(text)
        if self._size > detect.MAX_BYTES or self._value_count > detect.MAX_VALUES:
            raise ValueError("this file makes the configuration too large")
        self.texts[name] = text
        return name, text
