"""The scenario language: what may be written, and what it means."""
