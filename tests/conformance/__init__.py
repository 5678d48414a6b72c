"""Unmodified clients by the virtual name: what works in which profile and model, and why not where not."""
