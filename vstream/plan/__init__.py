"""Plan: the changes that the servers need, as a value (`apply` executes it)."""
