"""A topology that says what runs: from what servers were found to have, to its text."""
