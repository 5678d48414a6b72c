"""vstream audit."""
