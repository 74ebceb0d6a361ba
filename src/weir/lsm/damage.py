"""Distinguishing a damaged Lance file from all other read failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from weir.base.damaged_file import damaged_file
from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, is_panic
from weir.engine.cancellation import check_cancelled
from weir.errors import CorruptionError, FilterError, StorageError, WeirError
from weir.indexing.library_message import library_message
from weir.lsm.filters import is_of_a_filter, reason

__all__ = ["name_failure", "reading"]


@contextmanager
def reading(what: str, where: str, condition: str | None = None) -> Iterator[None]:
    """Give the errors of a read a name and a place (invariant I11).

    Parameters
    ----------
    what : str
        What is being read, for the message.
    where : str
        Its location. For a local dataset, the error names the damaged file if it can be found.
    condition : str, optional
        The filter it is read with, which may fail on some row: a division by zero, for example.

    Raises
    ------
    FilterError
        If the filter cannot be evaluated on a row.
    CorruptionError
        If the files are missing or cannot be decoded.
    StorageError
        If the store failed.
    ReadCancelledError
        If the caller no longer waits.
    """
    check_cancelled()
    try:
        yield
    except BaseException as error:
        name_failure(error, what, where, condition)
        raise


def name_failure(error: BaseException, what: str, where: str, condition: str | None = None) -> None:
    """Raise the error of a read as :func:`reading` does, unless it has a name; for reads by the thousand."""
    if isinstance(error, WeirError):
        return
    said = library_message(error)
    if condition is not None and is_of_a_filter(error):
        raise FilterError(
            f"the filter {condition!r} cannot be evaluated on every row: {reason(error)}",
            where="filter",
        ) from error
    if (
        isinstance(error, pa.ArrowException | ValueError | RuntimeError)
        or is_panic(error)
        or classify(error) is LibraryFailure.DAMAGED
    ):
        raise CorruptionError(
            f"{what} cannot be read: {said}",
            where=damaged_file(where),
            hint="Its files are damaged: weir verify names them; restore them from a backup",
        ) from error
    if isinstance(error, LIBRARY_ERRORS):
        if classify(error) is LibraryFailure.ABSENT:
            raise CorruptionError(
                f"{what} lacks a file: {said}",
                where=where,
                hint="Read again if the version was cleaned up meanwhile; if files were deleted by "
                "hand, restore them",
            ) from error
        raise StorageError(f"{what} cannot be read: {said}", where=where, hint="Try again") from error
