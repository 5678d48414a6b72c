"""The command line: each command parses its arguments, calls the core, and hands the result to a view."""
