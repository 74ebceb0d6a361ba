"""Temporary files, in which the library builds and reads what Weir then stores or has loaded itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weir.errors import StorageError, WeirError
from weir.indexing.library_message import library_message
from weir.storage.local_errors import hint_for

__all__ = ["scratch_directory"]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory for the length of a block.

    It is where the environment variable ``TMPDIR`` says, or where the system has such files.

    Raises
    ------
    StorageError
        If no temporary files can be written; nothing else was changed then.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="weir-") as directory:
            yield Path(directory)
    except WeirError:
        raise
    except OSError as error:
        advice = "the environment variable TMPDIR says where temporary files go"
        known = hint_for(error)
        raise StorageError(
            f"Writing temporary files failed: {error.strerror or library_message(error)}",
            where=error.filename or tempfile.tempdir,
            hint=f"{known}; {advice}" if known else f"{advice[0].upper()}{advice[1:]}",
        ) from error
