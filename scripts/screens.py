#!/usr/bin/env python3
"""
Pictures for the documentation, from real runs: docs/screens/NAME.svg of the terminal, for each of RUNS, and the graph.

    .venv/bin/python scripts/screens.py

The console's picture, docs/screens/console.png, is one of those that scripts/browser takes: killed-1600-light.png.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
SCREENS = ROOT / "docs" / "screens"
TOPOLOGY = "topology.yaml"
VSTREAM = Path(sys.executable).with_name("vstream")
WIDTH = 96
RUNS = (
    ("lab up", None),
    ("plan", "plan"),
    ("apply --yes", None),
    ("probe", "probe"),
    ("chaos kill-region west", None),
    ("status", "status"),
    ("chaos heal", None),
    ("lab down --purge", None),
)
"""What is typed, and the name of its picture."""
FORMAT = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
    "<style>{styles} .{unique_id}-matrix {{font: {char_height}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;"
    " line-height: {line_height}px;}} .{unique_id}-title {{font: 15px system-ui, sans-serif;}}</style>"
    '<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>'
    '{lines}</defs>{chrome}<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">'
    '{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>\n'
)
"""Rich's own asks another host for a font."""


def draw(command: str, printed: str, name: str) -> None:
    """Write the picture of a command and what it printed."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text(f"$ vstream {command}", style="bold"))
        console.print(Text.from_ansi(printed.rstrip("\n")))
    picture = console.export_svg(title="", theme=DIMMED_MONOKAI, code_format=FORMAT, unique_id=name)
    (SCREENS / f"{name}.svg").write_text(picture, encoding="utf-8")


def main() -> int:
    """Run everything in an empty directory, on a lab of its own."""
    SCREENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vstream-screens-") as directory:
        variables = {"VSTREAM_STATE_DIR": f"{directory}/state", "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
        (Path(directory) / TOPOLOGY).write_bytes((ROOT / "examples" / "three-regions.yaml").read_bytes())
        drawn = [str(VSTREAM), "graph", "--format", "svg"]
        (SCREENS / "graph.svg").write_bytes(subprocess.check_output(drawn, cwd=directory))
        try:
            for command, name in RUNS:
                ran = subprocess.run(
                    [str(VSTREAM), *command.split()],
                    cwd=directory,
                    env={**os.environ, **variables},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=False,
                )
                if name is None and ran.returncode != 0:
                    return ran.returncode
                if name is not None:
                    draw(command, ran.stdout, name)
        finally:
            purge = [str(VSTREAM), "lab", "down", "three-regions", "--purge"]
            subprocess.run(purge, env={**os.environ, **variables}, capture_output=True, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
