"""The scenario language: its documents, and their meaning."""
