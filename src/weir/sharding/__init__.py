"""Which shard a row belongs to, and which shards a filter or a key can touch."""
