"""The way of a write: table writer, shard pool, shard writer, claim."""
