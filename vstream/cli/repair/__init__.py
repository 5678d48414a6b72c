"""vstream repair."""
