"""Topology × templates → bundle: every file rendered, then parsed back, so that what is used is what was written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jinja2

from vstream.diagnostics import Diagnostic, Severity, Span
from vstream.errors import InvalidInputError
from vstream.mapping.conf import read_mappings
from vstream.model.artifacts import Artifact, Bundle, PhysicalStream, ServerAddress
from vstream.model.streams import REGION_KEY, ROLE_KEY, STREAM_KEY, TOPOLOGY_KEY, StreamConfig
from vstream.model.topology import Role
from vstream.render.environment import environment
from vstream.render.routing import mapping_set
from vstream.syntax import natsconf
from vstream.topology import naming

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from vstream.model.json import Json
    from vstream.model.mappings import Mapping as SubjectMapping
    from vstream.model.topology import Region, Topology, VirtualStream

MAPPINGS_PATH = "mappings.cfg"


def default_addresses(topology: Topology) -> tuple[ServerAddress, ...]:
    """Addresses of every server: its host with the region's ports, or a fixed layout on loopback where hosts are open."""
    addresses = []
    for index, region in enumerate(topology.regions):
        for number, server in enumerate(region.servers):
            store = region.jetstream.store_dir or "./data"
            base = naming.base_port(topology, index, number)
            loopback = server.host is None
            addresses.append(
                ServerAddress(
                    server=server,
                    region=region.name,
                    host=server.host or "127.0.0.1",
                    client=base if loopback else region.ports.client,
                    monitor=base + 1 if loopback else region.ports.monitor,
                    cluster=base + 2 if loopback else region.ports.cluster,
                    gateway=base + 3 if loopback else region.ports.gateway,
                    store_dir=f"{store.rstrip('/')}/{server.name}",
                )
            )
    return tuple(addresses)


def render(topology: Topology, addresses: Sequence[ServerAddress], templates: Sequence[Path]) -> Bundle:
    """
    Render everything. The same input gives the same bytes.

    *templates* are directories, searched in order for each file. Raises
    InvalidInputError if a template is missing, fails, or writes something that
    does not read back as what it stands for: VS201 (streams), VS301 (mappings),
    VS401 (servers), VS402 (contexts).
    """
    renderer = _Renderer(environment(templates))
    mappings = mapping_set(topology)
    artifacts = [
        *renderer.streams(topology),
        *renderer.servers(topology, addresses),
        *renderer.contexts(topology, addresses),
        renderer.mappings(topology, mappings),
    ]
    if renderer.diagnostics:
        raise InvalidInputError(renderer.diagnostics)
    return Bundle(
        artifacts=tuple(sorted(artifacts, key=lambda artifact: artifact.path)),
        streams=tuple(renderer.parsed_streams),
        mappings=renderer.parsed_mappings,
        servers=tuple(addresses),
    )


