"""Repair: what is missing or doubled in read streams, and the steps that mend it."""
