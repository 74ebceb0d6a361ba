"""Error responses: the status and message of each error.

Clients never see a path, a key or a traceback: errors of tables keep their location separate from their
message, and only the message is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weir.errors import (
    BackpressureError,
    ConflictError,
    CorruptionError,
    DiskFullError,
    FencedError,
    FilterError,
    InputError,
    KeyNotFoundError,
    LeaseHeldError,
    NamespaceNotFoundError,
    NamespaceReadOnlyError,
    QueryError,
    ReadCancelledError,
    SchemaError,
    SnapshotExpiredError,
    StorageError,
    TableNotFoundError,
    UnsupportedError,
    WriterClosedError,
)

__all__ = ["Refusal", "refusal_of"]


@dataclass(slots=True)
class Refusal(Exception):  # noqa: N818  # an answer, and no failure
    """An error response.

    Parameters
    ----------
    status : int
        The HTTP status.
    code : str
        The error code, for programs.
    message : str
        The error message, for people.
    retry_after : int, optional
        Seconds after which to retry.
    headers : mapping of str to str
        Additional headers.
    """

    status: int
    code: str
    message: str
    retry_after: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_retryable(self) -> bool:
        """Whether the request may succeed later."""
        return self.retry_after is not None

    def all_headers(self) -> dict[str, str]:
        """Return the headers of the response."""
        headers = dict(self.headers)
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return headers


def refusal_of(error: BaseException) -> Refusal | None:
    """Return the response for an error; None for an internal error."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, UnsupportedError):
        return Refusal(501, "not_supported", _told(error))
    if isinstance(error, FilterError | QueryError | SchemaError):
        return Refusal(400, "invalid_request", error.message)
    if isinstance(error, InputError):
        return Refusal(400, "invalid_request", _told(error))
    if isinstance(error, NamespaceNotFoundError):
        return Refusal(404, "namespace_not_found", error.message)
    if isinstance(error, TableNotFoundError):
        return Refusal(404, "namespace_not_found", "the namespace was deleted")
    if isinstance(error, KeyNotFoundError):
        return Refusal(404, "key_not_found", error.message)
    if isinstance(error, NamespaceReadOnlyError):
        return Refusal(403, "read_only", error.message)
    if isinstance(error, BackpressureError):
        return Refusal(429, "too_many_requests", "the namespace is written faster than it can be merged", 2)
    if isinstance(error, LeaseHeldError | FencedError | WriterClosedError):
        return Refusal(503, "owner_changing", "the namespace is being taken over by another process", 1)
    if isinstance(error, ConflictError):
        return Refusal(503, "conflict", "others changed the namespace during every attempt", 1)
    if isinstance(error, SnapshotExpiredError):
        return Refusal(400, "snapshot_expired", "the state that was asked for is not kept any more")
    if isinstance(error, ReadCancelledError):
        return Refusal(503, "deadline", "the request timed out", 1)
    if isinstance(error, CorruptionError):
        # Which object it is stands in its location, and is for operators.
        return Refusal(
            500,
            "corruption",
            "what is stored is damaged, or does not belong to the rest: weir verify says what it is, and "
            "weir repair mends what it can",
        )
    if isinstance(error, DiskFullError):
        return Refusal(507, "insufficient_storage", "the disk of the service is full", 10)
    if isinstance(error, StorageError):
        return Refusal(503, "storage_unavailable", "the storage did not answer", 2)
    return None


def _told(error: InputError) -> str:
    return error.message if error.hint is None else f"{error.message}. {error.hint}"
