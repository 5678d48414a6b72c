"""From topology and templates to a bundle: every file is rendered, then parsed back, so that it means what it says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jinja2

from vstream import resources
from vstream.errors import InvalidInputError, VstreamError
from vstream.findings import Finding, Severity, Span
from vstream.render import account_view, claims, jwt, server_view, stream_view
from vstream.render.environment import limit_template, make_jinja_environment, quote, to_json
from vstream.render.jwt import Unsigned
from vstream.subjects.mapping_rule import MappingRule, parse_mappings
from vstream.syntax import natsconf
from vstream.syntax.document import Json
from vstream.topology import bundle, naming, physical
from vstream.topology.accounts import SYSTEM_USER, Account, password_variable
from vstream.topology.accounts_block import parse_accounts_block, unreported_digest
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Security, Topology, VirtualStream
from vstream.topology.profiles import domains, profile_of
from vstream.topology.profiles.profile import layouts
from vstream.topology.replication import PhysicalStream, physical_streams
from vstream.topology.server_address import ServerAddress
from vstream.topology.signing import Signer, account_key
from vstream.topology.stream_config import StreamConfig
from vstream.value_class import value_class

_MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Longest file that a template may write: the next step reads it."""
_MAX_PUSHED_BYTES = 1_048_576
"""Largest message that servers accept, in bytes, unless their `max_payload` says otherwise."""
_MAX_SERVERS = 100
"""Whose files are all rendered to be checked."""
_WrittenStream = tuple[Callable[[], str], dict[str, Json]]
"""What writes the file of a stream, and what that says."""


def render_bundle(
    topology: Topology,
    *,
    addresses: Sequence[ServerAddress] | None = None,
    written: Sequence[ServerAddress] | None = None,
    templates: Path | None = None,
    signer: Signer | None = None,
) -> bundle.Bundle:
    """
    Render everything. The same input gives the same bytes. Of all *addresses*, those in *written* get a file.

    With none written there are no contexts either. *templates* is a directory whose files win over the built-in
    ones. In operator mode, what is rendered without a *signer* can be looked at, and servers refuse it. Raises
    InvalidInputError if a template is missing, fails, or writes something that
    does not read back as what it stands for: VS201 (streams), VS301 (mappings),
    VS401 (servers), VS402 (contexts), VS240 (consumers).
    """
    every = server_view.default_addresses(topology) if addresses is None else addresses
    files = every if written is None else written
    renderer = _make_renderer(templates, signer)
    streams = [pair for layout in layouts(topology) for pair in renderer.render_streams(layout)]
    consumers = [pair for layout in layouts(topology) for pair in renderer.render_consumers(layout)]
    server_files = [*renderer.render_servers(topology, every, files)]
    contexts = [*renderer.render_contexts(topology, every)] if files else []
    loaded = renderer.render_loaded_file(topology)
    hubs = [*renderer.render_hubs(topology)]
    physical_files = [artifact for _, artifact in (*streams, *consumers)]
    artifacts = [*physical_files, *server_files, *contexts, loaded.artifact, *hubs]
    return bundle.Bundle(
        artifacts=tuple(sorted(artifacts, key=lambda artifact: artifact.path)),
        streams=tuple(stream for stream, _ in streams),
        mappings=loaded.mappings,
        accounts=loaded.accounts,
        servers=tuple(every),
        consumers=tuple(consumer for consumer, _ in consumers),
        claims=loaded.claims,
    )


def render_sample(topology: Topology, templates: Path | None = None) -> bundle.Bundle:
    """
    Render *topology* to be checked: files of some servers, if there are many. Raises InvalidInputError.

    Each lists all others, so those of thousands would take hours. Of a cluster, the first two stand for the rest, which
    differ in names, addresses and tags. If that are still many, so do those of regions that are set up alike.
    """
    addresses = server_view.default_addresses(topology)
    if len(addresses) <= _MAX_SERVERS:
        return render_bundle(topology, templates=templates)

    def describe(address: ServerAddress) -> Hashable:
        region = topology.region(address.region)
        return region.jetstream, region.gateway, address.is_stretch, address.is_hub, address.server.host is None

    listed = _take_two(addresses, lambda address: address.cluster_name)
    written = listed if len(listed) <= _MAX_SERVERS else _take_two(listed, describe)
    return replace(render_bundle(topology, addresses=listed, written=written, templates=templates), servers=addresses)


