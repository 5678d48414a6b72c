"""Rules: small generators that say what is wrong and where, each with a stable code and a manual page."""
