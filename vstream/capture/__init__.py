"""What a run leaves on disk: the contract between those who run and those who judge."""
