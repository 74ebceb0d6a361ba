"""Random histories of one table that Weir, the library's MemWAL writer and plain Lance change together.

After each step what Weir shows is compared with a dict, and where nothing is in a log alone, what the
library's own reader shows as well. ``python -m tests.conformance.differential`` runs many seeds.
"""
