"""Stage 1: the tables of an audit, from servers or from a capture."""
