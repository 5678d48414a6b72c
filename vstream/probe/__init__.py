"""Does a topology work? Asked of the live servers, hop by hop, and answered with evidence."""
