"""Leases on shards, and how they are renewed."""