class _Renderer:
    def __init__(self, env: jinja2.Environment) -> None:
        self._env = env
        self.diagnostics: list[Diagnostic] = []
        self.parsed_streams: list[PhysicalStream] = []
        self.parsed_mappings: tuple[SubjectMapping, ...] = ()

    def _fail(self, code: str, template: str, message: str, line: int = 1) -> None:
        self.diagnostics.append(
            Diagnostic(
                code=code,
                severity=Severity.ERROR,
                message=message,
                span=Span.point(f"templates/{template}", line, 1),
                hint="compare your template with the one that ships with vstream",
            )
        )

    def _text(self, code: str, template: str, view: dict[str, Any]) -> str | None:
        if self.diagnostics:
            return None  # One template that fails would fail for every stream.
        try:
            text = self._env.get_template(template).render(view)
            text.encode()  # A lone surrogate could not be written to a file.
        except jinja2.TemplateNotFound as error:
            self._fail(code, template, f"template `{error.name}` is missing")
        except jinja2.TemplateSyntaxError as error:
            self._fail(code, error.name or template, f"template error: {error.message}", error.lineno)
        except jinja2.TemplateError as error:
            self._fail(code, template, f"template error: {error.message}", _template_line(error))
        except Exception as error:  # noqa: BLE001 - a template can raise anything
            self._fail(code, template, f"template error: {type(error).__name__}: {error}", _template_line(error))
        else:
            return text
        return None

    def streams(self, topology: Topology) -> Iterator[Artifact]:
        for stream in topology.streams:
            for region in stream.regions:
                for role in Role:
                    artifact = self._stream(topology, stream, region, role)
                    if artifact:
                        yield artifact

    def _stream(self, topology: Topology, stream: VirtualStream, region: str, role: Role) -> Artifact | None:
        name = naming.physical_name(stream.name, role, region)
        settings = (stream.write if role is Role.WRITE else stream.read)[region].fields
        user_metadata = settings["metadata"]
        metadata: dict[str, Json] = {
            **(user_metadata if isinstance(user_metadata, dict) else {}),
            TOPOLOGY_KEY: topology.name,
            STREAM_KEY: stream.name,
            REGION_KEY: region,
            ROLE_KEY: role.value,
        }
        view: dict[str, Any] = {
            "name": name,
            "settings": sorted((field, value) for field, value in settings.items() if field != "metadata"),
            "metadata": dict(sorted(metadata.items())),
        }
        if role is Role.WRITE:
            view["subjects"] = naming.write_subjects(topology, stream, region)
        else:
            view["sources"] = [
                {
                    "name": naming.physical_name(stream.name, Role.WRITE, origin),
                    "transforms": [
                        {"src": source, "dest": destination}
                        for source, destination in naming.source_transforms(topology, stream, origin)
                    ],
                }
                for origin in stream.regions
            ]
        template = f"streams/{role.value}.json.j2"
        text = self._text("VS201", template, view)
        if text is None:
            return None
        fields = self._json("VS201", template, text)
        path = f"streams/{region}/{name}.json"
        if fields is None:
            return None
        problem = _stream_problem(fields, name, role, metadata)
        if problem:
            self._fail("VS201", template, problem)
            return None
        self.parsed_streams.append(
            PhysicalStream(
                config=StreamConfig(name=name, fields=fields), virtual=stream.name, region=region, role=role, path=path
            )
        )
        return Artifact(path=path, text=text, origin=("streams", stream.name))

    def _json(self, code: str, template: str, text: str) -> dict[str, Json] | None:
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            self._fail(code, template, f"the output is not JSON: {error.msg} (line {error.lineno} of the output)")
            return None
        except (ValueError, RecursionError) as error:
            self._fail(code, template, f"the output is not JSON: {error}")
            return None
        if not isinstance(value, dict):
            self._fail(code, template, "the output is not a JSON object")
            return None
        return value

    def mappings(self, topology: Topology, mappings: tuple[SubjectMapping, ...]) -> Artifact:
        template = "mappings.cfg.j2"
        text = self._text("VS301", template, {"topology": topology, "mappings": mappings}) or ""
        if not self.diagnostics:
            root = self._conf("VS301", template, text)
            block = root.get("mappings") if root else None
            if isinstance(block, natsconf.ConfMap):
                self.parsed_mappings = read_mappings(block)
                self._check_destinations(template)
            elif root:
                self._fail("VS301", template, "the output has no `mappings` block")
        return Artifact(path=MAPPINGS_PATH, text=text, origin=("streams",))

    def _check_destinations(self, template: str) -> None:
        # `nats-server -t` takes such a rule, and the first message that it matches kills the server.
        for mapping in self.parsed_mappings:
            if any(not destination.subject for destination in mapping.destinations):
                self._fail("VS301", template, f"the rule for `{mapping.source}` has a destination without a subject")
                return

    def _conf(self, code: str, template: str, text: str) -> natsconf.ConfMap | None:
        # Server configurations include the mappings, which are checked on their own.
        document = natsconf.parse(text, template, include=lambda path, _file: (path, ""))
        errors = [diagnostic for diagnostic in document.diagnostics if diagnostic.is_error]
        for error in errors[:1]:  # What follows the first error is read wrong.
            line = f" (line {error.span.line} of the output)" if error.span else ""
            self._fail(code, template, f"the output is not a NATS configuration: {error.message}{line}")
        return None if errors else document.root

    def servers(self, topology: Topology, addresses: Sequence[ServerAddress]) -> Iterator[Artifact]:
        by_region: dict[str, list[ServerAddress]] = {region.name: [] for region in topology.regions}
        for address in addresses:
            by_region[address.region].append(address)
        gateways = [
            {"name": region.cluster, "urls": [f"nats://{one.host}:{one.gateway}" for one in by_region[region.name]]}
            for region in topology.regions
        ]
        template = "server.conf.j2"
        for address in addresses:
            text = self._text(
                "VS401",
                template,
                {
                    "topology": topology,
                    "region": topology.region(address.region),
                    "server": address.server,
                    "address": address,
                    "peers": by_region[address.region],
                    # A single server runs alone: a cluster of one never elects a meta leader.
                    "is_clustered": len(addresses) > 1,
                    "gateways": gateways if len(topology.regions) > 1 else [],
                },
            )
            if text is not None and self._conf("VS401", template, text) is not None:
                yield Artifact(
                    path=f"servers/{address.server.name}.conf", text=text, origin=("regions", address.region)
                )

    def contexts(self, topology: Topology, addresses: Sequence[ServerAddress]) -> Iterator[Artifact]:
        for region in topology.regions:
            if region.endpoint is not None and region.endpoint.context:
                continue  # It has one, which knows the addresses that the topology does not.
            text = self._text("VS402", "context.json.j2", _context_view(topology, region, addresses))
            if text is not None and self._json("VS402", "context.json.j2", text) is not None:
                yield Artifact(
                    path=f"contexts/{topology.name}-{region.name}.json", text=text, origin=("regions", region.name)
                )


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"`{name}` is no JSON value")


