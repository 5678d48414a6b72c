"""A backup of virtual streams at one cut, and its way back onto empty servers."""
