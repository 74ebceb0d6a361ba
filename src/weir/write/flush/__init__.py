"""From a MemTable to a flushed generation."""