def _take_two(addresses: Iterable[ServerAddress], key: Callable[[ServerAddress], Hashable]) -> list[ServerAddress]:
    """Of *addresses* the first two with each value of *key*."""
    alike: dict[Hashable, list[ServerAddress]] = {}
    for address in addresses:
        alike.setdefault(key(address), []).append(address)
    return [address for group in alike.values() for address in group[:2]]


def render_streams(topology: Topology, templates: Path | None = None) -> Sequence[bundle.RenderedStream]:
    """The streams of `render_bundle` alone, in a tenth of the time if servers load many rules. Raises as it does."""
    renderer = _make_renderer(templates, None)
    return [stream for layout in layouts(topology) for stream, _ in renderer.render_streams(layout)]


def render_loaded(topology: Topology, signer: Signer | None) -> bundle.Bundle:
    """
    The rules and accounts that servers load by vstream's own templates, and the names of streams. Raises as `render_bundle`.

    Rendering all files of a thousand streams takes seconds, and a look at the servers needs none of them.
    """
    renderer = _make_renderer(None, signer)
    mappings, accounts = profile_of(topology).list_all_mapping_rules(topology), tuple[Account, ...]()
    if topology.has_accounts:
        loaded = renderer.render_loaded_file(topology)
        mappings, accounts = loaded.mappings, loaded.accounts
    owners = [(layout, stream) for layout in layouts(topology) for stream in layout.streams]
    streams = [_make_bare_stream(stream, part) for layout, stream in owners for part in _list_parts(layout, stream)]
    return bundle.Bundle(
        artifacts=(),
        streams=tuple(streams),
        mappings=mappings,
        accounts=accounts,
        servers=(),
    )


def _list_parts(topology: Topology, stream: VirtualStream) -> Iterator[PhysicalStream]:
    yield from physical_streams(stream)
    yield from stream_view.list_catalogs(topology, stream)


def _make_bare_stream(stream: VirtualStream, part: PhysicalStream) -> bundle.RenderedStream:
    config = StreamConfig(name=part.name, fields={})
    return bundle.RenderedStream(config=config, virtual=stream.name, region=part.place, role=part.role, path="")


def list_template_directories(templates: Path | None) -> list[Path]:
    """Where templates are searched, in order: the user's directory, if there is one, and the built-in one."""
    return [directory for directory in (templates, resources.templates()) if directory is not None]


def _make_renderer(templates: Path | None, signer: Signer | None) -> _Renderer:
    env = make_jinja_environment(list_template_directories(templates))
    return _Renderer(env, signer or Unsigned(), is_foreign=templates is not None)


@value_class
class _LoadedFile:
    """The file that servers load again when it changes, and what it says."""

    artifact: bundle.Artifact
    mappings: tuple[MappingRule, ...] = ()
    accounts: tuple[Account, ...] = ()
    claims: tuple[dict[str, Any], ...] = ()


