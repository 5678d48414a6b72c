"""`vstream init`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.lazy_group import load_late, refuse_named
from vstream.cli.views import console
from vstream.errors import VstreamError
from vstream.files import save_output
from vstream.lint.check_topology import check_topology
from vstream.topology.document import json_schema
from vstream.topology.model import Routing
from vstream.topology.profiles import PROFILES

STARTER = """\
# yaml-language-server: $schema=./topology.schema.json
# A topology: regions, and the virtual streams that span them. `vstream validate` checks it.
version: 1
name: {name}                  # streams are marked with this name as their owner
server_version: "2.12"      # the oldest nats-server that must be able to run this
{routing}
security:
  # Real servers speak TLS on every port, with these files on each: docs/security.md. A lab needs none: with
  # `vstream lab up --tls` it makes its own.
  transport:
    cert_file: /etc/nats/server.pem
    key_file: /etc/nats/server-key.pem
    ca_file: /etc/nats/ca.pem
    # peer_name: servers.acme.example   # only in servers' certificates, if the authority signs others, too

regions:                    # one cluster each
  west:
    servers: 3              # a number for the lab, or host names: [w1.example.net, w2.example.net, w3.example.net]
  central:
    servers: 3
  east:
    servers: 3
    # cluster: east         # the NATS cluster name, if it is not the region's
    # tags: [az:a, az:b, az:c]   # one entry for each server

# connect:                  # how plan, apply and probe reach real servers; a lab needs none of it
#   west: {{context: sc-west}}                          # a nats CLI context
#   east:
#     urls: [tls://e1.example.net:4222]
#     creds: east.creds                               # here, or in $VSTREAM_CREDENTIALS
#     tls: {{ca: ~/nats-ca.pem}}
#     monitor: [https://e1.example.net:8222]           # where the loaded mappings are read back

defaults:                   # for every stream that does not say otherwise
  write:
    max_age: 24h            # the longest outage that loses nothing

streams:
  foo:                      # clients use this name in every region
    subjects: [{root}foo.>]{pad}# and publish on these subjects
    replicas: 3             # in each region
    canary: {root}foo._canary.*{gap}# where `vstream probe` may publish; `*` stands for the region of origin
    read:
      max_age: 30d          # how long every region keeps a message; without a limit, disks fill up
      # max_msgs_per_subject: 5
    # overrides:
    #   east: {{replicas: 1}}
"""


def command(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="The file to write; `-` writes what runs to standard output.")
    ] = options.DEFAULT_FILE,
    name: Annotated[
        str | None, typer.Option(help="The topology's name. [default: acme, or that of the owner of streams that run]")
    ] = None,
    routing: Annotated[
        Routing, typer.Option("--routing", help="How clients reach streams; docs/routing.md compares them.")
    ] = Routing.MAPPED,
    server: Annotated[
        list[str] | None,
        typer.Option(help="Write what runs at this address, such as nats://w1.example.net; name one of each region."),
    ] = None,
    nats_context: Annotated[
        list[str] | None,
        typer.Option("--context", help="Write what runs at this nats CLI context; name one of each region."),
    ] = None,
    lab: Annotated[str | None, typer.Option(help="Write what runs in this lab.")] = None,
    monitor: Annotated[
        list[str] | None,
        typer.Option(
            help="A server's monitoring address, such as http://w1.example.net:8222; name every server's: "
            "nothing else says which mapping rules it has loaded.",
        ),
    ] = None,
    creds: Annotated[str | None, typer.Option(help="A credentials file, for `--server`.")] = None,
    nkey: Annotated[str | None, typer.Option(help="A file with an nkey seed, for `--server`.")] = None,
    user: Annotated[str | None, typer.Option(help="A user name, for `--server`.")] = None,
    password_env: Annotated[str | None, typer.Option(help="The environment variable that holds its password.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    output_format: options.TextOrJson = "text",
    timeout: Annotated[float, typer.Option(help="Seconds for each server.", min=0.5, max=300)] = 5,
) -> None:
    """
    Write a starter topology with comments, and beside it its JSON Schema for your editor; or a topology from what runs.

    With `--server`, `--context` or `--lab`, it reads the streams, durables and loaded mappings of one account, and changes
    nothing there. It finds virtual streams that vstream made, and those made by hand, the published recipe included. What a
    topology cannot express is listed, and is in the file as comments. Exits with 1 if the file has to be completed.

    Examples: `vstream init`, `vstream init --routing accounts`, `vstream init found.yaml --lab acme`,
    `vstream init --context sc-west --context sc-east --monitor http://w1:8222 --monitor http://e1:8222`,
    `vstream init - --server nats://w1.example.net --monitor http://w1.example.net:8222`

    Then: `vstream validate`, `vstream lab up`, `vstream plan` (of what runs, with `--adopt all`), `vstream apply`,
    `vstream probe`.
    """
    if lab is not None:
        refuse_named(context, "has no effect with --lab", "server", "nats_context")
    if not server:
        refuse_named(context, "needs --server", "creds", "nkey", "user", "password_env")
    is_found = bool(server or nats_context or lab is not None)
    if is_found:
        refuse_named(context, "has no effect with --server, --context or --lab", "routing")
    else:
        refuse_named(context, "needs --server, --context or --lab", "monitor", "output_format", "timeout")
    is_stdout = str(file) == "-"
    if is_stdout and not is_found:
        raise typer.BadParameter("`-` needs --server, --context or --lab", param_hint="FILE")
    if not (force or is_stdout) and file.exists():
        raise VstreamError(f"{file} already exists", hint="`--force` overwrites it")
    if not is_found:
        _write_starter(file, "acme" if name is None else name, routing)
        return
    login = {"creds": creds, "nkey": nkey, "user": user, "password_env": password_env}
    stated = {option: text for option, text in login.items() if text}
    connects: dict[str, dict[str, object]] = {url: {"urls": [url], **stated} for url in server or ()}
    connects |= {label: {"context": label} for label in nats_context or ()}
    load_late("vstream.cli.init_import").write_topology_of_servers(
        file, connects, lab, monitors=monitor or (), name=name, is_json=output_format == "json", timeout=timeout
    )


def _write_starter(file: Path, name: str, routing: Routing) -> None:
    profile = PROFILES[routing]
    root = profile.starter_root
    text = STARTER.format(
        name=name, routing=profile.starter, root=root, pad=" " * (7 - len(root)), gap=" " * (3 - len(root))
    )
    if check_topology(text.encode(), str(file)).findings:
        raise typer.BadParameter(
            f"invalid name `{name}`: use letters, digits, `-` and `_`, and begin with a letter or digit",
            param_hint="--name",
        )
    schema_file = file.with_name("topology.schema.json")
    files = {file: text, schema_file: json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"}
    for path, content in files.items():
        save_output(path, content)
    console.print_note(f"wrote {file} and {schema_file.name}; next: vstream validate {shlex.quote(str(file))}")
