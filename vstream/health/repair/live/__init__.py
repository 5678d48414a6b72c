"""Repair's live half: it reads streams and writes to them."""
