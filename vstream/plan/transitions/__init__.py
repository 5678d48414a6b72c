"""Changes that take more than one step, one module each."""
