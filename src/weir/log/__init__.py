"""A shard's log and manifests on storage: reading, appending, and the contents of a log tail."""
