"""Judge a capture in plain Python, without servers; the verdict is the same each time."""
