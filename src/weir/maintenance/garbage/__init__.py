"""Garbage collection: mark, wait for the horizon, check the roots again, sweep."""
