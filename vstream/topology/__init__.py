"""The topology language: what may be written, what it means, and every name derived from it."""
