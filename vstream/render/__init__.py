"""Render a topology to the files that make it real."""
