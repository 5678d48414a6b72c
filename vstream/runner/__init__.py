"""Run scenarios: a workload, injected faults, and a capture of everything that happened. Judges nothing."""
