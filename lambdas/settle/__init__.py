"""Looks at a roll-out that is under way."""
