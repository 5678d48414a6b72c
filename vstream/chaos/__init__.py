"""Fault injection: announced, journalled before it happens, confirmed, and healed."""
