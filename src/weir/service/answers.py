"""JSON responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

__all__ = ["json_answer"]

_encode = msgspec.json.Encoder().encode


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(_encode(content), status, headers, media_type="application/json")
