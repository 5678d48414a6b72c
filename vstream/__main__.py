"""`python -m vstream`, and the `vstream` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from vstream.cli.app import run  # noqa: PLC0415 - keeps `import vstream.__main__` free of side effects

    run()


if __name__ == "__main__":
    main()
