"""The topology language: its documents, their meaning, and every name derived from them."""
