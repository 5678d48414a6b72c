"""What a server makes of subject mappings: transforms, and the choice among rules."""
