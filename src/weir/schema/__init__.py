"""Types, schemas and SQL as text."""
