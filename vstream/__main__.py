"""`python -m vstream`, and the `vstream` command."""

from __future__ import annotations

from vstream.cli.app import run


def main() -> None:
    """Run the command line."""
    run()


if __name__ == "__main__":
    main()
