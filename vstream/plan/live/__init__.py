"""The plan's live half: what it observes on servers, and the checks of its gates."""
