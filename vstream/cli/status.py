"""`vstream status`."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.keyboard import fit, read_keyboard
from vstream.cli.lazy_group import load_late, refuse_named
from vstream.cli.views import console
from vstream.cli.views import status as view
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.errors import NotReachableError
from vstream.health.pipeline import StatusSource, make_status_source
from vstream.health.status import Status, StatusVerdict
from vstream.servers.find_servers import find_and_trust_servers


def command(
    context: typer.Context,
    file: options.TopologyFile = options.DEFAULT_FILE,
    timeout: options.Timeout = 4,
    is_repeated: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh it until `q` or Ctrl-C; in place at a terminal.")
    ] = False,
    is_served: Annotated[
        bool, typer.Option("--serve", help="Serve it as a live page, and open that in a browser, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option(help="With --watch or --serve: seconds between two checks.", min=0.2, max=3600)
    ] = 2,
    listen: Annotated[str, typer.Option(help="With --serve: HOST:PORT; port 0 chooses a free one.")] = "127.0.0.1:0",
    has_browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="With --serve: open the page, or only print its address.")
    ] = True,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = None,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Show what works right now, and how far each region is behind each other. Changes nothing.

    Lag is what a read stream has not taken yet: the last sequence of the write stream
    against its own position, and the age of the oldest missing message. It is not the
    servers' `lag`, which is 0 even where nothing arrives. Publishing also needs the
    mapping rules: they are read from every server that `monitor` names.

    Exits with 0 if all is well and with 1 if something is wrong. Exits with 3 if nothing
    is known to be wrong but not everything could be checked, or if no server answers.

    Where the output is not a terminal, `--watch` prints each status below the last one, as JSON in one line each.

    The page of `--serve` shows the regions and the links between them, what arrives where, problems and what to do, the
    last hours, and in a lab the open faults and the step of a scenario. `vstream export` serves it for good, at `/`.

    Examples: `vstream status`, `vstream status --watch --every 10`, `vstream status acme.yaml --timeout 2 --format json`,
    `vstream status --serve --lab acme`, `vstream status acme.yaml --serve --no-browser --listen 127.0.0.1:9478`
    """
    if is_served:
        refuse_named(context, "has no effect with --serve", "is_repeated", "output_format")
        console.set_log(log_format, is_quiet=is_quiet)
    else:
        refuse_named(context, "needs --serve", "listen", "has_browser", "log_format", "is_quiet")
        if not is_repeated:
            refuse_named(context, "needs --watch or --serve", "every")
    followed = options.FollowedTopology(
        file, lambda newest: make_status_source(newest, find_and_trust_servers(newest, lab), templates)
    )
    if is_served:
        exporter = load_late("vstream.cli.export")
        show = load_late("webbrowser").open if has_browser else None
        address = exporter.parse_address(listen)
        run(exporter.Exporter(followed.latest, timeout).serve(*address, every, show))
        return
    if is_repeated:
        repeat = _repeat_as_json if output_format == "json" else _repeat_as_text
        run(repeat(followed, timeout, every))
        return
    seen = run(followed.latest().read(timeout))
    if output_format == "json":
        print_json("status", seen.as_dict(), layout=JsonLayout.ROWS)
    else:
        out = console.stdout()
        out.print(view.render_screen(seen, width=out.width), soft_wrap=not out.is_terminal)
    exit_unless_yes(is_no=seen.verdict is StatusVerdict.DEGRADED, is_unknown=seen.verdict is StatusVerdict.UNKNOWN)


async def _repeat_as_text(followed: options.FollowedTopology[StatusSource], timeout: float, every: float) -> None:
    out = console.stdout()
    notes: list[str] = []
    if out.is_terminal:
        followed.tell = notes.append  # on a screen that is drawn again and again
    before: Status | None = None
    tables: list[RenderableType] = []
    problems = [Text("asking the servers …", style="dim")]
    with Live(console=out, screen=out.is_terminal, auto_refresh=False) as live, read_keyboard() as keys:

        def show() -> None:
            if out.is_terminal:
                live.update(fit(out, tables, [*map(Text, notes[-1:]), *problems], keys), refresh=True)

        show()
        while True:
            began = time.monotonic()
            looking = asyncio.ensure_future(followed.latest().read(timeout))
            if not await keys.wait(looking, show):
                return
            try:
                seen = looking.result()
                tables, problems = view.render_tables(seen, width=out.width, before=before), view.render_problems(seen)
                before = seen
            except NotReachableError as error:
                tables, problems = [], [Text.assemble(("✗ ", "bold red"), error.message)]
            show()
            if not out.is_terminal:
                out.print(Group(*tables, *problems))
            pause = asyncio.ensure_future(asyncio.sleep(max(0.0, every - (time.monotonic() - began))))
            if not await keys.wait(pause, show):
                return


async def _repeat_as_json(followed: options.FollowedTopology[StatusSource], timeout: float, every: float) -> NoReturn:
    before: Status | None = None
    while True:
        began = time.monotonic()
        try:
            seen = await followed.latest().read(timeout)
            print_json("status", seen.as_dict(before), layout=JsonLayout.LINE)
            before = seen
        except NotReachableError as error:
            console.print_problem(f"✗ {error.message}")
        sys.stdout.flush()
        await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))
