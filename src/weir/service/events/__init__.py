"""Events over HTTP: the language of event stores below the root, batches, and subscriptions."""

from __future__ import annotations

from weir.service.events.routes import event_routes

__all__ = ["event_routes"]
