"""What would have to change on the servers, as a value, and its execution."""
