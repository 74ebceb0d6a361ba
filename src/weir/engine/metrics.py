"""What Weir measures of itself: every instrument there is, with its name and what it tells."""

from __future__ import annotations

from weir.engine.registry import COUNT_BOUNDS, Registry

__all__ = ["Metrics"]


class Metrics(Registry):
    """The instruments of one engine. Layers report to them; whoever has the engine reads them.

    :mod:`weir.engine.metrics_export` hands them to Prometheus.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.flushes.add()
    >>> metrics.flushes.value()
    1.0
    """

    def __init__(self) -> None:
        super().__init__()
        self.storage_requests = self.counter(
            "weir_storage_requests_total",
            "Operations asked of the store, by name; on an object store each is a round trip.",
            ["operation"],
        )
        self.storage_errors = self.counter(
            "weir_storage_errors_total",
            "Operations that ended in an error other than what they are asked to find out.",
            ["operation"],
        )
        self.storage_seconds = self.histogram(
            "weir_storage_request_seconds", "How long they took.", ["operation"]
        )
        self.cache_hits = self.counter("weir_cache_hits_total", "What was found in the read cache.")
        self.cache_misses = self.counter("weir_cache_misses_total", "What was not, and had to be read.")
        self.cache_evictions = self.counter(
            "weir_cache_evictions_total", "What the read cache dropped to stay within its budget."
        )
        self.cache_bytes = self.gauge("weir_cache_bytes", "Bytes that the read cache holds.")
        self.unflushed_bytes = self.gauge(
            "weir_unflushed_bytes", "Bytes of rows that are durable in logs and not flushed yet."
        )
        self.log_appends = self.counter("weir_log_appends_total", "Entries that writers appended to logs.")
        self.log_rows = self.counter("weir_log_rows_total", "Rows in them.")
        self.group_size = self.histogram(
            "weir_log_group_size", "Writes that shared an entry.", bounds=COUNT_BOUNDS
        )
        self.flushes = self.counter("weir_flushes_total", "MemTables that were flushed to generations.")
        self.flush_failures = self.counter("weir_flush_failures_total", "Flushes that failed.")
        self.flush_seconds = self.histogram("weir_flush_seconds", "How long flushes took.")
        self.flushed_rows = self.counter(
            "weir_flushed_rows_total", "Rows in those MemTables, replaced ones included."
        )
        self.merges = self.counter("weir_merges_total", "Merges of generations into base tables.")
        self.merged_generations = self.counter(
            "weir_merged_generations_total", "Generations that were merged."
        )
        self.merge_seconds = self.histogram("weir_merge_seconds", "How long merges took.")
        self.tended_tables = self.gauge(
            "weir_tended_tables", "Tables that the upkeep of this process looks after."
        )
        self.upkeep_rounds = self.counter("weir_upkeep_rounds_total", "Looks that it had at a table.")
        self.upkeep_failures = self.counter("weir_upkeep_failures_total", "Looks that failed.")
        self.leases = self.gauge("weir_leases", "Leases that are being renewed.")
        self.leases_lost = self.counter(
            "weir_leases_lost_total", "Leases that another writer took, or that ran out."
        )
        self.lease_renewal_failures = self.counter(
            "weir_lease_renewal_failures_total", "Renewals that failed; they are tried again."
        )
        self.queued = self.gauge(
            "weir_queued_tasks", "Tasks that wait for a thread, by what the threads do.", ["executor"]
        )
