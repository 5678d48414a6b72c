"""Findings on a live system: values and judgement, no I/O."""
