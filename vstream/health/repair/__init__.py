"""Repair: find missing and duplicate messages in read streams, and repair them."""
