"""How the dialect tells of a request that is refused."""

from __future__ import annotations

from weir.service.refusals import Refusal

__all__ = ["envelope"]


def envelope(refusal: Refusal, request_id: str) -> object:
    """Return the content of the answer."""
    return {"status": "error", "error": refusal.message}
