"""Search by text, scored over all levels by one set of statistics."""
