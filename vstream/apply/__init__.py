"""Carry out a plan on real servers."""
