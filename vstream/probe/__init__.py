"""Probe: test from outside, hop by hop, whether a topology works on its live servers."""
