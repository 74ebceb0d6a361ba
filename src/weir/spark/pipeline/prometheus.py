"""Serves the newest sample of a pipeline to Prometheus over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weir.errors import MissingDependencyError, OptionError
from weir.spark.pipeline.metrics import MetricsSample

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["PrometheusSamples", "parse_address"]

_LOOPBACK = "127.0.0.1"
_GAUGES = {
    "rows_per_second": "Rows of the source in each second since the sample before.",
    "batch_seconds": "How long the longest micro-batch since the sample before took.",
    "lag_seconds": "Age of the oldest row that is not in the base table.",
    "unmerged_generations": "Generations that wait for a merge.",
    "unmerged_rows": "Rows that wait for a merge.",
}
_TOTALS = {
    "total_batches": ("batches", "Micro-batches."),
    "total_rows": ("rows", "Rows of the source."),
    "total_bad_records": ("bad_records", "Records in quarantine."),
}
_QUANTILES = {"0.5": "freshness_p50", "0.99": "freshness_p99"}


def parse_address(text: str) -> tuple[str, int]:
    """Parse host and port of a text like ``9400`` or ``0.0.0.0:9400``; without a host it is this machine.

    Raises
    ------
    OptionError
        If it is none.

    Examples
    --------
    >>> parse_address("9400"), parse_address("0.0.0.0:9400")
    (('127.0.0.1', 9400), ('0.0.0.0', 9400))
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise OptionError(
            f"a port is a number up to 65535, or HOST:PORT, got {text!r:.60}", where="metrics-port"
        )
    return host.strip("[]") or _LOOPBACK, int(port)


class PrometheusSamples:
    """Holds the newest sample of a pipeline, and serves it while its context is open.

    Parameters
    ----------
    pipeline : str
        Name of the pipeline, a label of every metric.
    """

    def __init__(self, pipeline: str) -> None:
        self._labels = {"pipeline": pipeline}
        self._sample: MetricsSample | None = None

    def note(self, sample: MetricsSample) -> None:
        """Set the newest sample."""
        self._sample = sample

    @contextmanager
    def served(self, host: str, port: int) -> Iterator[int]:
        """Answer requests; yield the port, which the system chooses for port 0.

        Raises
        ------
        MissingDependencyError
            If the library is not installed.
        OptionError
            If it is not possible to listen there.
        """
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "metrics for Prometheus need the package prometheus_client",
                hint="Install it with: pip install 'weir-lance[service]'",
            ) from error
        registry = CollectorRegistry()
        registry.register(self)
        try:
            server, thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            raise OptionError(
                f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}",
                where="metrics-port",
            ) from error
        try:
            yield int(server.server_port)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; none before the first sample."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sample = self._sample
        if sample is None:
            return
        names, values = list(self._labels), list(self._labels.values())
        for field, said in _GAUGES.items():
            value = getattr(sample, field)
            if value is not None:
                gauge = GaugeMetricFamily(f"weir_pipeline_{field}", said, labels=names)
                gauge.add_metric(values, value)
                yield gauge
        for field, (name, said) in _TOTALS.items():
            counter = CounterMetricFamily(f"weir_pipeline_{name}", said, labels=names)
            counter.add_metric(values, getattr(sample, field))
            yield counter
        fresh = GaugeMetricFamily(
            "weir_pipeline_freshness_seconds",
            "Time from the arrival of a row until a strong reader sees it.",
            labels=[*names, "quantile"],
        )
        for quantile, field in _QUANTILES.items():
            if getattr(sample, field) is not None:
                fresh.add_metric([*values, quantile], getattr(sample, field))
        yield fresh
        parts = GaugeMetricFamily(
            "weir_pipeline_freshness_part_seconds",
            "What that time is made of, in the mean.",
            labels=[*names, "part"],
        )
        for part, seconds in sample.freshness_parts.items():
            parts.add_metric([*values, part], seconds)
        yield parts
        behind = GaugeMetricFamily(
            "weir_pipeline_source_behind", "What the source says of what waits.", labels=[*names, "figure"]
        )
        for figure, amount in sample.behind.items():
            behind.add_metric([*values, figure], amount)
        yield behind
        runs = CounterMetricFamily(
            "weir_pipeline_service_runs", "Runs of a service.", labels=[*names, "service"]
        )
        failures = CounterMetricFamily(
            "weir_pipeline_service_failures", "Failed runs of a service.", labels=[*names, "service"]
        )
        for service, state in sample.services.items():
            runs.add_metric([*values, service], state.runs)
            failures.add_metric([*values, service], state.failures)
        yield runs
        yield failures
