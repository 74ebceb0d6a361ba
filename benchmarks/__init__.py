"""Weir against pylance's own MemWAL writer and readers, on the same work in one process run.

Run with ``python -m benchmarks``; ``docs/benchmarks.md`` says what is compared and how to read it.
"""

import os

# What is measured is not to be mixed with merges that begin when they are due.
os.environ["WEIR_MAINTENANCE"] = "off"
