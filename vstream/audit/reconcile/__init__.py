"""Stage 3: where regions differ, message by message."""
