"""The subjects by name, and where the function of each is; it is imported when it is run."""

from __future__ import annotations

from importlib import import_module

from benchmarks.context import Subject

__all__ = ["DEFAULT", "GROUPS", "NAMES", "ON_REQUEST", "subject"]

DEFAULT = {
    "ingest": "benchmarks.ingest:run",
    "concurrent": "benchmarks.concurrent_puts:run",
    "recovery": "benchmarks.recovery:run",
    "get": "benchmarks.get:run",
    "scan": "benchmarks.scan:run",
    "following": "benchmarks.following:run",
    "changes": "benchmarks.changes:run",
    "merging": "benchmarks.merging:run",
    "search": "benchmarks.search:run",
    "indexed": "benchmarks.indexed:run",
    "growth": "benchmarks.growth:run",
    "wide": "benchmarks.wide:run",
    "events": "benchmarks.events:run",
    "service-documents": "benchmarks.service:documents",
    "service-vectors": "benchmarks.service:vectors",
    "service-searches": "benchmarks.service:searches",
}
"""Those that run if none is named."""
_ON_SPARK = {
    "spark-stream": "benchmarks.spark.streams:run",
    "spark-append": "benchmarks.spark.appends:run",
    "spark-read": "benchmarks.spark.reads:run",
    "spark-merge": "benchmarks.spark.merges:run",
}
ON_REQUEST = {
    # These need the extra `spark` and Java.
    **_ON_SPARK,
    # These need the program of another project, or minutes each.
    "chroma": "benchmarks.chroma:run",
    "namespaces": "benchmarks.namespaces:run",
    "million": "benchmarks.million:run",
    "cold": "benchmarks.cold:run",
    "event-growth": "benchmarks.event_growth:run",
}
"""Those that run if they are named."""
GROUPS = {
    "service": [name for name in DEFAULT if name.startswith("service-")],
    "spark": [*_ON_SPARK, "merging"],
}
"""Names that stand for several."""
NAMES = [*DEFAULT, *ON_REQUEST]


def subject(name: str) -> Subject:
    """Return the function of a subject."""
    module, _, function = (DEFAULT | ON_REQUEST)[name].partition(":")
    found: Subject = getattr(import_module(module), function)
    return found
