"""The shard's log and manifests on storage: reading and appending, and what a log tail still holds."""
