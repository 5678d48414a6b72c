"""Rehearsals: a workload, faults on purpose, and a capture of everything that came of it. Judges nothing."""
