"""A judge of the judge: virtual streams on real servers, what was done to them, and what has to be said of it."""
