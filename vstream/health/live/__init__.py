"""Health's live half: it collects from servers what health judges."""
