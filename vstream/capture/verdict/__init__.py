"""Judges a capture: plain Python, no servers, the same verdict each time."""
