"""What all servers said at one moment, and what follows from it: values only, no I/O."""
