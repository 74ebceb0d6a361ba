"""The error format of the dialect."""

from __future__ import annotations

import msgspec

from weir.service.refusals import Refusal

__all__ = ["Refused", "envelope"]

_CODES = {
    "unauthorized": ("unauthenticated", "authentication required"),
    "not_supported": ("NOT_IMPLEMENTED", None),
    "invalid_request": ("VALIDATION_ERROR", None),
    "invalid_json": ("VALIDATION_ERROR", None),
    "unsupported_encoding": ("VALIDATION_ERROR", None),
    "namespace_not_found": ("NAMESPACE_NOT_FOUND", None),
    "key_not_found": ("security_entity_not_found", None),
    "too_many_requests": ("RATE_LIMITED", None),
    "too_many_documents": ("PAYLOAD_TOO_LARGE", None),
    "payload_too_large": ("PAYLOAD_TOO_LARGE", None),
    "owner_changing": ("CONFLICT_RETRY", None),
    "conflict": ("CONFLICT_RETRY", None),
    "concurrency": ("CONCURRENCY_LIMIT", None),
    "snapshot_expired": ("POINT_IN_TIME_NOT_RETAINED", None),
    "storage_unavailable": ("STORAGE_ERROR", None),
    "storage_replaced": ("STORAGE_ERROR", None),
    "insufficient_storage": ("STORAGE_ERROR", None),
    "deadline": ("REQUEST_TIMEOUT", None),
    "internal": ("INTERNAL_ERROR", None),
    "corruption": ("INTERNAL_ERROR", None),
    "stopping": ("CONFLICT_RETRY", None),
    "read_only": ("forbidden", None),
}


class Refused(msgspec.Struct, frozen=True):
    """An error: its cause, and whether a retry may succeed."""

    code: str
    error: str
    request_id: str
    retryable: bool
    status: int


def envelope(refusal: Refusal, request_id: str) -> Refused:
    """Return the content of the response."""
    code, message = _CODES.get(refusal.code, (refusal.code, None))
    text = message or refusal.message
    if code == "VALIDATION_ERROR" and not text.startswith("validation error"):
        text = f"validation error: {text}"
    if code == "NOT_IMPLEMENTED" and not text.startswith("not implemented"):
        text = f"not implemented: {text}"
    return Refused(code, text, request_id, refusal.is_retryable, refusal.status)
