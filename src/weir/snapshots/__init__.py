"""One consistent state of a table: capture, shard views, tokens, consumers, time travel."""
