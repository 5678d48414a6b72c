"""The `vstream` command: its subcommands, and what each exit code means."""

from __future__ import annotations

import gc
import sys
from typing import Annotated

import typer

from vstream import __version__
from vstream.cli import (
    apply,
    beacon,
    consumer,
    doctor,
    drift,
    explain,
    export,
    graph,
    import_,
    init,
    keys,
    lint,
    plan,
    probe,
    render,
    resolve,
    resync,
    schema,
    size,
    status,
    validate,
)
from vstream.cli import map as mapping
from vstream.cli.audit import command
from vstream.cli.chaos import commands
from vstream.cli.lab import commands as lab
from vstream.cli.repair import command as repair
from vstream.cli.scenario import commands as scenario

app = typer.Typer(
    name="vstream",
    help="Multi-region virtual streams on NATS JetStream, from one topology file.",
    epilog="Exit codes: 0 yes · 1 no (errors in files, checks that fail, changes refused) · 2 usage · "
    "3 could not do it · 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vstream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("init")(init.command)
app.command("import")(import_.command)
app.command("validate")(validate.command)
app.command("lint")(lint.command)
app.command("map")(mapping.command)
app.command("resolve")(resolve.command)
app.command("explain")(explain.command)
app.command("render")(render.command)
app.command("plan")(plan.command)
app.command("apply")(apply.command)
app.command("probe")(probe.command)
app.command("status")(status.status)
app.command("watch")(status.watch)
app.command("export")(export.command)
app.command("beacon")(beacon.command)
app.command("doctor")(doctor.command)
app.command("drift")(drift.command)
app.command("audit")(command.command)
app.command("resync")(resync.command)
app.add_typer(consumer.app, name="consumer")
app.command("repair")(repair.command)
app.add_typer(lab.app, name="lab")
app.add_typer(keys.app, name="keys")
app.add_typer(commands.app, name="chaos")
app.add_typer(scenario.app, name="scenario")
app.command("graph")(graph.command)
app.command("size")(size.command)
app.command("schema")(schema.command)


def run() -> None:
    """Run the command line; this is the only place that turns failures into exit codes."""
    from vstream.cli.exit_codes import INTERRUPTED, exit_code  # noqa: PLC0415 - not needed for --help

    # A large topology makes millions of values that live to the end: looking for garbage among them takes a quarter
    # of the time.
    gc.set_threshold(200_000, 20, 100)
    try:
        try:
            app()
        finally:
            # What cannot be written is to fail here, where it can be said, and not when Python ends.
            sys.stdout.flush()
    except SystemExit as ended:
        # Typer ends with 1 where Ctrl-C came outside of `running.run`, such as at a question.
        if isinstance(ended.__context__, typer.Abort):
            sys.exit(INTERRUPTED)
        raise
    except Exception as error:  # noqa: BLE001 - anything that is not ours is raised again
        sys.exit(exit_code(error))
