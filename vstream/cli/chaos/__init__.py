"""vstream chaos: one command per fault."""
