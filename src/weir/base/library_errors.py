"""Classification of the Lance library's exceptions.

The library raises plain ``OSError`` and ``ValueError``; only their text says what happened. The texts are
matched only here, and a test provokes each of them with the library itself.
"""

from __future__ import annotations

from enum import Enum

from lance.commit import CommitConflictError

from weir.base.damaged_file import damaged_file
from weir.errors import CorruptionError, StorageError
from weir.indexing.library_message import library_message
from weir.storage import local_errors, object_store_errors

__all__ = ["LIBRARY_ERRORS", "LibraryFailure", "classify", "is_panic", "storage_failure"]

LIBRARY_ERRORS: tuple[type[Exception], ...] = (OSError, ValueError, RuntimeError)
"""What calls into the library raise."""


class LibraryFailure(Enum):
    """Kinds of failure the library reports."""

    ABSENT = "no dataset, or no such version of it"
    EXISTS = "a dataset is there already"
    CONFLICT = "a concurrent commit got in the way"
    STALE_PROGRESS = "the merge progress to record is not above what is recorded"
    DAMAGED = "a file is not what the library has written"
    OTHER = "anything else"


_SIGNS: tuple[tuple[str, LibraryFailure], ...] = (
    ("stale sstable compaction", LibraryFailure.STALE_PROGRESS),
    ("too many concurrent writers", LibraryFailure.CONFLICT),
    ("commit conflict", LibraryFailure.CONFLICT),
    ("incompatible transaction", LibraryFailure.CONFLICT),
    # Another version had the number, and was cleaned up before the library could identify it. If the outcome
    # is unknown for other reasons, the next attempt finds the commit when it plans again.
    ("commit result for version", LibraryFailure.CONFLICT),
    ("dataset already exists", LibraryFailure.EXISTS),
    ("was not found", LibraryFailure.ABSENT),
    ("not a directory", LibraryFailure.ABSENT),
    # Of a local file that vanished between two reads through one reader.
    ("generic n/a error: not found:", LibraryFailure.ABSENT),
    # Raised as the same OSError as for a failing store.
    ("does not appear to be a lance file", LibraryFailure.DAMAGED),
    ("file size is too small", LibraryFailure.DAMAGED),
    ("for object of size", LibraryFailure.DAMAGED),
    ("encountered corrupt file", LibraryFailure.DAMAGED),
    ("failed to decode protobuf", LibraryFailure.DAMAGED),
    # When files are opened, the only input that can be invalid is their content.
    ("error reading file metadata: invalid user input", LibraryFailure.DAMAGED),
    ("error reading file metadata: lanceerror(schema)", LibraryFailure.DAMAGED),
    ("failed to fill whole buffer", LibraryFailure.DAMAGED),
    # For deletion files and index files.
    ("arrow file does not contain correct footer", LibraryFailure.DAMAGED),
    ("invalid seek to a negative or overflowing position", LibraryFailure.DAMAGED),
    ("invalid read params", LibraryFailure.DAMAGED),
)


def classify(error: BaseException) -> LibraryFailure:
    """Return which kind of failure an exception of the library reports.

    Examples
    --------
    >>> classify(OSError("Dataset already exists: /data/flights, insert.rs:333")).name
    'EXISTS'
    """
    if isinstance(error, CommitConflictError):
        return LibraryFailure.CONFLICT
    text = str(error).lower()
    if "commit result for version" in text and "localfilesystem error" in text:
        # The disk did not take a manifest: that is no doubt about the outcome.
        return LibraryFailure.OTHER
    for sign, failure in _SIGNS:
        if sign in text:
            return failure
    # A dataset that vanished while it was open is reported by the directory that is gone.
    if text.startswith("not found:"):
        return LibraryFailure.ABSENT
    return LibraryFailure.OTHER


def is_panic(error: BaseException) -> bool:
    """Whether the library has panicked, as it does on some damaged files.

    Its exception is not an :class:`Exception`, and its class cannot be imported.
    """
    return type(error).__name__ == "PanicException"


def storage_failure(error: BaseException, doing: str, *, where: str) -> StorageError | CorruptionError:
    """Return the error to raise when the library failed: over a damaged file, or Weir does not know why.

    Parameters
    ----------
    error : BaseException
        What the library raised.
    doing : str
        The operation, as the subject of "failed".
    where : str
        The table. Where a file of it shows that it is damaged, the error names the file.
    """
    if object_store_errors.is_missing_bucket(error):
        return object_store_errors.missing_bucket(where)
    hint = local_errors.hint_for(error) or object_store_errors.hint_for(error)
    failure = classify(error)
    # The library words damage differently in every place that meets it.
    is_unknown = failure is LibraryFailure.OTHER and hint is None
    damaged = damaged_file(where) if failure is LibraryFailure.DAMAGED or is_unknown else where
    if failure is LibraryFailure.DAMAGED or damaged != where:
        return CorruptionError(
            f"{doing} failed, because a file is damaged: {library_message(error)}",
            where=damaged,
            hint="weir verify names every file that is damaged; restore them from a backup",
        )
    return StorageError(f"{doing} failed: {library_message(error)}", where=where, hint=hint)
