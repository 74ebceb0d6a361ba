"""Stands before pandas where it is not to be found: see tests/conftest.py."""

raise ImportError("processes that tests start do without pandas")
