"""Showing what any object of a table says, also one that is broken."""
