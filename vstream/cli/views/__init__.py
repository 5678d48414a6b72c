"""Results as text and JSON: a module per command, and what they share. Data goes to stdout, talk to stderr."""
