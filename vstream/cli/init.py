"""`vstream init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.views import console
from vstream.errors import VstreamError
from vstream.files import save_output
from vstream.lint.load_topology import load
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
  transport:                # real servers speak TLS on every port, with these files on each: docs/security.md. A lab does
    cert_file: /etc/nats/server.pem        # with `vstream lab up --tls`, and makes its own
    key_file: /etc/nats/server-key.pem
    ca_file: /etc/nats/ca.pem

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
#     creds: ~/east.creds
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
    # read:
    #   max_age: 30d
    #   max_msgs_per_subject: 5
    # overrides:
    #   east: {{replicas: 1}}
"""


def command(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = options.DEFAULT_FILE,
    name: Annotated[str, typer.Option(help="The name of the topology.")] = "acme",
    routing: Annotated[
        Routing, typer.Option("--routing", help="How clients reach streams; docs/routing.md compares them.")
    ] = Routing.MAPPED,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """
    Write a starter topology with comments, and beside it its JSON Schema for your editor.

    Examples: `vstream init`, `vstream init --routing accounts`

    Then: `vstream validate`, `vstream lab up`, `vstream plan`, `vstream apply`, `vstream probe`.
    """
    profile = PROFILES[routing]
    root = profile.starter_root
    text = STARTER.format(
        name=name, routing=profile.starter, root=root, pad=" " * (7 - len(root)), gap=" " * (3 - len(root))
    )
    if load(text.encode(), str(file)).diagnostics:
        raise typer.BadParameter(
            f"invalid name `{name}`: use letters, digits, `-` and `_`, and begin with a letter or digit",
            param_hint="--name",
        )
    schema_file = file.with_name("topology.schema.json")
    files = {file: text, schema_file: json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"}
    if not force and file.exists():
        raise VstreamError(f"{file} already exists", hint="`--force` overwrites it")
    for path, content in files.items():
        save_output(path, content)
    console.print_note(f"wrote {file} and {schema_file.name}; next: vstream validate {file}")
