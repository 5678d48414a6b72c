"""What stages hand on: the tables, what is known besides messages, and where both are stored."""
