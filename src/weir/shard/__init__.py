"""One shard's life as its writer sees it: claim, WAL, MemTable, flush."""
