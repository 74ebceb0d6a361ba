"""Temporary files in which the library builds and reads objects that Weir stores or loads itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weir.errors import StorageError, WeirError
from weir.indexing.library_message import library_message
from weir.storage.local_errors import hint_for

__all__ = ["readable_file", "scratch_directory"]

_DESCRIPTORS = "/proc/self/fd"


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


@contextmanager
def readable_file(data: bytes) -> Iterator[str]:
    """Make a file with some content for the length of a block, for a library that reads paths alone.

    On Linux it is in memory: readers need no place that they may write to. Elsewhere it is in a
    :func:`scratch_directory`.

    Raises
    ------
    StorageError
        If no file can be made.
    """
    if hasattr(os, "memfd_create") and os.path.isdir(_DESCRIPTORS):
        descriptor = os.memfd_create("weir")
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"{_DESCRIPTORS}/{descriptor}"
        return
    with scratch_directory() as directory:
        path = directory / "content"
        path.write_bytes(data)
        yield str(path)
