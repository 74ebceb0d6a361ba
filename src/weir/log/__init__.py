"""A shard's log and manifests on storage, the contents of a log tail, and which shard has given values."""
