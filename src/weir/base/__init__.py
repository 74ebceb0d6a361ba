"""The Lance base table: making it, reading and changing its MemWAL index, merging into it."""
