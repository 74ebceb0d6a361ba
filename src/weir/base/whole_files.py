"""Syncing files that the library wrote to a local disk before anything references them.

The library writes files on another thread and may lose the system's error. A full or failing disk then leaves
a short file, and the library reports success. So files that Weir is about to reference must have the sizes in
the library's own manifest, or, where it gives none, end as their kind does.

An object store stores an object completely or not at all, so nothing is checked there.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator

from weir.errors import CorruptionError, StorageError
from weir.format.buffers import Bytes
from weir.format.deletion_file import deleted_rows
from weir.format.lance_footer import FOOTER_BYTES, ends_as_written
from weir.format.table_manifest import VersionFile, decode_files, decode_transaction, refuse_torn_end
from weir.storage.local_errors import reporting
from weir.storage.paths import is_temporary

__all__ = ["refuse_torn", "refuse_torn_build", "tear"]

_HINT = (
    "Nothing refers to it, and nothing was changed. Free some space on the disk if it is full, look for its "
    "failures in the system log, then try again"
)


def refuse_torn(
    root: str,
    manifest: Bytes,
    *,
    where: str,
    known: Container[str] = (),
    besides: Iterable[VersionFile] = (),
) -> None:
    """Check that a version written by the library, and not yet visible, is complete.

    Parameters
    ----------
    root : str
        The directory with its files.
    manifest : bytes-like
        Its manifest.
    where : str
        Where the manifest is, for errors.
    known : container of str
        Files not to check: those of the previous version.
    besides : iterable of VersionFile
        Further files to check, which the manifest does not name.

    Raises
    ------
    StorageError
        Some of it is not there. The file is named.
    """
    refuse_torn_build(root, manifest, where=where)
    files = decode_files(manifest, where=where)
    with reporting("looking at what was written", root):
        for file in (*files.needed, *besides):
            if file.path not in known:
                for one in _each(root, file):
                    _refuse(root, one)


def refuse_torn_build(root: str, manifest: Bytes, *, where: str) -> None:
    """Make sure that a manifest that the library has written is whole, and its transaction file.

    Parameters
    ----------
    root, manifest, where
        As for :func:`refuse_torn`. The transaction file may be somewhere else.

    Raises
    ------
    StorageError
        Some of one is not there.
    """
    try:
        refuse_torn_end(manifest, where=where)
        # Other commits read it to find conflicts.
        transaction = decode_transaction(manifest, where=where)
    except CorruptionError as error:
        raise _torn(error.message, where) from error
    with reporting("looking at what was written", root):
        if transaction is not None and os.path.exists(os.path.join(root, transaction.path)):
            _refuse(root, transaction)


def _each(root: str, file: VersionFile) -> Iterator[VersionFile]:
    """Yield the files of a directory one by one, and a file itself."""
    if "." in os.path.basename(file.path):
        yield file
        return
    # If an index has no list of its files, it is unknown whether it has any.
    location = os.path.join(root, file.path)
    for name in os.listdir(location) if os.path.isdir(location) else ():
        if not name.startswith(".") and not is_temporary(name):
            yield VersionFile(f"{file.path}/{name}", None)


def _refuse(root: str, file: VersionFile) -> None:
    location = os.path.join(root, file.path)
    problem = tear(location, file)
    if problem is not None:
        raise _torn(problem, location)


def tear(location: str, file: VersionFile) -> str | None:
    """Return what is wrong with the length or the end of a file, as text; None if it is intact.

    Parameters
    ----------
    location : str
        Where it is.
    file : VersionFile
        Its entry in the manifest.

    Raises
    ------
    OSError
        It cannot be read.
    """
    try:
        with open(location, "rb", buffering=0) as opened:
            size = opened.seek(0, os.SEEK_END)
            if file.size not in (None, size):
                return f"the file has {size} bytes where {file.size} were written"
            directory, _, name = file.path.rpartition("/")
            if directory == "_transactions":
                return None
            if directory == "_deletions":
                opened.seek(0)
                rows = deleted_rows(opened.readall(), name)
                return None if rows is not None and file.rows in (None, rows) else "the file is not whole"
            opened.seek(max(0, size - FOOTER_BYTES))
            return None if ends_as_written(opened.readall(), size) else f"the file ends after {size} bytes"
    except FileNotFoundError:
        return "the file is not there"


def _torn(problem: str, where: str) -> StorageError:
    return StorageError(
        f"some of what the library has written is missing: {problem}", where=where, hint=_HINT
    )