def _stream_problem(fields: Mapping[str, Json], name: str, role: Role, ownership: Mapping[str, Json]) -> str | None:
    """What of a rendered stream is not what the rest of vstream relies on."""
    if fields.get("name") != name:
        return f"the stream `{name}` comes out with the name `{fields.get('name')}`"
    metadata = fields.get("metadata")
    if not isinstance(metadata, dict) or any(not isinstance(value, str) for value in metadata.values()):
        return f"the stream `{name}` needs `metadata`, a map of texts"
    missing = next((key for key in _OWNERSHIP if metadata.get(key) != ownership[key]), None)
    if missing:
        return (
            f"the stream `{name}` comes out without its metadata `{missing}`, by which vstream knows that it is its own"
        )
    items = fields.get("subjects" if role is Role.WRITE else "sources")
    kind: type = str if role is Role.WRITE else dict
    if not isinstance(items, list) or not items or any(not isinstance(item, kind) for item in items):
        what = "`subjects`, a list of texts" if role is Role.WRITE else "`sources`, a list of objects"
        return f"the stream `{name}` needs {what}"
    return None


_OWNERSHIP = (TOPOLOGY_KEY, STREAM_KEY, REGION_KEY, ROLE_KEY)


def _context_view(topology: Topology, region: Region, addresses: Sequence[ServerAddress]) -> dict[str, Any]:
    endpoint = region.endpoint
    urls = [f"nats://{one.host}:{one.client}" for one in addresses if one.region == region.name]
    credentials: list[tuple[str, str]] = []
    if endpoint is not None:
        urls = list(endpoint.urls) or urls
        known = {
            "creds": endpoint.creds,
            "nkey": endpoint.nkey,
            "user": endpoint.user,
            "ca": endpoint.tls_ca,
            "cert": endpoint.tls_cert,
            "key": endpoint.tls_key,
        }
        credentials = [(field, value) for field, value in known.items() if value]
    return {
        "description": f"region {region.name} of {topology.name}",
        "url": ",".join(urls),
        "credentials": credentials,
    }


def _template_line(error: BaseException) -> int:
    """The line of the template that raised, which Jinja puts into the traceback."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".j2"):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
