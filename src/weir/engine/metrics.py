"""The metrics of Weir: every instrument with its name and meaning."""

from __future__ import annotations

from weir.engine.registry import COUNT_BOUNDS, Registry

__all__ = ["Metrics"]


class Metrics(Registry):
    """The instruments of one engine. Layers report to them; users of the engine read them.

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
            "Operations sent to the store, by name; on an object store each is a round trip.",
            ["operation"],
        )
        self.storage_errors = self.counter(
            "weir_storage_errors_total",
            "Operations that failed, other than by an expected outcome such as a missing object.",
            ["operation"],
        )
        self.storage_seconds = self.histogram(
            "weir_storage_request_seconds", "Duration of operations.", ["operation"]
        )
        self.cache_hits = self.counter("weir_cache_hits_total", "Lookups found in the read cache.")
        self.cache_misses = self.counter("weir_cache_misses_total", "Lookups not found in the read cache.")
        self.cache_evictions = self.counter(
            "weir_cache_evictions_total", "Entries that the read cache dropped to stay within its budget."
        )
        self.cache_bytes = self.gauge("weir_cache_bytes", "Bytes in the read cache.")
        self.unflushed_bytes = self.gauge(
            "weir_unflushed_bytes", "Bytes of rows that are durable in logs but not flushed yet."
        )
        self.log_appends = self.counter("weir_log_appends_total", "Entries that writers appended to logs.")
        self.log_rows = self.counter("weir_log_rows_total", "Rows in appended log entries.")
        self.group_size = self.histogram("weir_log_group_size", "Writes per log entry.", bounds=COUNT_BOUNDS)
        self.flushes = self.counter("weir_flushes_total", "MemTables flushed to generations.")
        self.flush_failures = self.counter("weir_flush_failures_total", "Flushes that failed.")
        self.flush_seconds = self.histogram("weir_flush_seconds", "Duration of flushes.")
        self.flushed_rows = self.counter(
            "weir_flushed_rows_total", "Rows in flushed MemTables, including replaced ones."
        )
        self.merges = self.counter("weir_merges_total", "Merges of generations into base tables.")
        self.merged_generations = self.counter("weir_merged_generations_total", "Generations merged.")
        self.merge_seconds = self.histogram("weir_merge_seconds", "Duration of merges.")
        self.tended_tables = self.gauge(
            "weir_tended_tables", "Tables maintained by the upkeep of this process."
        )
        self.upkeep_rounds = self.counter("weir_upkeep_rounds_total", "Checks of a table by upkeep.")
        self.upkeep_failures = self.counter("weir_upkeep_failures_total", "Checks by upkeep that failed.")
        self.leases = self.gauge("weir_leases", "Leases that are currently held and renewed.")
        self.leases_lost = self.counter(
            "weir_leases_lost_total", "Leases lost because another writer took them over or they expired."
        )
        self.lease_renewal_failures = self.counter(
            "weir_lease_renewal_failures_total", "Lease renewals that failed; they are retried."
        )
        self.queued = self.gauge(
            "weir_queued_tasks", "Tasks waiting for a thread, by executor.", ["executor"]
        )
