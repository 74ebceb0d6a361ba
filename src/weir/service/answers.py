"""JSON responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

__all__ = ["JsonAnswer", "json_answer"]

_encode = msgspec.json.Encoder().encode
_TYPE = (b"content-type", b"application/json")


class JsonAnswer(Response):
    """A JSON response without further headers, made of nothing that the server would have to check.

    Parameters
    ----------
    content : object
        What it says.
    status : int
        The status.
    """

    def __init__(self, content: Any, status: int = 200) -> None:
        self.status_code = status
        self.background = None
        self.body = _encode(content)
        self.raw_headers = [(b"content-length", str(len(self.body)).encode()), _TYPE]


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    if headers:
        return Response(_encode(content), status, headers, media_type="application/json")
    return JsonAnswer(content, status)
