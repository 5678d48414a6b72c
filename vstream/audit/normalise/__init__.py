"""Normalise, the second stage: which original message each stored one is a copy of."""
