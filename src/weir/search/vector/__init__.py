"""Search by vector."""
