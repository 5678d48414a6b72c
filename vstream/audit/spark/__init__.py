"""Spark itself: its Java, sessions, workers, errors, and small tables of the driver."""
