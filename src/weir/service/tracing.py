"""OpenTelemetry spans of requests, down to storage requests, if its API is installed.

Export is configured as for any program: with ``opentelemetry-instrument``, or by setting a tracer provider.
Otherwise nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import weir
from weir.engine.tracing import trace_with

__all__ = ["RequestSpan", "Tracing"]


class RequestSpan(Protocol):
    """The span of a request."""

    def answered(self, status: int) -> None:
        """Record the response."""
        ...


class _Nothing:
    def answered(self, status: int) -> None:
        """Record nothing."""


_NOTHING = nullcontext(_Nothing())


class _OfRequest:
    def __init__(self, span: Any) -> None:
        self._span = span

    def answered(self, status: int) -> None:
        """Record the response."""
        self._span.set_attribute("http.response.status_code", status)


class Tracing:
    """Begins the spans of requests and of their parts.

    Outside a request, such as in upkeep, and without a recorder, there are none.
    """

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            self._tracer: Any = None
            return
        tracer = self._tracer = trace.get_tracer("weir", weir.__version__)
        self._extract: Any = propagate.extract

        def is_recorded() -> bool:
            return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

        self._is_recorded = is_recorded

        def begin(name: str) -> AbstractContextManager[object]:
            if not trace.get_current_span().is_recording():
                return nullcontext()
            return tracer.start_as_current_span(name)

        trace_with(begin)

    def request(
        self, method: str, route: str, headers: Mapping[str, str], request_id: str
    ) -> AbstractContextManager[RequestSpan]:
        """Begin the span of a request, as a child of its ``traceparent``."""
        if self._tracer is None or not self._is_recorded():
            return _NOTHING
        return self._recorded(method, route, headers, request_id)

    @contextmanager
    def _recorded(
        self, method: str, route: str, headers: Mapping[str, str], request_id: str
    ) -> Iterator[RequestSpan]:
        attributes = {"http.request.method": method, "http.route": route, "weir.request_id": request_id}
        # What a client has named may be a trace, and never anything else.
        context = self._extract({name: headers[name] for name in _CARRIED if name in headers})
        with self._tracer.start_as_current_span(
            f"{method} {route}", context=context, attributes=attributes
        ) as span:
            yield _OfRequest(span)


_CARRIED = ("traceparent", "tracestate")
