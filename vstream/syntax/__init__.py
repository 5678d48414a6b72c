"""Text to trees with positions; no meaning."""
