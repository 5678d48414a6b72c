"""Extract, the first stage: the tables of an audit, from servers or from a capture."""
