"""`vstream keys`: what users log in with, and who signs accounts in operator mode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import keys as view
from vstream.cli.views.console import print_note, stdout
from vstream.cli.views.json_output import print_json
from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.jetstream.keyring import Keyring, default_key_directory, keys_of
from vstream.lab import keys as lab_keys
from vstream.lab.endpoints import list_addresses
from vstream.render.account_view import index_users
from vstream.topology.accounts import is_irrevocable
from vstream.topology.model import Security, Topology
from vstream.topology.permissions import COMMANDS, permissions_for

app = typer.Typer(help="Create, show and rotate the keys of users and of the operator.", no_args_is_help=True)


@app.command("create")
def create(file: options.TopologyFile = options.DEFAULT_FILE, lab: options.LabName = None) -> None:
    """
    Create the keys and credentials that the topology's users need. Keys that exist are kept.

    The keys are in the directory $VSTREAM_KEYS, or else in the user's data directory. Nobody else can read it. A lab
    creates its own keys when it starts. Whoever has the directory controls the servers: keep a copy in a safe place,
    and never commit it.

    Examples: `vstream keys create`, `VSTREAM_KEYS=/safe/keys vstream keys create acme.yaml`
    """
    loaded, ring = _load(file, lab)
    new = ring.ensure_keys(loaded)
    print_note(f"{ring.directory}: {len(new)} new keys" if new else f"{ring.directory}: all keys exist")


@app.command("permissions")
def permissions(
    file: options.TopologyFile = options.DEFAULT_FILE,
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "--for", metavar="COMMAND", help="A command that the user runs. Can be repeated. All, if left out."
        ),
    ] = None,
) -> None:
    """
    Print the permissions that a user needs to run some commands, and no more, for a configuration of servers.

    Examples: `vstream keys permissions --for status --for doctor`, `vstream keys permissions acme.yaml --for plan`
    """
    chosen = options.choose_names("command", COMMANDS, commands)
    needed = permissions_for(options.check_topology_file(file).require(), chosen)
    stdout().print(*view.render_permissions(needed), sep="\n")


@app.command("show")
def show(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Show the public keys, and the files that users log in with. Prints no secrets.

    Exits with 1 if a key is missing.

    Examples: `vstream keys show`, `vstream keys show acme.yaml --format json`, `vstream keys show --lab acme`
    """
    loaded, ring = _load(topology, lab)
    missing = ring.find_missing(loaded)
    public = {name: None if name in missing else ring.public_key(name) for name in keys_of(loaded)}
    login_files = {user: _choose_login_file(loaded, ring, user) for user in index_users(loaded)}
    files = {user: str(path) for user, path in login_files.items() if path.is_file()}
    if output_format == "json":
        print_json("keys", {"directory": str(ring.directory), "public": public, "credentials": files})
    else:
        stdout().print(view.render_keys(public))
        for user, file in files.items():
            stdout().print(f"{user}: {file}")
    exit_unless_yes(is_no=bool(missing))


@app.command("where")
def where(file: options.TopologyFile = options.DEFAULT_FILE, lab: options.LabName = None) -> None:
    """
    Print the directory of the keys, or of the certificates.

    Example: `ls $(vstream keys where)`
    """
    _, ring = _load(file, lab, without_keys=Security.CERTIFICATES)
    typer.echo(ring.directory)


@app.command("rotate")
def rotate(
    user: Annotated[
        str,
        typer.Argument(help="The user: app, probe or audit. With `routing: regional`, app-west and the like."),
    ],
    file: options.TopologyFile = options.DEFAULT_FILE,
    lab: options.LabName = None,
) -> None:
    """
    Create a new key for a user, and new credentials in operator mode. The next `apply` revokes the old ones.

    Distribute the new ones before that: servers close the connections of the old ones at once.

    Examples: `vstream keys rotate app`, `vstream keys rotate audit acme.yaml`
    """
    loaded, ring = _load(file, lab)
    users = index_users(loaded)
    if user not in users:
        choices = ", ".join(name for name in users if not is_irrevocable(name))
        raise UnknownNameError(f"there is no user `{user}`", hint=f"choose one of {choices}")
    if is_irrevocable(user):
        raise RefusedError(
            f"`{user}` changes what servers know: with a key that they do not know yet, it could change nothing",
            hint="create all keys again in another directory ($VSTREAM_KEYS)",
        )
    if missing := ring.find_missing(loaded):
        raise VstreamError(f"{len(missing)} keys are missing", hint="`vstream keys create` creates them")
    ring.rotate(loaded, user)
    print_note(f"created {_choose_login_file(loaded, ring, user)}; `vstream apply` revokes the old one")


def _choose_login_file(topology: Topology, ring: Keyring, user: str) -> Path:
    return ring.credentials_path(user) if topology.security is Security.OPERATOR else ring.seed_path(user)


def _load(path: Path, lab: str | None, *, without_keys: Security | None = None) -> tuple[Topology, Keyring]:
    """
    The topology, and the directory of its keys, which may not exist.

    Raises VstreamError if users log in without keys, and not as *without_keys* says.
    """
    topology = options.check_topology_file(path).require()
    if not topology.security.has_keys and topology.security is not without_keys:
        raise VstreamError(
            f"topology `{topology.name}` has no keys: its users log in with {topology.security.value}",
            hint="set `security: {mode: nkeys}` or `{mode: operator}` (docs/security.md)",
        )
    if lab is None:
        return topology, Keyring(default_key_directory(topology.name))
    list_addresses(lab)  # raises if there is no such lab
    return topology, lab_keys.keyring(lab)
