"""Merging generations into the base table: plan, tasks, one commit, policy."""
