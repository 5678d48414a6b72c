"""What repeated audits of a topology keep (`--state`), and what they need not judge again."""
