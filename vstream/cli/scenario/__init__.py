"""vstream scenario: run, check and explore scenarios."""
