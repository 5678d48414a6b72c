"""What a run leaves on disk: the contract between running a scenario and judging it."""