class _Renderer:
    """Renders one file at a time. Raises InvalidInputError for the first template that is wrong: it would be for every stream."""

    def __init__(self, env: jinja2.Environment, signer: Signer, *, is_foreign: bool) -> None:
        self._env = env
        self._is_foreign = is_foreign
        self._signer = signer
        self._shapes: dict[tuple[str, ...], stream_view.StreamShape | None] = {}
        self._settings: dict[int, tuple[Mapping[str, Json], tuple[list[tuple[str, Json]], str]]] = {}

    def _render(self, template: str, view: dict[str, Any]) -> str:
        with limit_template() if self._is_foreign else nullcontext():
            text = self._env.get_template(template).render(view)
            text.encode()  # A lone surrogate could not be written to a file.
        if len(text) > _MAX_TEXT_BYTES:
            raise ValueError(f"it writes more than {_MAX_TEXT_BYTES:,} characters")
        return text

    def _render_text(self, code: str, template: str, view: dict[str, Any]) -> str:
        try:
            return self._render(template, view)
        except jinja2.TemplateNotFound as error:
            problem = _make_error(code, template, f"template `{error.name}` is missing")
        except jinja2.TemplateSyntaxError as error:
            problem = _make_error(code, error.name or template, f"template error: {error.message}", error.lineno)
        except jinja2.TemplateError as error:
            problem = _make_error(code, template, f"template error: {error.message}", _template_line(error))
        except VstreamError:
            raise  # of a key that is asked for, which no template is to blame for
        except Exception as error:  # noqa: BLE001 - a template can raise anything
            message = f"template error: {type(error).__name__}: {error}"
            problem = _make_error(code, template, message, _template_line(error))
        raise problem

    def render_streams(self, topology: Topology) -> Iterator[tuple[bundle.RenderedStream, bundle.Artifact]]:
        for stream in topology.streams:
            for part in _list_parts(topology, stream):
                yield self._render_stream(topology, stream, part)

    def _render_stream(
        self, topology: Topology, stream: VirtualStream, part: PhysicalStream
    ) -> tuple[bundle.RenderedStream, bundle.Artifact]:
        role, place, name = part.role, part.place, part.name
        metadata = stream_view.make_metadata(topology, stream, part)
        template = stream_view.choose_template(stream, role)
        settings, settings_text = self._sort_settings(part.fields)
        view = {
            "name": naming.local_name(name),
            "subjects": stream_view.lookup_subjects(topology, stream, part),
            "external": stream_view.mirror_api(stream, part),
            "settings": settings,
            "metadata": dict(sorted(metadata.items())),
            template.input_field: stream_view.make_input(topology, stream, part),
        }
        write, fields = self._fill_shape(template.file, view, settings_text) or self._render_alone(template, view)
        path = f"streams/{place}/{name}.json"
        rendered = bundle.RenderedStream(
            config=StreamConfig(name=name, fields=fields),
            virtual=stream.name,
            region=place,
            role=role,
            path=path,
            account=physical.account_of(stream, role, place),
            takes_over=stream_view.stream_taken_over(stream, part),
            subjects=stream.subjects,
        )
        return rendered, bundle.LateArtifact(path, write, ("streams", stream.name))

    def _render_alone(self, template: stream_view.StreamTemplate, view: dict[str, Any]) -> _WrittenStream:
        """*view* as *template* writes it."""
        text = self._render_text("VS201", template.file, view)
        fields = _parse_json("VS201", template.file, text)
        if problem := stream_view.stream_problem(fields, view["name"], template, view["metadata"]):
            raise _make_error("VS201", template.file, problem)
        return (lambda: text), fields

    def _sort_settings(self, settings: Mapping[str, Json]) -> tuple[list[tuple[str, Json]], str]:
        """Those that templates write, and the same as text. Most streams share them."""
        if id(settings) not in self._settings:
            pairs = sorted((field, value) for field, value in settings.items() if field != "metadata")
            self._settings[id(settings)] = settings, (pairs, to_json(pairs))
        return self._settings[id(settings)][1]

    def _fill_shape(self, template: str, view: dict[str, Any], settings: str) -> _WrittenStream | None:
        """The same without rendering each: None where *template* is not vstream's own, or its text is not plain."""
        if self._is_foreign:
            return None
        marked, values = stream_view.mark_values(view)
        key = (template, settings, *values)
        if key not in self._shapes:
            written = self._render_text("VS201", template, marked)
            self._shapes[key] = stream_view.StreamShape(written) if written else None
        shape = self._shapes[key]
        return (partial(shape.text, values), shape.fields(values)) if shape is not None and shape.is_plain else None

    def render_consumers(self, topology: Topology) -> Iterator[tuple[bundle.RenderedConsumer, bundle.Artifact]]:
        template = "consumer.json.j2"
        for stream in topology.streams:
            for region in stream.regions:
                on = physical.read_stream_in(stream, region)
                for consumer in stream.consumers:
                    if region not in consumer.regions:
                        continue
                    view = stream_view.consumer_view(topology, stream, region, consumer)
                    text = self._render_text("VS240", template, view)
                    fields = _parse_json("VS240", template, text)
                    if problem := stream_view.consumer_problem(fields, consumer.name, view["metadata"]):
                        raise _make_error("VS240", template, problem)
                    path = f"consumers/{region}/{on}.{consumer.name}.json"
                    config = ConsumerConfig(stream=on, durable=consumer.name, fields=fields)
                    origin = ("streams", stream.name, "consumers", consumer.name)
                    rendered = bundle.RenderedConsumer(config=config, virtual=stream.name, region=region, path=path)
                    yield rendered, bundle.Artifact(path=path, text=text, origin=origin)

    def render_loaded_file(self, topology: Topology) -> _LoadedFile:
        """The tokens of operator mode, or accounts and mapping rules in a configuration file."""
        mappings = profile_of(topology).list_all_mapping_rules(topology)
        is_signed = topology.security is Security.OPERATOR
        return self._render_tokens(topology, mappings) if is_signed else self._render_mappings(topology, mappings)

    def _render_mappings(self, topology: Topology, mappings: tuple[MappingRule, ...]) -> _LoadedFile:
        is_whole, parsed, accounts = topology.has_accounts, tuple[MappingRule, ...](), tuple[Account, ...]()
        path = bundle.loaded_path(topology)
        template = f"{path}.j2"
        view = {
            "topology": topology,
            "mappings": mappings,
            **account_view.accounts_view(topology),
            **account_view.make_login_view(topology, self._signer),
            "mark": naming.DIGEST_PREFIX,
        }
        text = self._render_text("VS301", template, view)
        root = _parse_conf("VS301", template, text)
        if is_whole and (whole := _find_map(root, ("accounts",))):
            # Of the text itself, so that what a template of yours adds counts too.
            mark = f"{naming.DIGEST_PREFIX}.{unreported_digest(whole)}"
            if self._is_foreign:
                text = self._render_text("VS301", template, {**view, "mark": mark})
                root = _parse_conf("VS301", template, text)
                accounts = parse_accounts_block(_find_map(root, ("accounts",)) or whole)
            else:  # vstream's own writes the mark as this subject, and nothing else of it
                text = text.replace(quote(naming.DIGEST_PREFIX), quote(mark))
                accounts = parse_accounts_block(whole, marks={naming.DIGEST_PREFIX: mark})
        # The text of accounts is checked as a whole: the mappings are in the one that clients are in.
        around = _find_map(root, ("accounts", physical.client_accounts(topology)[0]) if is_whole else ())
        block = around.get("mappings") if around else None
        if isinstance(block, natsconf.ConfMap):
            parsed = parse_mappings(block)
            _require_destinations(template, parsed, mappings)
        elif root:
            raise _make_error("VS301", template, "the output has no `mappings` block")
        artifact = bundle.Artifact(path=path, text=text, origin=("streams",))
        return _LoadedFile(artifact=artifact, mappings=parsed, accounts=accounts)

    def _render_tokens(self, topology: Topology, mappings: tuple[MappingRule, ...]) -> _LoadedFile:
        template = f"{bundle.OPERATOR_PATH}.j2"
        view = claims.operator_view(topology, account_view.accounts_view(topology), mappings, self._signer)
        _require_short_tokens(view["preloaded"])
        text = self._render_text("VS301", template, view)
        block = _find_map(_parse_conf("VS301", template, text), ("resolver_preload",))
        if block is None:
            raise _make_error("VS301", template, "the output has no `resolver_preload` block")
        try:
            signed = tuple(jwt.decode(str(natsconf.to_python(token))) for _, token in block.items())
        except VstreamError as error:
            raise _make_error("VS301", template, error.message) from None
        return _LoadedFile(
            artifact=bundle.Artifact(path=bundle.OPERATOR_PATH, text=text, origin=("streams",)),
            mappings=claims.mappings_of(signed, physical.client_accounts(topology)[0]),
            accounts=claims.parse_accounts(signed),
            claims=signed,
        )

    def render_hubs(self, topology: Topology) -> Iterator[bundle.Artifact]:
        if topology.hubs is None:
            return
        template = f"{bundle.HUBS_PATH}.j2"
        view = {
            "topology": topology,
            "account": naming.CLIENT_ACCOUNT,
            "passed": domains.PASSED,
            "passwords": bundle.HUB_PASSWORDS_PATH,
            **account_view.make_login_view(topology, self._signer),
        }
        text = self._render_text("VS301", template, view)
        _parse_conf("VS301", template, text)
        yield bundle.Artifact(path=bundle.HUBS_PATH, text=text, origin=("regions",))

    def render_servers(
        self, topology: Topology, addresses: Sequence[ServerAddress], written: Sequence[ServerAddress]
    ) -> Iterator[bundle.Artifact]:
        members: dict[str, list[ServerAddress]] = {
            cluster: [] for cluster in (*topology.clusters, *server_view.hub_clusters(topology))
        }
        for address in addresses:
            members[address.cluster_name].append(address)
        jetstream = {seat.server.name: seat.jetstream for seat in topology.all_seats}
        in_domains = profile_of(topology).has_domains
        # In operator mode servers know accounts by their keys.
        has_key = in_domains and topology.security is Security.OPERATOR
        account = self._signer.public_key(account_key(naming.CLIENT_ACCOUNT)) if has_key else naming.CLIENT_ACCOUNT
        hubs = {address.region: address for address in addresses if address.is_hub}
        template = "server.conf.j2"
        for address in written:
            values = {
                **_make_common_values(topology, address),
                "jetstream": jetstream[address.server.name],
                "routes": server_view.list_routes(address, members[address.cluster_name]),
                # A single server runs alone: a cluster of one never elects a meta leader.
                "is_clustered": len(members[address.cluster_name] if in_domains else addresses) > 1,
                "gateways": server_view.list_gateways(address, server_view.gateway_mesh(address, members, hubs)),
                "domain": address.region if in_domains else None,
                "leaf": server_view.make_leaf_view(address, hubs.get(address.region)),
                "account": account,
            }
            text = self._render_text("VS401", template, values)
            _parse_conf("VS401", template, text)
            yield bundle.Artifact(
                path=f"servers/{address.server.name}.conf",
                text=text,
                origin=("stretch",) if address.is_stretch else ("regions", address.region),
            )

    def render_contexts(self, topology: Topology, addresses: Sequence[ServerAddress]) -> Iterator[bundle.Artifact]:
        for region in topology.regions:
            if region.endpoint is not None and region.endpoint.context:
                continue  # It has one, which knows the addresses that the topology does not.
            view = server_view.make_context_view(topology, region, addresses)
            text = self._render_text("VS402", "context.json.j2", view)
            _parse_json("VS402", "context.json.j2", text)
            yield bundle.Artifact(
                path=f"contexts/{topology.name}-{region.name}.json", text=text, origin=("regions", region.name)
            )


