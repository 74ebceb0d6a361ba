"""Export of an engine's metrics to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from weir.engine.registry import HistogramValue, Registry, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["PrometheusCollector", "prometheus_text"]


def prometheus_text(metrics: Registry) -> str:
    r"""Return metrics in the text format of Prometheus, for a process that answers scrapes by itself.

    Parameters
    ----------
    metrics : Registry
        Those of an engine: ``engine.metrics``.

    Examples
    --------
    >>> registry = Registry()
    >>> registry.counter("weir_merges_total", "Merges.", ["table"]).add(2, 'a"b')
    >>> print(prometheus_text(registry), end="")
    # HELP weir_merges_total Merges.
    # TYPE weir_merges_total counter
    weir_merges_total{table="a\"b"} 2.0
    """
    lines: list[str] = []
    for one in metrics.instruments:
        lines += [f"# HELP {one.name} {_escaped(one.help)}", f"# TYPE {one.name} {one.kind}"]
        for sample in one.samples():
            lines += _lines(sample)
    return "".join(f"{line}\n" for line in lines)


def _lines(sample: Sample) -> Iterator[str]:
    value = sample.value
    if not isinstance(value, HistogramValue):
        yield f"{sample.name}{_labels(sample.labels)} {value!r}"
        return
    for bound, count in value.buckets:
        yield f"{sample.name}_bucket{_labels((*sample.labels, ('le', _bound(bound))))} {count}"
    yield f"{sample.name}_sum{_labels(sample.labels)} {value.sum!r}"
    yield f"{sample.name}_count{_labels(sample.labels)} {value.count}"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    named = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels)
    return f"{{{named}}}" if named else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)


class PrometheusCollector:
    """Metrics as the library ``prometheus_client`` reads them: registered, it is read at every scrape.

    Parameters
    ----------
    metrics : Registry
        Those of an engine: ``engine.metrics``.

    Examples
    --------
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> metrics, registry = Registry(), CollectorRegistry()
    >>> registry.register(PrometheusCollector(metrics))
    >>> metrics.counter("weir_merges_total", "Merges.").add(2)
    >>> print(generate_latest(registry).decode().splitlines()[-1])
    weir_merges_total 2.0
    """

    def __init__(self, metrics: Registry) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield every instrument with its samples."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        families: dict[str, Callable[..., Any]] = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
        }
        for one in self._metrics.instruments:
            family = families[one.kind](one.name, one.help, labels=one.labels)
            for sample in one.samples():
                labels = [value for _, value in sample.labels]
                if isinstance(sample.value, HistogramValue):
                    buckets = [(_bound(bound), count) for bound, count in sample.value.buckets]
                    family.add_metric(labels, buckets, sample.value.sum)
                else:
                    family.add_metric(labels, sample.value)
            yield family
