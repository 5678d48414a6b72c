"""Accounts and users of rendered server configurations."""
