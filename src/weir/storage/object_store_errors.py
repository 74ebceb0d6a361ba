"""Errors of the object-store client as Weir errors with hints."""

from __future__ import annotations

from obstore.exceptions import GenericError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

from weir.errors import StorageError

__all__ = [
    "hint_for",
    "is_conflict",
    "is_missing_bucket",
    "is_panic",
    "is_refused_range",
    "missing_bucket",
    "storage_error",
]

_CREDENTIALS = (
    "Check the credentials in the storage options or in the environment, and what they allow; profiles in "
    "~/.aws are not read, but 'aws configure export-credentials --format env' prints them as variables"
)
_LATER = "The client has tried again already: check that the store is reachable, then try later"
# What to look for in the message and in the debug output below it, most telling first.
_HINTS: tuple[tuple[str, str], ...] = (
    ("169.254.169.254", _CREDENTIALS),
    ("InvalidAccessKeyId", _CREDENTIALS),
    ("SignatureDoesNotMatch", _CREDENTIALS),
    ("ExpiredToken", "The credentials have expired: get new ones and open the table again"),
    ("status: 401", _CREDENTIALS),
    ("status: 403", _CREDENTIALS),
    ("Failed to get AWS credentials", _CREDENTIALS),
    ("BareRedirect", "The bucket lies in another region: set the storage option 'aws_region'"),
    ("BadScheme", "Plain http is off: set the storage option 'allow_http' to 'true', or use https"),
    ("HTTP error: builder error", "Plain http is off: set the storage option 'allow_http' to 'true'"),
    ("kind: Timeout", f"{_LATER}; the storage option 'timeout' says how long to wait, as in '60s'"),
    (
        "dns error",
        "The name of the endpoint is not known: check the storage option 'endpoint' and the network",
    ),
    ("ConnectionRefused", "Nothing answers there: check the storage option 'endpoint'"),
    ("kind: Connect", "No connection: check the storage option 'endpoint' and the network"),
    ("status: 429", f"The store asks to slow down. {_LATER}"),
    ("status: 5", _LATER),
    ("status: 400", "The store refused the request: check region, endpoint and bucket name"),
    ("error sending request", _LATER),
)
_LONGEST_REASON = 400


def is_missing_bucket(error: BaseException) -> bool:
    """Whether the client says that the bucket or container itself does not exist."""
    text = str(error)
    return any(code in text for code in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"))


def hint_for(error: BaseException) -> str | None:
    """Return what to do about an error of the client, or of the library's, None if nothing is known.

    Examples
    --------
    >>> hint_for(OSError("LanceError(IO): Generic S3 error: HTTP error: builder error"))
    "Plain http is off: set the storage option 'allow_http' to 'true'"
    """
    text = str(error)
    return next((hint for mark, hint in _HINTS if mark in text), None)


def is_conflict(error: BaseException) -> bool:
    """Whether the store gave up because another request for the same object was under way (409).

    Unlike a failed precondition (412) it does not say that anything was written.
    """
    return "409 Conflict" in str(error)


def is_panic(error: BaseException) -> bool:
    """Whether the client has panicked.

    Its exception is not an :class:`Exception`, so ``except Exception`` would not catch it, and its class
    cannot be imported.
    """
    return type(error).__name__ == "PanicException"


def is_refused_range(error: BaseException | None) -> bool:
    """Whether the store may have refused a range of bytes, rather than failed or been out of reach."""
    if isinstance(error, NotSupportedError):
        return True
    # Azure and S3 answer 416; for an empty object S3 may send all of it instead of a range.
    marks = ("416 Range Not Satisfiable", "NotPartial", "StartTooLarge")
    return isinstance(error, GenericError) and any(mark in str(error) for mark in marks)


def missing_bucket(where: str) -> StorageError:
    """Return the error for a bucket or container that does not exist."""
    return StorageError(
        "The bucket or container does not exist",
        where=where,
        hint="Check its name, region and endpoint, or create it first",
    )


def storage_error(error: BaseException, what: str, where: str) -> StorageError:
    """Return the error to raise in place of ``error``.

    Parameters
    ----------
    error : BaseException
        What the client raised.
    what : str
        What was being done, as in "Writing the object".
    where : str
        The location of the object.
    """
    text = str(error)
    if is_missing_bucket(error):
        return missing_bucket(where)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        hint = _CREDENTIALS
    else:
        hint = hint_for(error) or "Check the location and the network"
    reason = text.split("\n\nDebug source", 1)[0].strip().replace("\n", " ")
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}..."
    return StorageError(f"{what} failed: {reason}", where=where, hint=hint)
