"""Full-text search, with one set of statistics for all levels."""