def _make_error(code: str, template: str, message: str, line: int = 1) -> InvalidInputError:
    """What is wrong with *template*, or with what it writes."""
    finding = Finding(
        code=code,
        severity=Severity.ERROR,
        message=message,
        where=Span.point(f"templates/{template}", line, 1),
        hint="compare your template with the one that ships with vstream",
    )
    return InvalidInputError((finding,))


def _parse_json(code: str, template: str, text: str) -> dict[str, Json]:
    """The object that *template* has written. Raises InvalidInputError if it is none."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_with_shared_keys)
    except json.JSONDecodeError as error:
        message = f"the output is not JSON: {error.msg} (line {error.lineno} of the output)"
        raise _make_error(code, template, message) from None
    except (ValueError, RecursionError) as error:
        raise _make_error(code, template, f"the output is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _make_error(code, template, "the output is not a JSON object")
    return value


def _parse_conf(code: str, template: str, text: str) -> natsconf.ConfMap:
    """The configuration that *template* has written. Raises InvalidInputError if it is none."""
    # Server configurations include the mappings, which are checked on their own.
    document = natsconf.parse(text, template, include=lambda path, _file: (path, bundle.placeholder_for(path) or ""))
    # What follows the first error is read wrong.
    if error := next((finding for finding in document.findings if finding.is_error), None):
        line = f" (line {error.span.line} of the output)" if error.span else ""
        raise _make_error(code, template, f"the output is not a NATS configuration: {error.message}{line}")
    return document.root


def _require_destinations(template: str, parsed: tuple[MappingRule, ...], rules: tuple[MappingRule, ...]) -> None:
    """Raises InvalidInputError if a rule that *template* has written leads nowhere, or not everywhere that one of *rules* does."""
    # For everywhere else: of a template that writes a cluster anyway, that is one which nobody has.
    whole = {rule.source for rule in rules if any(destination.cluster is None for destination in rule.destinations)}
    for mapping in parsed:
        if any(not destination.subject for destination in mapping.destinations):
            # `nats-server -t` takes such a rule, and the first message that it matches kills the server.
            message = f"the rule for `{mapping.source}` has a destination without a subject"
            raise _make_error("VS301", template, message)
        if mapping.source in whole and all(destination.cluster for destination in mapping.destinations):
            message = f"the rule for `{mapping.source}` lacks the destination without a cluster"
            raise _make_error("VS301", template, message)


def _require_short_tokens(accounts: Sequence[dict[str, str]]) -> None:
    """Raises InvalidInputError for each account whose token is too long to be pushed."""
    findings = []
    for account in accounts:
        if len(account["token"]) > _MAX_PUSHED_BYTES:
            finding = Finding(
                code="VS160",
                severity=Severity.ERROR,
                message=f"the token of account `{account['name']}` has {len(account['token']):,} bytes, and it is pushed in "
                f"one message: servers take up to {_MAX_PUSHED_BYTES:,}",
                hint="put streams below common `roots`, where the profile has them: all below one root cost as much "
                "as one stream; accounts in configuration files (`mode: passwords`, `nkeys`, `certificates`) have no such limit",
            )
            findings.append(finding)
    if findings:
        raise InvalidInputError(findings)


def _find_map(root: natsconf.ConfMap | None, path: tuple[str, ...]) -> natsconf.ConfMap | None:
    """The map at *path* below *root*, None if there is none."""
    node: object = root
    for key in path:
        node = node.get(key) if isinstance(node, natsconf.ConfMap) else None
    return node if isinstance(node, natsconf.ConfMap) else None


def _with_shared_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object whose keys all documents share: of 60,000 streams they would be a third of what the streams take."""
    return {sys.intern(key): value for key, value in pairs}


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"`{name}` is not a JSON value")


def _template_line(error: BaseException) -> int:
    """The line of the template that raised, which Jinja puts into the traceback."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".j2"):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _make_common_values(topology: Topology, address: ServerAddress) -> dict[str, Any]:
    """What the template of a server's configuration gets that does not depend on the other servers."""
    login = {"path": bundle.SYSTEM_PASSWORD_PATH, "user": SYSTEM_USER, "variable": password_variable(SYSTEM_USER)}
    return {
        "topology": topology,
        "region": topology.region(address.region),
        "server": address.server,
        "address": address,
        "options": server_view.select_supported_options(topology),
        "has_accounts": topology.has_accounts,
        "system_login": login,
        "asks_for_certificates": topology.security is Security.CERTIFICATES,
        "transport": address.transport,
        "tls": bundle.TLS_PATH,
        "included": server_view.included_path(topology, address),
        "resolver": server_view.find_resolver_directory(topology, address),
    }
