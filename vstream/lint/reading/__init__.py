"""Parsed files → what rules look at. Nothing here refuses a file: what makes no sense is kept as a fault, or left out."""
