"""Events over HTTP: commands of the event language, batches and subscriptions."""

from __future__ import annotations

from weir.service.events.routes import event_routes

__all__ = ["event_routes"]
