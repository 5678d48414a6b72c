"""Stage 4: what the differences mean, as a report."""
