"""The write path: table writer, shard pool, shard writer, claim."""
