"""Acknowledged rows that are not flushed yet, and bounds on their amount."""
