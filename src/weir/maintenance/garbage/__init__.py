"""Garbage collection: mark, wait the horizon, look at the roots again, sweep."""
