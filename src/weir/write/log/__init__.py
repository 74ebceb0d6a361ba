"""The write-ahead log of a shard."""
