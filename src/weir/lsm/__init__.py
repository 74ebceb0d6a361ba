"""Levels (base table, generation, log tail) and which of their rows are live: newest wins."""
