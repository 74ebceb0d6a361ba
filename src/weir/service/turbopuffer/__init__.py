"""The dialect of turbopuffer: what its clients send, as calls of :mod:`weir.namespaces`, and the answers."""

from __future__ import annotations

from weir.service.turbopuffer.routes import turbopuffer_routes

__all__ = ["turbopuffer_routes"]
