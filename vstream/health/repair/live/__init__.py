"""The live half of repair: read streams, and write to them."""
