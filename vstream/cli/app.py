"""The `vstream` command: its subcommands."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from typing import Annotated

import typer

from vstream import __version__
from vstream.cli.exit_codes import INTERRUPTED, MEANINGS, TERMINATED, UNKNOWN
from vstream.cli.lazy_group import MARKUP, CommandEntry, LazyGroup, load_late
from vstream.errors import NOT_PERMITTED

PANELS = {
    "Design": {
        "init": CommandEntry("init", "Write a starter topology, or one from what runs."),
        "validate": CommandEntry("validate", "Check a topology file or a scenario file."),
        "lint": CommandEntry("lint", "Find mistakes in configurations, mappings and streams that servers accept."),
        "schema": CommandEntry("schema", "Print the JSON Schema of a file format."),
        "map": CommandEntry("map", "Show where servers route a publish, and which streams take it."),
        "graph": CommandEntry("graph", "Draw the regions, the streams, and what replicates where."),
        "survive": CommandEntry("survive", "Show what each stream survives, and rehearse it on a lab."),
        "size": CommandEntry("size", "Estimate a topology's storage and traffic."),
    },
    "Change": {
        "render": CommandEntry("render", "Write the files that servers and streams are set up with."),
        "plan": CommandEntry("plan", "Show what `apply` would change, and whether servers drifted."),
        "apply": CommandEntry("apply", "Make the servers match the topology."),
        "keys": CommandEntry("keys", "Create, show and rotate the keys of users.", attribute="app"),
        "consumer": CommandEntry(
            "consumer", "Show durable consumers, and continue them in another region.", attribute="app"
        ),
    },
    "Observe": {
        "status": CommandEntry("status", "Show what works now, and how far each region lags behind each other."),
        "export": CommandEntry("export", "Serve the status as Prometheus metrics."),
        "probe": CommandEntry("probe", "Prove that each virtual stream works in each region."),
        "doctor": CommandEntry("doctor", "Find what is wrong with the live system, and say what to do."),
        "audit": CommandEntry("audit", "Check that every region holds every message, once and in order."),
    },
    "Recover": {
        "region": CommandEntry(
            help="Empty a region, give up one that is dead, or take it back in.",
            commands={
                "drain": CommandEntry("region_drain", "Empty a region or relieve a server, until it is safe to stop."),
                "failover": CommandEntry("region_failover", "Give up a region that is dead for good, and continue."),
                "failback": CommandEntry("region_failback", "Take a rebuilt region back in."),
            },
        ),
        "backup": CommandEntry(
            help="Save the streams of all regions, and restore them.",
            commands={
                "take": CommandEntry(
                    "backup", "Write streams of all regions into a directory, at one cut.", attribute="take"
                ),
                "restore": CommandEntry("backup", "Restore it onto empty servers.", attribute="restore"),
            },
        ),
        "repair": CommandEntry(
            help="Bring back messages, sourcing after an outage, or the meta group.",
            commands={
                "messages": CommandEntry(
                    "repair", "Bring back lost messages, remove copies.", attribute="repair_messages"
                ),
                "sources": CommandEntry(
                    "repair", "Resync every read stream after an outage.", attribute="repair_sources"
                ),
                "meta": CommandEntry(
                    "repair", "Recover from losing the majority of the meta group for good.", attribute="repair_meta"
                ),
            },
        ),
    },
    "Rehearse": {
        "lab": CommandEntry("lab.commands", "Run the servers of a topology on this machine.", attribute="app"),
        "chaos": CommandEntry("chaos.commands", "Inject faults into a lab, and undo them.", attribute="app"),
        "scenario": CommandEntry(
            "scenario.commands", "Run rehearsals: workload, faults and expectations from a file.", attribute="app"
        ),
    },
}
"""Every command, where it is, and its line in the help."""
RENAMED = {
    "backup": "backup take",
    "beacon": "probe --beacons",
    "bundle": "doctor --bundle FILE",
    "console": "status --serve",
    "drain": "region drain",
    "drift": "plan --drift",
    "explain": "lint --explain CODE",
    "failback": "region failback",
    "failover": "region failover",
    "import": "init --server URL`, `--context NAME` or `--lab NAME",
    "repair": "repair messages",
    "rescue": "repair meta",
    "resolve": "map --stream NAME",
    "restore": "backup restore",
    "resync": "repair sources",
    "trace": "map SUBJECT --trace",
    "watch": "status --watch",
}
"""Commands that are modes of others or stand in groups now, and how to write them."""


class Commands(LazyGroup):
    """The commands of `vstream`."""

    panels = PANELS
    renamed = RENAMED


app = typer.Typer(
    name="vstream",
    cls=Commands,
    help="Multi-region virtual streams on NATS JetStream, from one topology file.",
    epilog=f"Exit codes: {' · '.join(f'{code} {meaning}' for code, meaning in MEANINGS.items())}.",
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _allow_plaintext(is_allowed: bool) -> None:
    if is_allowed:
        # Processes that this one starts connect, too.
        os.environ[load_late("vstream.credentials").PLAINTEXT] = "1"


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"vstream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    allow_plaintext: Annotated[
        bool,
        typer.Option(
            "--allow-plaintext",
            callback=_allow_plaintext,
            help="Send credentials unencrypted to other machines where the topology has `nats://` addresses.",
        ),
    ] = False,
) -> None:
    pass


def _answer_first_tab() -> None:
    """A zsh loads a completion at the first Tab. Typer's script only registers itself then, and offers nothing."""
    scripts = vars(load_late("typer._completion_shared"))["_completion_scripts"]
    scripts["zsh"] += "\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then %(complete_func)s; fi\n"


def _end_by_signal(codes: list[object]) -> None:
    """Die of SIGTERM once all else has cleaned up: to systemd, that service ended well, and one with a code did not."""
    if TERMINATED in codes:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def run() -> None:
    """Run the command line; this is the only place that turns failures into exit codes."""
    # A large topology makes millions of values that live to the end: looking for garbage among them takes a quarter
    # of the time.
    gc.set_threshold(1_000_000, 20, 100)
    codes: list[object] = []
    atexit.register(_end_by_signal, codes)  # first, and so it is called last
    # Else pydantic reads the metadata of every installed package, in search of plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.umask(os.umask(0o077) | 0o022)  # nobody else may write what any command makes, directories too
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that a terminal cannot show is no reason to fail
    if {"--install-completion", "--show-completion"} & set(sys.argv[1:2]):
        _answer_first_tab()
    try:
        try:
            app(prog_name="vstream")
        finally:
            # What cannot be written is to fail here, where it can be said, and not when Python ends.
            sys.stdout.flush()
    except SystemExit as ended:
        codes.append(ended.code)
        # Typer ends with 1 where Ctrl-C came outside of `asyncio_runner.run`, such as at a question.
        if isinstance(ended.__context__, typer.Abort):
            sys.exit(INTERRUPTED)
        if isinstance(ended.__context__, BrokenPipeError):
            sys.exit(UNKNOWN)  # Typer ends with 1 where the reader of a pipe has gone, whatever the answer is
        if NOT_PERMITTED:
            sys.exit(load_late("vstream.cli.failures").report_refusals(ended.code))
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is: a traceback would end with 1, which means "no"
        sys.exit(load_late("vstream.cli.failures").report_failure(error))
