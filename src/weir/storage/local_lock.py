"""Locks between the threads and processes that replace objects in one local store.

``flock`` on files in ``.weir-locks`` below the root, one of a fixed few for every directory of
objects. The files are never removed, so nobody can hold a lock on a file that is gone; the kernel
lets go of a lock when its holder dies. Replacing and deleting share a lock, comparing and swapping
holds it alone, so that nothing changes between the comparison and the swap.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from weir.errors import StorageError
from weir.storage.paths import RESERVED_PREFIX

__all__ = ["LOCK_DIRECTORY", "directory_lock"]

LOCK_DIRECTORY = f"{RESERVED_PREFIX}locks"
_STRIPES = 16
_FIRST_WAIT_SECONDS = 0.0002
_LONGEST_WAIT_SECONDS = 0.01


@contextmanager
def directory_lock(
    root: str, directory: str, *, exclusive: bool, timeout_seconds: float = 60.0
) -> Iterator[None]:
    """Hold the lock on the objects of one directory.

    Parameters
    ----------
    root : str
        The root of the store, which exists.
    directory : str
        Path of the directory relative to the root.
    exclusive : bool
        Whether to shut out everyone else, or only those who want to be alone.
    timeout_seconds : float, default 60.0
        How long to wait. Locks are held for the length of a rename, so whoever waits longer waits
        for a process that was stopped.

    Raises
    ------
    StorageError
        Somebody else held the lock for the whole time.
    OSError
        The filesystem refused: no permission, no space, no support for ``flock``.
    """
    folder = os.path.join(root, LOCK_DIRECTORY)
    stripe = zlib.crc32(os.fsencode(directory)) % _STRIPES
    path = os.path.join(folder, f"{stripe:02d}")
    descriptor = _open(folder, path)
    try:
        _acquire(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, timeout_seconds, path)
        yield
    finally:
        os.close(descriptor)


def _open(folder: str, path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(folder)
        return os.open(path, flags, 0o666)


def _acquire(descriptor: int, operation: int, timeout_seconds: float, where: str) -> None:
    deadline: float | None = None
    wait = _FIRST_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise
        now = time.monotonic()
        if deadline is None:
            deadline = now + timeout_seconds
        elif now >= deadline:
            raise StorageError(
                f"Another process has held the lock for more than {timeout_seconds:g} s",
                where=where,
                hint="Look for a stopped process that uses this table and resume or end it",
            )
        time.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
