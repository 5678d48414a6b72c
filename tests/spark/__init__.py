"""Tests that start Spark: one session for all of them, since it takes seconds to start."""
