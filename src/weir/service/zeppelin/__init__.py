"""The Zeppelin dialect: its public API as calls of :mod:`weir.namespaces`, and the results."""

from __future__ import annotations

from weir.service.zeppelin.routes import zeppelin_routes

__all__ = ["zeppelin_routes"]
