"""Jobs beside the tables: index catch-up, compaction, recovery, status, verification, inspection."""
