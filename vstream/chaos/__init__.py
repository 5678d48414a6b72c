"""Faults on purpose: said first, confirmed, written down before they happen, and undone."""
