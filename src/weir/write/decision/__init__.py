"""Writes that depend on existing rows: conditions, patches, and changes by filter."""
