"""Queries: binds names to fields, plans over one snapshot, and computes the result."""
