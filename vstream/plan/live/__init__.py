"""The live half of plan: observe servers, and check gates."""
