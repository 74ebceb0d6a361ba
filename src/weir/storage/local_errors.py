"""Operating system errors as Weir errors with hints."""

from __future__ import annotations

import errno
import re
from types import TracebackType

from weir.errors import DiskFullError, StorageError

__all__ = ["hint_for", "kind_of", "reporting", "storage_error"]

_HINTS: dict[int, str] = {
    errno.ENOSPC: "Free some space on the disk, then try again; nothing was changed",
    errno.EDQUOT: "The disk quota is used up: free some space or raise the quota, then try again",
    errno.EFBIG: "The file would be larger than the process or the filesystem allows (see 'ulimit -f')",
    errno.EACCES: "Give this user permission to read and write there, or choose another location",
    errno.EPERM: "The filesystem does not allow it: check the owner, and that it supports hard links",
    errno.EROFS: "The filesystem is mounted read-only: remount it or choose another location",
    errno.ENOTDIR: "A file is in the place of a directory of the path: remove it or choose another path",
    errno.EISDIR: "A directory is in the place of the object: remove it or choose another path",
    errno.ENAMETOOLONG: "Use a shorter location: filesystems allow about 255 bytes in a name",
    errno.EMFILE: "Too many files are open in this process: raise 'ulimit -n'",
    errno.ENFILE: "Too many files are open on this machine: raise 'fs.file-max'",
    errno.ELOOP: "Symbolic links form a circle: remove one of them",
    errno.EIO: "The disk reported a failure: check the system log and the disk itself",
    errno.ESTALE: "The network filesystem lost the file: check the mount, then try again",
    errno.ENOLCK: "The filesystem has no locks left: check the mount, or use another disk",
    errno.EOPNOTSUPP: "The filesystem lacks hard links: use a local disk or an object store",
    errno.ETIMEDOUT: "The network filesystem did not answer: check the mount, then try again",
}
_DEFAULT_HINT = "Check the path and the system log"
# How libraries in Rust spell what the system has told them.
_NUMBER = re.compile(r"\(os error (\d+)\)")


def hint_for(error: BaseException) -> str | None:
    """Return what to do next about a failure of the operating system that a library passes on.

    Parameters
    ----------
    error : BaseException
        What the library raised.

    Returns
    -------
    str or None
        None if the system did not fail, or in a way that nothing is known about.

    Examples
    --------
    >>> hint_for(OSError("LanceError(IO): Read-only file system (os error 30)"))
    'The filesystem is mounted read-only: remount it or choose another location'
    """
    number = _number(error)
    return None if number is None else _HINTS.get(number)


def kind_of(error: BaseException) -> type[StorageError]:
    """Return which error to raise for a failure of the operating system, or one that a library passes on.

    Examples
    --------
    >>> kind_of(OSError("LanceError(IO): No space left on device (os error 28)")).__name__
    'DiskFullError'
    """
    return DiskFullError if _number(error) in (errno.ENOSPC, errno.EDQUOT) else StorageError


def _number(error: BaseException) -> int | None:
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _NUMBER.search(str(error))):
        number = int(found[1])
    return number


def storage_error(error: OSError, what: str, where: str) -> StorageError:
    """Return the error to raise in place of ``error``.

    Parameters
    ----------
    error : OSError
        What the operating system said.
    what : str
        What was being done, as in "writing the object".
    where : str
        The path on this machine.
    """
    reason = error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0, _DEFAULT_HINT)
    return kind_of(error)(f"{what} failed: {reason}", where=where, hint=hint)


class reporting:  # noqa: N801  (reads as a verb: "with reporting(...)")
    """Turn what the operating system says inside a ``with`` block into a :class:`StorageError`.

    Parameters
    ----------
    what : str
        The action, as in "Writing the object".
    where : str
        The path on this machine.

    Examples
    --------
    >>> with reporting("Reading the object", "/no/such/file"):
    ...     open("/no/such/file")
    Traceback (most recent call last):
    weir.errors.StorageError: Reading the object failed: No such file or directory [/no/such/file]. \
Check the path and the system log
    """

    __slots__ = ("_what", "_where")

    def __init__(self, what: str, where: str) -> None:
        self._what = what
        self._where = where

    def __enter__(self) -> None:
        """Do nothing: only leaving matters."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise the error of the store in place of one of the operating system."""
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(error, self._what, self._where) from error
