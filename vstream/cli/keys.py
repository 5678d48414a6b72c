"""`vstream keys`: who signs accounts and users in operator mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import inputs
from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.model.accounts import SYSTEM_USER, VSTREAM_USER
from vstream.model.topology import Security

if TYPE_CHECKING:
    from vstream.jetstream.keyring import Keyring
    from vstream.model.topology import Topology

app = typer.Typer(help="The keys of operator mode: who signs accounts and users.", no_args_is_help=True)


@app.command("create")
def create(topology: inputs.TopologyFile = inputs.DEFAULT_FILE, lab: inputs.LabName = None) -> None:
    """
    Make the keys and the users' credentials that a topology needs and that are not there; what is there stays.

    In a directory that nobody else can read: $VSTREAM_KEYS, or the user's data directory. A lab makes its own when it
    starts. Whoever has the directory can do everything: keep a copy of it in a safe place, and out of version control.

    Examples: `vstream keys create`, `VSTREAM_KEYS=/safe/keys vstream keys create acme.yaml`
    """
    from vstream.ui import console  # noqa: PLC0415

    wanted, ring = _ring(topology, lab)
    new = ring.complete(wanted)
    console.say(f"{ring.directory}: {len(new)} new keys" if new else f"{ring.directory}: every key is there")


@app.command("show")
def show(
    topology: inputs.TopologyFile = inputs.DEFAULT_FILE,
    output: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    lab: inputs.LabName = None,
) -> None:
    """
    Show the public keys, and the files that users log in with. Nothing secret is printed.

    Exits with 1 if a key is missing.

    Examples: `vstream keys show`, `vstream keys show acme.yaml --format json`, `vstream keys show --lab acme`
    """
    from vstream.jetstream.keyring import keys_of  # noqa: PLC0415
    from vstream.render.profile import logins  # noqa: PLC0415
    from vstream.ui import keys as view  # noqa: PLC0415
    from vstream.ui.console import out  # noqa: PLC0415

    if output not in {"text", "json"}:
        raise typer.BadParameter(f"`{output}` is none of text, json", param_hint="--format")
    wanted, ring = _ring(topology, lab)
    missing = ring.missing(wanted)
    public = {name: None if name in missing else ring.public(name) for name in keys_of(wanted)}
    files = {user: str(path) for user in logins(wanted) if (path := ring.credentials(user)).is_file()}
    if output == "json":
        typer.echo(json.dumps({"directory": str(ring.directory), "public": public, "credentials": files}, indent=2))
    else:
        out().print(view.table(public))
        for user, file in files.items():
            typer.echo(f"{user}: {file}")
    if missing:
        raise typer.Exit(1)


@app.command("where")
def where(topology: inputs.TopologyFile = inputs.DEFAULT_FILE, lab: inputs.LabName = None) -> None:
    """
    Print the directory that the keys are in.

    Example: `ls $(vstream keys where)`
    """
    typer.echo(_ring(topology, lab)[1].directory)


@app.command("rotate")
def rotate(
    role: Annotated[
        str, typer.Argument(help="Whose: app, probe or audit; with `routing: regional`, such as app-west.")
    ],
    topology: inputs.TopologyFile = inputs.DEFAULT_FILE,
    lab: inputs.LabName = None,
) -> None:
    """
    Make another key and other credentials for the users of a role. The next `apply` ends those of before.

    Hand out the new credentials first: servers close the connections of the old ones at once.

    Examples: `vstream keys rotate app`, `vstream keys rotate audit acme.yaml`
    """
    from vstream.render.profile import logins  # noqa: PLC0415
    from vstream.ui import console  # noqa: PLC0415

    wanted, ring = _ring(topology, lab)
    users = logins(wanted)
    kept = {one for one in users if one == SYSTEM_USER or one.partition("-")[0] == VSTREAM_USER}
    if role in kept:
        raise RefusedError(
            f"`{role}` is who pushes accounts: with a key that servers do not know yet, nothing could be pushed",
            hint="begin with new keys in another directory ($VSTREAM_KEYS)",
        )
    if role not in users:
        known = (one for one in users if one not in kept)
        raise UnknownNameError(f"there is no role `{role}`", hint=f"there are {', '.join(known)}")
    if missing := ring.missing(wanted):
        raise VstreamError(f"{len(missing)} keys are missing", hint="`vstream keys create` makes them")
    ring.rotate(role, users[role])
    console.say(f"{ring.credentials(role)} is new; `vstream apply` ends what was handed out before")


def _ring(path: Path, lab: str | None) -> tuple[Topology, Keyring]:
    """The topology, and the directory of its keys, there or not. Raises VstreamError where it has none."""
    from vstream.jetstream.keyring import Keyring, default_directory  # noqa: PLC0415

    wanted = inputs.load(path).require()
    if wanted.security is not Security.OPERATOR:
        raise VstreamError(
            f"topology `{wanted.name}` has no keys: its users stand in configuration files",
            hint="`security: {mode: operator}` asks for them (docs/security.md)",
        )
    if lab is None:
        return wanted, Keyring(default_directory(wanted.name))
    from vstream.lab import keys  # noqa: PLC0415
    from vstream.lab import lab as labs  # noqa: PLC0415

    labs.addresses(lab)  # raises if there is no such lab
    return wanted, keys.keyring(lab)
