"""Inspection of the objects of a table, including damaged ones."""
