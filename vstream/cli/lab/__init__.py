"""vstream lab: start, stop and look into labs."""
