"""The Lance base table: creating it, reading and changing its MemWAL index, merging into it."""
