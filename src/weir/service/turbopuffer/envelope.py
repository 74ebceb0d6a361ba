"""The error format of the dialect."""

from __future__ import annotations

from typing import Literal

import msgspec

from weir.service.refusals import Refusal

__all__ = ["Refused", "envelope"]


class Refused(msgspec.Struct, frozen=True):
    """An error: its kind and message."""

    error: str
    status: Literal["error"] = "error"


def envelope(refusal: Refusal, request_id: str) -> Refused:
    """Return the content of the response."""
    return Refused(refusal.message)
