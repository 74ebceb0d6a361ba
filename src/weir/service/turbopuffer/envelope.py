"""How the dialect tells of a request that is refused."""

from __future__ import annotations

from typing import Literal

import msgspec

from weir.service.refusals import Refusal

__all__ = ["Refused", "envelope"]


class Refused(msgspec.Struct, frozen=True):
    """A request that was refused, and why."""

    error: str
    status: Literal["error"] = "error"


def envelope(refusal: Refusal, request_id: str) -> Refused:
    """Return the content of the answer."""
    return Refused(refusal.message)
