"""Judge, the last stage: what the differences mean, as a report."""
