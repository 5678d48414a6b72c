"""`vstream keys`: what users log in with, and who signs accounts in operator mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.views import console
from vstream.cli.views import keys as view
from vstream.cli.views.console import stdout
from vstream.cli.views.json_output import print_json
from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.jetstream.keyring import Keyring, default_directory, keys_of
from vstream.lab import keys
from vstream.lab import lab as labs
from vstream.render.account_view import logins
from vstream.topology.accounts import is_permanent
from vstream.topology.model import Security

if TYPE_CHECKING:
    from vstream.jetstream.keyring import Keyring
    from vstream.topology.model import Topology

app = typer.Typer(help="Keys of users, and of who signs accounts in operator mode.", no_args_is_help=True)


@app.command("create")
def create(topology: options.TopologyFile = options.DEFAULT_FILE, lab: options.LabName = None) -> None:
    """
    Make the keys and the users' credentials that a topology needs and that are not there; what is there stays.

    In a directory that nobody else can read: $VSTREAM_KEYS, or the user's data directory. A lab makes its own when it
    starts. Whoever has the directory can do everything: keep a copy of it in a safe place, and out of version control.

    Examples: `vstream keys create`, `VSTREAM_KEYS=/safe/keys vstream keys create acme.yaml`
    """
    wanted, ring = _ring(topology, lab)
    new = ring.complete(wanted)
    console.print_note(f"{ring.directory}: {len(new)} new keys" if new else f"{ring.directory}: every key is there")


@app.command("show")
def show(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Show the public keys, and the files that users log in with. Nothing secret is printed.

    Exits with 1 if a key is missing.

    Examples: `vstream keys show`, `vstream keys show acme.yaml --format json`, `vstream keys show --lab acme`
    """
    wanted, ring = _ring(topology, lab)
    missing = ring.missing(wanted)
    public = {name: None if name in missing else ring.public(name) for name in keys_of(wanted)}
    is_operator = wanted.security is Security.OPERATOR
    files = {
        user: str(path)
        for user in logins(wanted)
        if (path := ring.credentials(user) if is_operator else ring.seed(user)).is_file()
    }
    if output == "json":
        print_json("keys", {"directory": str(ring.directory), "public": public, "credentials": files})
    else:
        stdout().print(view.table(public))
        for user, file in files.items():
            typer.echo(f"{user}: {file}")
    if missing:
        raise typer.Exit(1)


@app.command("where")
def where(topology: options.TopologyFile = options.DEFAULT_FILE, lab: options.LabName = None) -> None:
    """
    Print the directory that the keys are in, or the certificates.

    Example: `ls $(vstream keys where)`
    """
    typer.echo(_ring(topology, lab, Security.CERTIFICATES)[1].directory)


@app.command("rotate")
def rotate(
    user: Annotated[str, typer.Argument(help="Whose: app, probe or audit; app-west with `routing: regional`.")],
    topology: options.TopologyFile = options.DEFAULT_FILE,
    lab: options.LabName = None,
) -> None:
    """
    Make another key for a user, and other credentials in operator mode. The next `apply` ends those of before.

    Hand out the new ones first: servers close the connections of the old ones at once.

    Examples: `vstream keys rotate app`, `vstream keys rotate audit acme.yaml`
    """
    wanted, ring = _ring(topology, lab)
    users = logins(wanted)
    if user not in users:
        known = ", ".join(one for one in users if not is_permanent(one))
        raise UnknownNameError(f"there is no user `{user}`", hint=f"there are {known}")
    if is_permanent(user):
        raise RefusedError(
            f"`{user}` is who changes what servers know: with a key that they do not know yet, nothing could be changed",
            hint="begin with new keys in another directory ($VSTREAM_KEYS)",
        )
    if missing := ring.missing(wanted):
        raise VstreamError(f"{len(missing)} keys are missing", hint="`vstream keys create` makes them")
    ring.rotate(wanted, user)
    file = ring.credentials(user) if wanted.security is Security.OPERATOR else ring.seed(user)
    console.print_note(f"{file} is new; `vstream apply` ends what was handed out before")


def _ring(path: Path, lab: str | None, also: Security | None = None) -> tuple[Topology, Keyring]:
    """The topology, and the directory of its keys, there or not. Raises VstreamError where it has none, but for *also*."""
    wanted = options.load_topology(path).require()
    if not wanted.security.has_keys and wanted.security is not also:
        raise VstreamError(
            f"topology `{wanted.name}` has no keys: its users log in with {wanted.security.value}",
            hint="`security: {mode: nkeys}` and `{mode: operator}` ask for them (docs/security.md)",
        )
    if lab is None:
        return wanted, Keyring(default_directory(wanted.name))

    labs.addresses(lab)  # raises if there is no such lab
    return wanted, keys.keyring(lab)
