"""Verification of a whole table: every invariant that storage can show."""
