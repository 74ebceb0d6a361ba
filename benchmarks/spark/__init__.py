"""Weir on Spark against what Spark and Lance do without it.

Needs the extra ``spark`` and Java. ``python -m benchmarks --only spark`` runs all of it; each module is a
subject of its own.
"""
