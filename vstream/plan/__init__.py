"""Plan: the changes that the servers need, as a value; and its execution."""
