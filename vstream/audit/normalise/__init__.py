"""Stage 2: which original message each stored one is a copy of."""
