"""The turbopuffer dialect: requests as calls of :mod:`weir.namespaces`, and their results."""

from __future__ import annotations

from weir.service.turbopuffer.routes import turbopuffer_routes

__all__ = ["turbopuffer_routes"]
