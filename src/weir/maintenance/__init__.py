"""Maintenance jobs: index catch-up, compaction, recovery, status, verification, inspection."""
